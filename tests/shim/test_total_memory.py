"""How large a device is said to be, before and after it is set up, and what is more than that."""

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


@pytest.mark.parametrize("bytes_", [(1 << 64) - 1, (1 << 64) - 4096, 1 << 63, (1 << 38) + 1])
def test_more_than_there_are_addresses(run, bytes_):
    # GIVEN a device WHEN sizes are asked that no arena has, or that overflow when they are rounded
    # THEN the answer is OUT_OF_MEMORY, nothing is charged, and the job can go on
    run(
        f"""
open_device()
assert [malloc_code({bytes_})[0] for _ in range(3)] == [2] * 3
on, at = stream(), c_uint64()
for each in (None, on): assert lib.cuMemAllocAsync(byref(at), {bytes_}, each) == 2
free, total = c_size_t(), c_size_t()
api.cuMemGetInfo_v2(byref(free), byref(total))
assert free.value == total.value == 192 * MB, (free.value, total.value)
block = malloc_async(4 * MB, on)
fill(block, 3, MB, on=on); api.cuStreamSynchronize(on)
expect_words(block, MB, 3)
"""
    )
