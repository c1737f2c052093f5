"""Captures that take in further streams, which end before the capture does."""

import pytest

JOINED = """
open_device()
block = malloc(4 * MB)
fill(block, 0, MB); end_setup(); next_step(); sync()
on, graph = stream(), c_void_p()
def join_and_destroy():
    joined = stream()
    order(on, joined)
    launch("sim_spin", 1, on=joined)
    order(joined, on)
    api.cuStreamDestroy_v2(joined)
"""


@pytest.mark.parametrize("streams", [1, 3])
def test_a_joined_stream_is_destroyed(run, streams):
    # GIVEN a capture WHEN streams that joined it are destroyed before it ends THEN it goes on being
    # followed: what it takes in afterwards is pinned, and its replays are right while others move
    run(
        f"streams = {streams}"
        + JOINED
        + """
api.cuStreamBeginCapture_v2(on, 1)
for _ in range(streams): join_and_destroy()
launch("sim_increment", block, MB, on=on)
api.cuStreamEndCapture(on, byref(graph))
assert counters()["pinned_extents"] == 2
executable = c_void_p()
api.cuGraphInstantiateWithFlags(byref(executable), graph, 0)
for i in range(20):
    api.cuGraphLaunch(executable, on)
    api.cuStreamSynchronize(on); pass_markers()
expect_words(block, MB, 20)
""",
        TRANSIT_FORCE_MOVES=5,
    )


def test_later_captures_are_followed(run):
    # GIVEN a capture whose joined stream was destroyed, and which has ended WHEN another stream is
    # captured THEN what that names is pinned
    run(
        JOINED
        + """
api.cuStreamBeginCapture_v2(on, 1)
join_and_destroy()
api.cuStreamEndCapture(on, byref(graph))
api.cuStreamBeginCapture_v2(on, 1)
launch("sim_increment", block, MB, on=on)
api.cuStreamEndCapture(on, byref(graph))
assert counters()["pinned_extents"] == 2
"""
    )


def test_dead_memory_passes_afterwards(run):
    # GIVEN a capture whose joined stream was destroyed, and which has ended WHEN two streams take
    # turns with most of the HBM THEN each gets the other's frames, without long waits
    done = run(
        JOINED
        + """
api.cuStreamBeginCapture_v2(on, 1)
join_and_destroy()
api.cuStreamEndCapture(on, byref(graph))
began = time.monotonic()
for each in [stream(), stream()] * 2:
    most = malloc_async(48 * MB, each)
    fill(most, 1, 12 * MB, on=each)
    api.cuMemFreeAsync(most, each)
    api.cuStreamSynchronize(each)
print(time.monotonic() - began)
""",
        TRANSIT_DRAM=0,
    )
    assert float(done.out) < 8  # one wait in vain is 10 s


def test_an_end_without_a_place_for_the_graph(run):
    # GIVEN a capture WHEN its end is refused, since there is nowhere to put the graph THEN it goes
    # on being followed
    run(
        JOINED
        + """
api.cuStreamBeginCapture_v2(on, 1)
assert lib.cuStreamEndCapture(on, None) == 1
launch("sim_increment", block, MB, on=on)
api.cuStreamEndCapture(on, byref(graph))
assert counters()["pinned_extents"] == 2
"""
    )


def test_the_stream_that_began_it_is_destroyed(run):
    # GIVEN a capture that another stream has joined WHEN the one that began it is destroyed, then
    # the other THEN the capture is over, once: later ones are followed, and blocks move
    run(
        JOINED
        + """
joined = stream()
api.cuStreamBeginCapture_v2(on, 1)
order(on, joined)
api.cuStreamDestroy_v2(on)
lib.cuStreamDestroy_v2(joined)
wait_moves(2, seconds=5)
on = stream()
api.cuStreamBeginCapture_v2(on, 1)
launch("sim_increment", block, MB, on=on)
api.cuStreamEndCapture(on, byref(graph))
assert counters()["pinned_extents"] == 2
""",
        TRANSIT_FORCE_MOVES=5,
    )
