"""How large a device is said to be, before and after it is set up."""

import pytest

MIB = 1 << 20


@pytest.mark.parametrize("hbm", [64 * MIB, "25%", "auto"])
def test_total_memory_is_the_same_before_the_first_allocation(run, hbm):
    # GIVEN a job that sizes its caches before it allocates WHEN it asks for the device's memory
    # THEN it is told what it is told later
    run(
        """
open_device()
before, after = c_size_t(), c_size_t()
api.cuDeviceTotalMem_v2(byref(before), 0)
malloc(4 * MB)
api.cuDeviceTotalMem_v2(byref(after), 0)
assert before.value == after.value, (before.value, after.value)
""",
        TRANSIT_HBM=hbm,
    )


def test_total_memory_of_another_device(run):
    # GIVEN two devices, a context on one, and none allocated on yet WHEN both are asked THEN only
    # the one that would be managed counts DRAM, and asking makes neither the managed one
    run(
        """
open_device()
first, second = c_size_t(), c_size_t()
api.cuDeviceTotalMem_v2(byref(first), 0)
api.cuDeviceTotalMem_v2(byref(second), 1)
assert (first.value, second.value) == (192 * MB, 1 << 30), (first.value, second.value)
other = c_void_p()
api.cuDevicePrimaryCtxRetain(byref(other), 1)
api.cuCtxSetCurrent(other)
malloc(4 * MB)
api.cuDeviceTotalMem_v2(byref(first), 0)
api.cuDeviceTotalMem_v2(byref(second), 1)
assert (first.value, second.value) == (1 << 30, 192 * MB), (first.value, second.value)
""",
        TRANSIT_SIM_DEVICES=2,
    )
