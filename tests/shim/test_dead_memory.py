"""Memory that was freed, and what its frames and its pins are then good for."""
# ruff: noqa: E501 (programs in strings)

import pytest

MIB = 1 << 20


def test_pinned_memory_is_reborn_on_dram(run):
    # GIVEN blocks captured into a graph while they lay in DRAM, HBM that is free again, and a replay
    # that still runs WHEN one of them is freed and allocated again behind it, in stream order THEN
    # it stays where the replay reads it
    run(
        """
open_device()
on, graph, executable = stream(), c_void_p(), c_void_p()
in_hbm = malloc(56 * MB)
fill(in_hbm, 1, 14 * MB); sync()
to, source = malloc_async(16 * MB, on), malloc_async(16 * MB, on)
fill(to, 0, 4 * MB, on=on); fill(source, 5, 4 * MB, on=on)
function("sim_copy"); api.cuStreamSynchronize(on)
api.cuStreamBeginCapture_v2(on, 1)
launch("sim_spin", 200_000_000, on=on)
launch("sim_copy", to, source, 16 * MB, on=on)
api.cuStreamEndCapture(on, byref(graph))
api.cuGraphInstantiateWithFlags(byref(executable), graph, 0)
assert counters()["pinned_extents"] == 16
api.cuMemFree_v2(in_hbm)
pass_markers(on); sync()
before = counters()["drops"]
api.cuGraphLaunch(executable, on)
api.cuMemFreeAsync(source, on)
assert malloc_async(16 * MB, on) == source
fill(source, 9, 4 * MB, on=on); api.cuStreamSynchronize(on)
expect_words(source, 4 * MB, 9)
expect_words(to, 4 * MB, 5)
assert counters()["drops"] == before
"""
    )


LAUNCH = """
def launch_code(name, on, *arguments):
    keep, pointers = packed(*arguments)
    return lib.cuLaunchKernel(function(name), 1, 1, 1, 32, 1, 1, 0, on, pointers, None)
"""
FREE = """
def free_bytes():
    free, total = c_size_t(), c_size_t()
    api.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value
"""
BEHIND_A_KERNEL = """
open_device()
one, two = stream(), stream()
malloc(MB); function("sim_fill"); end_setup(); sync()
in_hbm = malloc_async(62 * MB, one); fill(in_hbm, 1, 16, on=one)
old = malloc_async(60 * MB, one); fill(old, 1, 16, on=one); api.cuStreamSynchronize(one)
launch("sim_spin", 500_000_000, on=one)
fill(old, 2, 16, on=one); api.cuMemFreeAsync(old, one)
new, began = malloc_async(60 * MB, two), time.monotonic()
assert launch_code("sim_fill", two, new, c_uint(3), 16) == 0
print(time.monotonic() - began)
api.cuStreamSynchronize(two)
expect_words(new, 16, 3)
"""


def test_dead_memory_on_dram_that_is_needed(run):
    # GIVEN no memory but what was freed in DRAM behind a kernel that runs half a second WHEN a
    # launch names memory that was granted for it THEN it waits for the kernel, and is not refused
    done = run(LAUNCH + BEHIND_A_KERNEL, TRANSIT_DRAM=64 * MIB)
    assert 0.3 < float(done.out) < 5


def test_dead_memory_on_dram_that_is_not_needed(run):
    # GIVEN the same, and as much DRAM again that is free WHEN the launch comes THEN it does not
    # wait for the kernel
    done = run(LAUNCH + BEHIND_A_KERNEL, TRANSIT_DRAM=128 * MIB)
    assert float(done.out) < 0.3


@pytest.mark.parametrize(
    "small",
    [
        "[malloc(2 * MB) for _ in range(30)]",
        "[malloc_async(MB // 2) for _ in range(120)]",
    ],
    ids=["segments", "stream-ordered"],
)
def test_small_memory_that_is_dead(run, small):
    # GIVEN HBM full of small memory, which never moves, and no DRAM WHEN it is freed and as much is
    # allocated THEN a launch that names the new memory gets the frames
    run(
        LAUNCH
        + f"""
open_device()
small = {small}
for each in small: fill(each, 1, 16)
sync()
for each in small: lib.cuMemFree_v2(each)
new = malloc_async(60 * MB)
assert launch_code("sim_fill", None, new, c_uint(3), 15 * MB) == 0
expect_words(new, 15 * MB, 3)
""",
        TRANSIT_DRAM=0,
    )


def test_memory_of_a_graph_that_is_freed(run):
    # GIVEN memory that a graph holds, and no DRAM WHEN it is freed THEN it is not granted to others
    # in vain, and whoever gets its address again can use it
    run(
        LAUNCH
        + FREE
        + """
open_device()
on, graph, at = stream(), c_void_p(), c_uint64()
block = malloc(60 * MB)
api.cuStreamBeginCapture_v2(on, 1)
launch("sim_fill", block, c_uint(1), 15 * MB, on=on)
api.cuStreamEndCapture(on, byref(graph))
api.cuMemFree_v2(block)
assert free_bytes() == 4 * MB
assert lib.cuMemAllocAsync(byref(at), 60 * MB, on) == 2
for value in (3, 4):
    assert malloc(60 * MB) == block and free_bytes() == 4 * MB
    assert launch_code("sim_fill", on, block, c_uint(value), 15 * MB) == 0
    api.cuStreamSynchronize(on)
    expect_words(block, 15 * MB, value)
    api.cuMemFree_v2(block)
""",
        TRANSIT_DRAM=0,
    )


def test_a_block_is_born_and_written_while_its_extent_is_copied(run):
    # GIVEN a large extent that is being moved all the time WHEN a block is born in it during the
    # copy, and a kernel that names nothing writes it before a step boundary THEN nothing is lost
    done = run(
        """
open_device()
old = malloc_async(3 * MB)
fill(old, 1, 3 * MB // 4); sync()
function("sim_hidden_writer"); end_setup(); next_step(); pass_markers(); sync()
wait_moves(2)
for i in range(1, 17):
    time.sleep(0.002 * (i % 6))  # the next copy is to be anywhere
    young = malloc_async(4 * MB)
    sim.transit_sim_hide(1, young, 4 * MB)
    launch("sim_hidden_writer", c_uint(1), c_uint(i)); api.cuStreamSynchronize(None)
    next_step(); api.cuStreamSynchronize(None)
    time.sleep(0.1)
    expect_words(young, MB, i, f"round {i}")
    expect_words(old, 3 * MB // 4, 1)
    api.cuMemFreeAsync(young, None); pass_markers(); sync()
    wait_moves(1)
""",
        TRANSIT_FORCE_MOVES=3,
        TRANSIT_SIM_LATENCY_US=0,
        TRANSIT_EXTENT_BYTES=64 * MIB,
        TRANSIT_HBM=512 * MIB,
        TRANSIT_DRAM=512 * MIB,
    )
    assert done.stats.counter("aborted_moves") > 0  # else no birth met a copy
