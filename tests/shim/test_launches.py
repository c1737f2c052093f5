"""Launches by the oldest doors, in a verification run: what a launch does not name is not mapped."""
# ruff: noqa: E501 (programs in strings)

import pytest


@pytest.mark.parametrize(
    "launch_it",
    [
        "lib.cuLaunch(f)",
        "lib.cuLaunchGrid(f, 1, 1)",
        "lib.cuLaunchGridAsync(f, 1, 1, on)",
    ],
)
def test_parameters_set_beforehand(run, launch_it):
    # GIVEN memory that is unmapped while nothing names it WHEN a kernel is launched whose
    # parameters were set one by one THEN everything is mapped meanwhile, and it counts as unknown
    done = run(
        f"""
open_device()
at, f, on = malloc(4 * MB), function("sim_increment"), stream()
fill(at, 7, MB)
sync()
raw = struct.pack("QQ", at, MB)
api.cuFuncSetBlockShape(f, 32, 1, 1)
api.cuParamSetSize(f, 16)
api.cuParamSetv(f, 0, raw, 16)
assert {launch_it} == 0
api.cuStreamSynchronize(on)
expect_words(at, MB, 8)
""",
        TRANSIT_VERIFY=1,
    )
    assert done.stats.counter("unknown_launches") == 1
    assert done.stats.counter("hidden_accesses") == 0
    assert ("unknown", "sim_increment") in {(row.kind, row.name) for row in done.stats.named}


@pytest.mark.parametrize("count", [1, 6])
def test_one_launch_a_device(run, count):
    # GIVEN memory that is unmapped while nothing names it WHEN several kernels are launched in one
    # call THEN what each names is mapped, and all bytes are right
    done = run(
        f"""
open_device()
class Launch(ctypes.Structure):
    _fields_ = [("f", pointer), ("shape", c_uint * 7), ("on", pointer), ("parameters", pointer)]
blocks = [malloc(4 * MB) for _ in range({count})]
for each in blocks: fill(each, 7, MB)
sync()
kept = [packed(each, MB) for each in blocks]
launches = (Launch * {count})(*[
    Launch(function("sim_increment").value, (c_uint * 7)(1, 1, 1, 32, 1, 1, 0), stream().value, ctypes.addressof(pointers))
    for _, pointers in kept
])
api.cuLaunchCooperativeKernelMultiDevice(launches, {count}, 0)
sync()
for each in blocks: expect_words(each, MB, 8)
""",
        TRANSIT_VERIFY=1,
    )
    assert done.stats.counter("unknown_launches") == 0
    assert done.stats.counter("hidden_accesses") == 0
