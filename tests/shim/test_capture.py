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


def test_capture_on_the_per_thread_stream(run):
    # GIVEN a capture on the thread's default stream, named by 0 WHEN a kernel goes into it THEN
    # what it names is pinned
    run(
        """
open_device()
block = malloc(4 * MB)
fill(block, 1, MB); end_setup(); next_step(); sync()
lib.cuLaunchKernel_ptsz.argtypes = ARGUMENTS["cuLaunchKernel"]
assert lib.cuStreamBeginCapture_v2_ptsz(None, 0) == 0
keep, pointers = packed(block, MB)
kernel = function("sim_increment")
assert lib.cuLaunchKernel_ptsz(kernel, 1, 1, 1, 32, 1, 1, 0, None, pointers, None) == 0
assert lib.cuStreamEndCapture_ptsz(None, byref(c_void_p())) == 0
assert counters()["pinned_extents"] == 2
"""
    )


def test_a_stream_with_all_its_markers_ends_meanwhile(run):
    # GIVEN a stream with 4,100 operations that nobody has asked about WHEN it is destroyed while
    # another is captured in global mode THEN the capture succeeds
    run(
        """
open_device()
fill(malloc(4 * MB), 1, MB); sync()
old = stream()
for _ in range(16 * 256 + 5): launch("sim_spin", 1, on=old)
api.cuStreamSynchronize(old)
on = stream()
api.cuStreamBeginCapture_v2(on, 0)
api.cuStreamDestroy_v2(old)
api.cuStreamEndCapture(on, byref(c_void_p()))
"""
    )


@pytest.mark.parametrize("mode", [1, 2])
def test_another_thread_frees_meanwhile(run, mode):
    # GIVEN a capture that other threads do not take part in WHEN one of them frees memory THEN that
    # and the capture succeed, and once it is over the memory is given out again
    run(
        f"mode = {mode}"
        + """
home, on = open_device(), stream()
block, kept = malloc(40 * MB), malloc(4 * MB)
fill(block, 1, MB); sync()
api.cuStreamBeginCapture_v2(on, mode)
codes = []
def free():
    api.cuCtxSetCurrent(home)
    codes.append(lib.cuMemFree_v2(block))
thread = threading.Thread(target=free); thread.start(); thread.join()
assert codes == [0] and lib.cuMemFree_v2(block) != 0
api.cuStreamEndCapture(on, byref(c_void_p()))
api.cuMemFree_v2(kept)
assert malloc(40 * MB) == block
"""
    )


def test_an_end_that_fails_without_ending(run):
    # GIVEN a capture WHEN a thread without a context fails to end it THEN it goes on being followed
    run(
        """
open_device()
block = malloc(4 * MB)
fill(block, 1, MB); end_setup(); next_step(); sync()
on = stream()
api.cuStreamBeginCapture_v2(on, 2)
def end(): assert lib.cuStreamEndCapture(on, byref(c_void_p())) != 0
thread = threading.Thread(target=end); thread.start(); thread.join()
fill(block, 2, MB, on=on)
api.cuStreamEndCapture(on, byref(c_void_p()))
assert counters()["pinned_extents"] == 2
"""
    )


def test_a_captured_fill_forgets_no_table(run):
    # GIVEN a table WHEN a fill over it is captured, which does not happen yet THEN kernels that
    # read the table still touch what it lists
    run(
        """
open_device()
source, table, to = malloc(8 * MB), malloc(4 * MB), malloc(8 * MB)
fill(source, 1, 2 * MB); sync(); end_setup(); next_step(); sync()
upload(table, [source])
on = stream()
api.cuStreamBeginCapture_v2(on, 0)
api.cuMemsetD32Async(table, 0, 16, on)
api.cuStreamEndCapture(on, byref(c_void_p()))
before = counters()["table_touches"]
launch("sim_gather_by_table", to, table, 1, 2 * MB); sync()
assert counters()["table_touches"] == before + 1
expect_words(to, 16, 1)
"""
    )
