"""CUDA graphs captured and replayed while extents are moved all the time."""
# ruff: noqa: E501 (programs in strings)

import pytest

MOVING = {"TRANSIT_FORCE_MOVES": 5, "TRANSIT_SIM_LATENCY_US": 100}
HELPERS = """
def replayable(on, mode, body):
    graph, executable = c_void_p(), c_void_p()
    api.cuStreamBeginCapture_v2(on, mode)
    body()
    api.cuStreamEndCapture(on, byref(graph))
    api.cuGraphInstantiateWithFlags(byref(executable), graph, 0)
    return executable
"""


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread", "relaxed"])
def test_capture_while_others_move(run, mode):
    # GIVEN blocks that keep moving WHEN captures begin at any moment of a move THEN every capture
    # stays valid and its replay is right
    done = run(
        f"mode = {mode}"
        + HELPERS
        + """
open_device()
mine, others = malloc(4 * MB), [malloc(4 * MB) for _ in range(6)]
fill(mine, 0, MB)
sync()
end_setup()
on = stream()
for i in range(120):
    pass_markers()
    time.sleep(0.0005 * (i % 5))
    def body():
        for _ in range(3):
            launch("sim_increment", mine, MB, on=on)
            time.sleep(0.0005)
    graph = replayable(on, mode, body)
    api.cuGraphLaunch(graph, on)
    api.cuStreamSynchronize(on)
    if i % 4 == 0: [fill(each, i, MB) for each in others]
expect_words(mine, MB, 360)
for each in others: expect_words(each, MB, 116)
print(moves())
""",
        **MOVING,
    )
    assert int(done.out) >= 1


def test_captured_table_is_filled_again(run):
    # GIVEN a captured kernel that reads through a table WHEN the table is copied anew before each
    # replay and lists other blocks THEN the replay reads them right
    run(
        HELPERS
        + """
open_device()
blocks = [malloc(4 * MB) for _ in range(8)]
gathered, table = malloc(4 * MB), malloc(4 * MB)
for i, each in enumerate(blocks): fill(each, i, MB)
upload(table, blocks[:4])
sync()
end_setup()
on = stream()
graph = replayable(on, 0, lambda: [launch("sim_gather_by_table", gathered, table, 4, MB // 4, on=on) for _ in range(8)])
for i in range(60):
    pass_markers()
    upload(table, [blocks[(i + k) % 8] for k in range(4)])
    api.cuGraphLaunch(graph, on)
    api.cuStreamSynchronize(on)
    got = read(gathered, MB)
    for k in range(4):
        assert set(got[k * MB // 4 : (k + 1) * MB // 4]) == {(i + k) % 8}, (i, k)
""",
        **MOVING,
    )


def test_captured_kernel_of_unknown_layout(run):
    # GIVEN a captured kernel whose parameters nobody can read WHEN it is replayed while the blocks
    # it works on are moved THEN no byte is wrong
    run(
        HELPERS
        + """
open_device()
block = malloc(8 * MB)
fill(block, 0, 2 * MB)
sync()
body = sim.transit_sim_register_kernel
libc = ctypes.CDLL(None)
def write(at):
    where, value = struct.unpack("QQ", ctypes.string_at(at, 16))
    for _ in range(6):
        ctypes.memset(where, value, 8 * MB)
        time.sleep(0.0005)
register("opaque", write, 8, 8)
sim.transit_sim_set_opaque(b"opaque")
end_setup()
on = stream()
graphs = [replayable(on, 0, lambda: launch("opaque", block, v, on=on)) for v in (1, 2)]
pass_markers()
for i in range(150):
    api.cuGraphLaunch(graphs[i % 2], on)
    api.cuStreamSynchronize(on)
    expect_words(block, 2 * MB, 0x01010101 * (i % 2 + 1), i)
print(moves())
""",
        **MOVING,
    )


def test_memory_figures_during_a_capture(run):
    # GIVEN an open capture WHEN the free and total memory are asked THEN they are as before
    run(
        """
open_device()
block = malloc(4 * MB)
def figures():
    free, total = c_size_t(), c_size_t()
    api.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value, total.value
before = figures()
on, graph = stream(), c_void_p()
api.cuStreamBeginCapture_v2(on, 2)
assert figures() == before, (figures(), before)
api.cuStreamEndCapture(on, byref(graph))
""",
    )


def test_stream_destroyed_while_capturing(run):
    # GIVEN a stream destroyed in the middle of a capture WHEN the job goes on THEN blocks move
    # again: the capture is over
    run(
        """
open_device()
block = malloc(4 * MB)
fill(block, 0, MB)
sync()
end_setup()
on = stream()
api.cuStreamBeginCapture_v2(on, 2)
lib.cuStreamDestroy_v2(on)
fill(block, 3, MB)
wait_moves(2, seconds=3)
expect_words(block, MB, 3)
""",
        **MOVING,
    )
