"""Whatever a launch waits for has an end, and is not waited for again and again."""

import pytest

PTSZ = """
lib.cuLaunchKernel_ptsz.argtypes = ARGUMENTS["cuLaunchKernel"]
def launch_ptsz(name, *arguments):
    keep, pointers = packed(*arguments)
    assert lib.cuLaunchKernel_ptsz(function(name), 1, 1, 1, 32, 1, 1, 0, None, pointers, None) == 0
    api.cuStreamSynchronize(c_void_p(2))
"""


def test_the_gpu_waits_for_the_host(run):
    # GIVEN memory that only a synchronisation would show to be free (of a thread that ended), and
    # GPU work that waits for the host WHEN a launch needs the memory THEN it returns all the same
    run(
        PTSZ
        + """
home, one = open_device(), stream()
dead = malloc_async(56 * MB, one)
fill(dead, 1, 1024, on=one); api.cuStreamSynchronize(one)
function("sim_spin")
def short_lived():
    api.cuCtxSetCurrent(home)
    launch_ptsz("sim_spin", 1)
thread = threading.Thread(target=short_lived); thread.start(); thread.join()
opened = threading.Event()
body = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: opened.wait())
lib.cuLaunchHostFunc.argtypes = [c_void_p, c_void_p, c_void_p]
api.cuLaunchHostFunc(stream(), body, None)
api.cuMemFreeAsync(dead, one)
new = malloc_async(40 * MB, stream())
fill(new, 3, 1024, on=one)
opened.set(); sync()
expect_words(new, 1024, 3)
""",
        timeout=50,
    )


@pytest.mark.parametrize("whose", ["a living thread's stream", "a stream beyond the slots"])
def test_work_that_no_marker_can_follow(run, whose):
    # GIVEN a block in DRAM last touched where no marker can be recorded, long done WHEN compute
    # kernels name it THEN the first has it brought in, and none waits for seconds
    done = run(
        f"threaded = {whose.startswith('a living')}"
        + PTSZ
        + """
home = open_device()
block = malloc(40 * MB)
fill(block, 1, 1024); end_setup(); next_step(); sync()
other = malloc(60 * MB)
fill(other, 1, 1024); sync()
assert counters()["offloads"] > 0
api.cuMemFree_v2(other)
register("compute_thing", lambda at: None, 8); function("compute_thing")
if threaded:
    done, leave = threading.Event(), threading.Event()
    def touch():
        api.cuCtxSetCurrent(home)
        launch_ptsz("sim_fill", block, c_uint(7), 1024)
        done.set(); leave.wait()
    threading.Thread(target=touch, daemon=True).start(); done.wait()
else:
    streams = [stream() for _ in range(70)]
    for each in streams: launch("sim_spin", 1, on=each)
    fill(block, 7, 1024, on=streams[-1])
    for each in streams: api.cuStreamSynchronize(each)
for _ in range(3): launch("compute_thing", block)
sync()
expect_words(block, 1024, 7)
if threaded: leave.set()
"""
    )
    assert done.stats.counter("prefetches") > 0
    assert done.stats.counter("wait_prefetch_ns") < 1_900_000_000  # the limit of one such wait


def test_a_table_of_freed_memory(run):
    # GIVEN a table that lists 2,200 extents whose memory was freed and given to others WHEN a
    # launch names the table THEN it is not refused
    run(
        """
open_device()
table = malloc(4 * MB)
blocks = [malloc(3 * MB) for _ in range(1100)]  # two extents each
upload(table, blocks)
for block in blocks: api.cuMemFree_v2(block)
other = malloc_async(int(os.environ["TRANSIT_HBM"]) - 64 * MB)
fill(other, 1, 1024); sync()
fill(table, 5, 16); sync()
expect_words(table, 16, 5)
""",
        TRANSIT_HBM=4608 << 20,
        TRANSIT_DRAM=2700 << 20,
        TRANSIT_SIM_HBM_BYTES=9 << 30,
    )
