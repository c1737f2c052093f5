"""Blocks that come and go beside persistent ones, in extents that are being moved."""


def test_a_block_is_born_in_an_extent_that_is_being_remapped(run):
    # GIVEN persistent blocks with a hole in each extent WHEN one thread fills and frees the holes
    # while another one's allocations push the extents out THEN the persistent bytes stay
    done = run(
        """
home, K = open_device(), 1 << 20
EXTENT = int(os.environ["TRANSIT_EXTENT_BYTES"])
blocks, holes = [], []
for _ in range(16):
    blocks.append(malloc_async(EXTENT - K))
    holes.append(malloc_async(K))
for i, block in enumerate(blocks): fill(block, 1000 + i, (EXTENT - K) // 4)
for hole in holes: api.cuMemFreeAsync(hole, None)
sync(); end_setup(); next_step(); sync()
register("compute_thing", lambda at: None, *[8] * 16)
function("compute_thing"); function("sim_fill")
stop = threading.Event()
def small():
    api.cuCtxSetCurrent(home)
    while not stop.is_set():
        for hole in [malloc_async(K) for _ in range(16)]: api.cuMemFreeAsync(hole, None)
        time.sleep(0.004)
thread = threading.Thread(target=small); thread.start()
two, end = stream(), time.monotonic() + 6
while time.monotonic() < end:
    big = malloc_async(6 * EXTENT, two)
    fill(big, 1, 16, on=two); api.cuStreamSynchronize(two)
    api.cuMemFreeAsync(big, two)
    pass_markers(two)
    launch("compute_thing", *blocks, on=two); api.cuStreamSynchronize(two)
    for i, block in enumerate(blocks): expect_words(block, 4, 1000 + i, f"block {i}")
    pass_markers(); sync()  # what was freed may start anew in HBM, so that some must leave again
stop.set(); thread.join()
""",
        TRANSIT_EXTENT_BYTES=8 << 20,
        TRANSIT_HBM=136 << 20,
        TRANSIT_DRAM=384 << 20,
    )
    assert done.moves > 20 and done.stats.counter("aborted_moves") > 20  # a birth undoes a move
