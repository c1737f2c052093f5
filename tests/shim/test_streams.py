"""Threads, streams of every kind and forks, while extents are moved all the time."""
# ruff: noqa: E501 (programs in strings)

import pytest

MOVING = {"TRANSIT_FORCE_MOVES": 11, "TRANSIT_SIM_LATENCY_US": 20}


def test_many_threads_launch(run):
    # GIVEN persistent blocks WHEN four threads with a stream each work on them while they move
    # THEN all counts are right
    done = run(
        """
context = open_device()
blocks = [malloc(4 * MB) for _ in range(4)]
for each in blocks: fill(each, 0, MB)
function("sim_increment")
end_setup()
pass_markers()
sync()
def work(block):
    api.cuCtxSetCurrent(context)
    on = stream()
    for i in range(120):
        launch("sim_increment", block, MB, on=on)
        if i % 8 == 0: api.cuStreamSynchronize(on); pass_markers(on); time.sleep(0.004)
    api.cuStreamSynchronize(on)
threads = [threading.Thread(target=work, args=[b]) for b in blocks]
for t in threads: t.start()
for t in threads: t.join()
for b in blocks: expect_words(b, MB, 120)
print(moves())
""",
        **MOVING,
    )
    assert int(done.out) >= 0  # how many depends on the machine; stress.cpp asserts it


@pytest.mark.parametrize("form", ["ptsz", "handle"])
def test_per_thread_default_streams(run, form):
    # GIVEN threads that use their default stream, by the _ptsz functions or by its handle WHEN
    # their blocks move THEN all counts are right
    run(
        f"form = {form!r}"
        + """
context = open_device()
blocks = [malloc(4 * MB) for _ in range(3)]
for each in blocks: fill(each, 0, MB)
sync()
handle = function("sim_increment")
end_setup()
pass_markers()
call = lib.cuLaunchKernel_ptsz if form == "ptsz" else lib.cuLaunchKernel
call.argtypes = ARGUMENTS["cuLaunchKernel"]
def work(block):
    api.cuCtxSetCurrent(context)
    on = None if form == "ptsz" else 2
    keep, pointers = packed(block, MB)
    nothing, none = packed(1)
    for i in range(100):
        assert call(handle, 1, 1, 1, 32, 1, 1, 0, on, pointers, None) == 0
        if i % 8 == 0:
            assert (lib.cuStreamSynchronize_ptsz(None) if form == "ptsz" else lib.cuStreamSynchronize(2)) == 0
            for _ in range(17): assert call(function("sim_spin"), 1, 1, 1, 32, 1, 1, 0, on, none, None) == 0
            time.sleep(0.004)
threads = [threading.Thread(target=work, args=[b]) for b in blocks]
for t in threads: t.start()
for t in threads: t.join()
sync()
for b in blocks: expect_words(b, MB, 100)
""",
        **MOVING,
    )


@pytest.mark.parametrize(
    "form",
    [
        "ptsz",
        "handle",
    ],
)
def test_thread_ends_with_work_queued(run, form):
    # GIVEN a thread that ends while its default stream still works on a block WHEN another thread
    # takes over its place in memory, and its own stream is quick THEN the block has not moved
    # under the first one's kernels
    run(
        f"form = {form!r}"
        + """
context = open_device()
block = malloc(4 * MB)
fill(block, 0, MB)
function("sim_increment"); function("sim_spin")
end_setup()
sync()
pass_markers()
call = lib.cuLaunchKernel_ptsz if form == "ptsz" else lib.cuLaunchKernel
call.argtypes = ARGUMENTS["cuLaunchKernel"]
on = None if form == "ptsz" else 2
def many(name, count, *arguments):
    api.cuCtxSetCurrent(context)
    keep, pointers = packed(*arguments)
    for i in range(count):
        assert call(function(name), 1, 1, 1, 32, 1, 1, 0, on, pointers, None) == 0
total = 0
for _ in range(8):
    first = threading.Thread(target=many, args=["sim_increment", 300, block, MB])
    first.start(); first.join()
    total += 300
    for _ in range(4):
        second = threading.Thread(target=many, args=["sim_spin", 40, 1])
        second.start(); second.join()
        time.sleep(0.005)
    sync()  # the next round's stream knows nothing of this one's
expect_words(block, MB, total)
""",
        TRANSIT_FORCE_MOVES=11,
        TRANSIT_SIM_LATENCY_US=1,
    )


def test_memory_of_a_thread_that_ended_moves_again(run):
    # GIVEN a block last used on the default stream of a thread that ended WHEN the context is
    # synchronised THEN the block may move again
    run(
        """
context = open_device()
block = malloc(4 * MB)
end_setup()
sync()
def work():
    api.cuCtxSetCurrent(context)
    launch("sim_fill", block, c_uint(1), MB, on=2)
thread = threading.Thread(target=work); thread.start(); thread.join()
sync()
wait_moves(2, seconds=3)
""",
        **MOVING,
    )


def test_legacy_stream(run):
    # GIVEN work on the legacy stream between work on a blocking one WHEN extents move THEN the
    # order holds
    done = run(
        """
open_device()
block = malloc(4 * MB)
end_setup()
on = stream(0)
for i in range(200):
    launch("sim_fill", block, c_uint(1000 + i), MB)
    launch("sim_increment", block, MB, on=on)
    launch("sim_increment", block, MB, on=1)
    if i % 10 == 0:
        expect_words(block, MB, 1002 + i)
        pass_markers(on); pass_markers(); wait_moves(1)
print(moves())
""",
        **MOVING,
    )
    assert int(done.out) >= 20


def test_streams_that_end_with_work_in_flight(run):
    # GIVEN 300 streams, each destroyed while its kernel runs WHEN blocks move THEN all is right,
    # and the blocks can still move at the end
    run(
        """
open_device()
block = malloc(4 * MB)
fill(block, 0, MB)
sync()
end_setup()
for i in range(300):
    on = stream()
    launch("sim_increment", block, MB, on=on)
    api.cuStreamDestroy_v2(on)
    if i % 2: sync()
    else: time.sleep(0.002); sync()
expect_words(block, MB, 300)
wait_moves(2)
""",
        **MOVING,
    )


def test_more_streams_than_slots(run):
    # GIVEN 100 streams alive at once WHEN each works on a block THEN the bytes are right
    run(
        """
open_device()
blocks = [malloc(4 * MB) for _ in range(4)]
for each in blocks: fill(each, 0, MB)
sync()
end_setup()
streams = [stream() for _ in range(100)]
for round in range(3):
    for i, on in enumerate(streams):
        launch("sim_increment", blocks[i % 4], MB, on=on)
        api.cuStreamSynchronize(on)
for each in blocks: expect_words(each, MB, 75)
""",
        **MOVING,
    )


def test_memory_is_reused_with_more_streams_than_slots(run):
    # GIVEN a job that used 100 streams at once, all idle WHEN it frees memory and allocates as
    # much again under a tight budget THEN it does not wait in vain for the streams
    done = run(
        """
open_device()
streams = [stream() for _ in range(100)]
for on in streams: launch("sim_spin", 1, on=on)
sync()
start = time.monotonic()
for i in range(3):
    blocks = [malloc(4 * MB) for _ in range(4)]
    for each in blocks: fill(each, i, MB)
    sync()
    for each in blocks: api.cuMemFree_v2(each)
print(time.monotonic() - start)
""",
        TRANSIT_HBM=16 << 20,
        TRANSIT_DRAM=64 << 20,
    )
    assert float(done.out) < 3


FORKING = """
context = open_device()
block = malloc(4 * MB)
fill(block, 0, MB)
sync()
end_setup()
"""


def test_fork_with_a_live_context(run):
    # GIVEN a job with memory that moves WHEN it forks THEN the child gets the driver's own answer
    # (not initialised), exits cleanly, and the parent goes on
    done = run(
        FORKING
        + """
for i in range(20):
    child = os.fork()
    if child == 0:
        answers = [malloc_code(4 * MB)[0], lib.cuMemGetInfo_v2(byref(c_size_t()), byref(c_size_t())),
                   lib.cuMemFree_v2(block), lib.cuInit(0), lib.cuCtxSynchronize()]
        if answers[0] != 3 or answers[1] != 3 or answers[4] != 3: print(answers, flush=True)
        sys.exit(0 if i % 2 else os._exit(0))
    launch("sim_increment", block, MB)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
expect_words(block, MB, 20)
wait_moves(2)
""",
        **MOVING,
    )
    assert done.out == ""
    assert done.stats.ended


def test_workers_of_a_data_loader(run):
    # GIVEN a job in the middle of its steps WHEN four forked workers make data without CUDA and
    # send it back THEN it trains on and nobody hangs
    run(
        "import multiprocessing as mp\n"
        + FORKING
        + """
def worker(queue, index):
    for i in range(20): queue.put(bytes([index]) * 1000)
fork = mp.get_context("fork")
for epoch in range(2):
    queue = fork.Queue()
    workers = [fork.Process(target=worker, args=[queue, i]) for i in range(4)]
    for w in workers: w.start()
    for i in range(80):
        assert len(queue.get(timeout=20)) == 1000
        launch("sim_increment", block, MB)
    for w in workers: w.join(20); assert w.exitcode == 0
expect_words(block, MB, 160)
""",
        **MOVING,
    )
