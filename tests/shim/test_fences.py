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


PER_THREAD = """
home = open_device()
for name in ("sim_spin", "sim_copy", "sim_fill"): function(name)
def launch_ptsz(name, *arguments):
    keep, pointers = packed(*arguments)
    assert lib.cuLaunchKernel_ptsz(function(name), 1, 1, 1, 32, 1, 1, 0, None, pointers, None) == 0
def in_thread(work):
    def run():
        api.cuCtxSetCurrent(home)
        work()
    thread = threading.Thread(target=run); thread.start()
    return thread
"""


def test_freed_on_a_threads_default_stream_during_a_capture(run):
    # GIVEN a capture by another thread, which work on the legacy stream would break WHEN a block is
    # freed on the thread's own default stream, named by 0 THEN that succeeds, the capture too, and
    # the next to have the address waits for that stream
    run(
        PER_THREAD
        + """
mine, captured, to = stream(), stream(), malloc(4 * MB)
block = malloc_async(8 * MB, mine)
fill(block, 7, 2 * MB, on=mine); api.cuStreamSynchronize(mine)
began, freed = threading.Event(), threading.Event()
def capture():
    api.cuStreamBeginCapture_v2(captured, 1)
    began.set(); freed.wait()
    api.cuStreamEndCapture(captured, byref(c_void_p()))
thread = in_thread(capture); began.wait()
launch_ptsz("sim_spin", 200_000_000)
launch_ptsz("sim_copy", to, block, 4 * MB)
code = lib.cuMemFreeAsync_ptsz(block, None)
freed.set(); thread.join()
assert code == 0, code
assert malloc_async(8 * MB, mine) == block
fill(block, 9, 2 * MB, on=mine); sync()
expect_words(to, MB, 7)
expect_words(block, 2 * MB, 9)
"""
    )


def test_a_fence_holds_back_only_the_thread_that_allocates(run):
    # GIVEN a block of a thread's default stream that was freed behind a long kernel of another one
    # WHEN the thread allocates it again THEN its work waits for the kernel, and other threads'
    # default streams do not
    done = run(
        PER_THREAD
        + """
foreign, to, at, other = stream(), malloc(4 * MB), c_uint64(), malloc(4 * MB)
def allocate():
    assert lib.cuMemAllocAsync_ptsz(byref(at), 8 * MB, None) == 0
    return at.value
block = allocate()
launch_ptsz("sim_fill", block, c_uint(7), 2 * MB); sync()
launch("sim_spin", 1_000_000_000, on=foreign)
launch("sim_copy", to, block, 4 * MB, on=foreign)
api.cuMemFreeAsync(block, foreign)
assert allocate() == block
launch_ptsz("sim_fill", block, c_uint(9), 2 * MB)
def elsewhere():
    start = time.monotonic()
    launch_ptsz("sim_fill", other, c_uint(5), MB)
    assert lib.cuStreamSynchronize_ptsz(None) == 0
    print(time.monotonic() - start)
in_thread(elsewhere).join()
sync()
expect_words(to, MB, 7)
expect_words(block, 2 * MB, 9)
expect_words(other, MB, 5)
"""
    )
    assert float(done.out) < 0.5
