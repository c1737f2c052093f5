"""The end of the managed context: what comes after is the driver's own."""

import pytest

RESET = """
open_device()
blocks = [malloc(4 * MB) for _ in range(4)]
for i, each in enumerate(blocks): fill(each, i, MB)
sync()
end_setup()
if MOVES: wait_moves(20)
for i, each in enumerate(blocks): expect_words(each, MB, i)
assert sim.transit_sim_hbm_bytes() + sim.transit_sim_dram_bytes() > 0
api.cuDevicePrimaryCtxReset_v2(0)
assert (sim.transit_sim_hbm_bytes(), sim.transit_sim_dram_bytes()) == (0, 0)
open_device()
"""


@pytest.mark.parametrize("moves", [False, True])
def test_memory_after_a_reset_is_the_drivers(run, moves):
    # GIVEN a job with managed memory, moving or not WHEN it resets the device and begins anew THEN
    # every frame was given back, and what it allocates is native, right, and freed as it should be
    done = run(
        f"MOVES = {moves}"
        + RESET
        + """
before = moves()
on = stream()
again, ordered = malloc(4 * MB), malloc_async(4 * MB, on)
assert not any(abs(again - old) < 64 * MB for old in blocks)
fill(again, 7, MB); fill(ordered, 8, MB, on=on); sync()
expect_words(again, MB, 7); expect_words(ordered, MB, 8)
free, total, whole = c_size_t(), c_size_t(), c_size_t()
api.cuMemGetInfo_v2(byref(free), byref(total))
api.cuDeviceTotalMem_v2(byref(whole), 0)
assert total.value == whole.value == 1 << 30
time.sleep(0.05)
assert moves() == before and counters()["managed_bytes"] == 0
api.cuMemFree_v2(again)
api.cuMemFreeAsync(ordered, on); api.cuStreamSynchronize(on)
api.cuStreamDestroy_v2(on)
api.cuDevicePrimaryCtxReset_v2(0)
""",
        TRANSIT_FORCE_MOVES=7 if moves else None,
    )
    assert "manages nothing from now on" in done.err


def test_pointers_kept_over_a_reset(run):
    # GIVEN pointers of before the reset WHEN they are freed and asked about after it THEN the
    # driver answers that it does not know them
    run(
        "MOVES = False"
        + RESET
        + """
out = c_uint64()
assert lib.cuMemFree_v2(blocks[0]) == 1
assert lib.cuMemGetAddressRange_v2(byref(out), None, blocks[1]) != 0
""",
    )


def test_reset_before_the_first_allocation(run):
    # GIVEN a job that resets the device before it uses it, as launchers do WHEN it allocates THEN
    # the memory is managed
    run(
        """
api.cuInit(0)
api.cuDevicePrimaryCtxReset_v2(0)
open_device()
malloc(4 * MB)
assert counters()["managed_bytes"] == 4 * MB
""",
    )
