"""Memory freed on one stream and allocated again on another: the fence between them holds."""


def test_the_driver_refuses_to_wait_for_a_fence(run):
    # GIVEN a block freed on a foreign stream behind a copy of it WHEN its address is allocated
    # again, and the driver refuses to let that stream wait THEN the copy is right all the same
    run(
        """
open_device()
mine, foreign, to = stream(), stream(), malloc(4 * MB)
function("sim_copy"); function("sim_fill")
block = malloc_async(8 * MB, mine)
fill(block, 7, 2 * MB, on=mine); api.cuStreamSynchronize(mine)
launch("sim_spin", 200_000_000, on=foreign)
launch("sim_copy", to, block, 4 * MB, on=foreign)
api.cuMemFreeAsync(block, foreign)
assert malloc_async(8 * MB, mine) == block
fill(block, 9, 2 * MB, on=mine); sync()
expect_words(to, MB, 7)
expect_words(block, 2 * MB, 9)
""",
        TRANSIT_SIM_FAIL="cuStreamWaitEvent:1:304",
    )
