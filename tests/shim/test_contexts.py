"""Two devices in one process: the second one's work is followed, and keeps nothing from passing."""

TWO = {"TRANSIT_SIM_DEVICES": 2}
SECOND = """
context = open_device()
other = c_void_p()
api.cuDevicePrimaryCtxRetain(byref(other), 1)
def on_second(work):
    api.cuCtxSetCurrent(other)
    try: return work()
    finally: api.cuCtxSetCurrent(context)
"""


def test_work_of_another_device_does_not_keep_memory(run):
    # GIVEN no memory but the budget's 32 extents, and kernels on both default streams and on a
    # stream of the second device WHEN ten of the first one's are freed and twenty allocated
    # elsewhere, all in stream order, THEN frames of those ten serve again (else the launch would
    # find none)
    done = run(
        SECOND
        + """
function("sim_fill"); function("sim_spin")
first, kept = malloc_async(20 * MB), malloc(20 * MB)
fill(first, 1, MB)
fill(kept, 1, MB)
def work():
    spin = stream()
    for _ in range(5): launch("sim_spin", 1); launch("sim_spin", 1, on=spin)
on_second(work)
api.cuMemFreeAsync(first, None)
second = malloc(40 * MB)
fill(second, 2, 10 * MB)
expect_words(second, 10 * MB, 2)
print(counters()["drops"])
""",
        TRANSIT_DRAM=0,
        **TWO,
    )
    assert int(done.out) >= 8


def test_freed_while_another_context_is_current(run):
    # GIVEN a kernel of the first device that has yet to write a block WHEN the block is freed while
    # the second device is current, and its address given out again THEN that kernel has ended
    run(
        SECOND
        + """
late, soon = stream(), stream()
function("sim_fill"); function("sim_spin")
old = malloc(4 * MB)
launch("sim_spin", 100_000_000, on=late)
fill(old, 7, MB, on=late)
on_second(lambda: api.cuMemFree_v2(old))
new = malloc(4 * MB)
assert new == old
fill(new, 3, MB, on=soon)
sync()
expect_words(new, MB, 3)
""",
        **TWO,
    )


def test_synchronising_one_device_says_nothing_of_the_other(run):
    # GIVEN kernels of the second device that are still writing a block of the first WHEN the first
    # is synchronised, and the block may move THEN it does not move under them
    done = run(
        SECOND
        + """
block = malloc(4 * MB)
fill(block, 0, MB)
function("sim_increment"); function("sim_spin")
end_setup()
sync()
def enable(): api.cuCtxEnablePeerAccess(context, 0)
on_second(enable)
theirs = on_second(stream)
total = 0
for _ in range(30):
    def work():
        launch("sim_spin", 2_000_000, on=theirs)
        for _ in range(10): launch("sim_increment", block, MB, on=theirs)
    on_second(work)
    total += 10
    pass_markers()
    sync()
    time.sleep(0.002)
on_second(lambda: (pass_markers(theirs), sync()))
pass_markers()
wait_moves(4)
expect_words(block, MB, total)
""",
        TRANSIT_FORCE_MOVES=5,
        **TWO,
    )
    assert done.moves >= 4


def test_other_devices_memory_is_not_charged(run):
    # GIVEN a budget WHEN the second device's memory is allocated THEN the first's stays available
    run(
        SECOND
        + """
malloc(2 * MB)
def free_bytes():
    free, total = c_size_t(), c_size_t()
    api.cuMemGetInfo_v2(byref(free), byref(total))
    return free.value, total.value
before = free_bytes()
at = on_second(lambda: malloc(32 * MB))
assert free_bytes() == before
on_second(lambda: api.cuMemFree_v2(at))
assert free_bytes() == before
""",
        **TWO,
    )


def test_whose_memory_it_is(run):
    # GIVEN memory of the first device WHEN its context is asked for while the second's is current,
    # or none THEN it is the first's
    run(
        SECOND
        + """
at = malloc(2 * MB)
def owner():
    found = c_void_p()
    api.cuPointerGetAttribute(byref(found), 1, at)
    return found.value
assert owner() == context.value
assert on_second(owner) == context.value
api.cuCtxSetCurrent(None)
assert owner() == context.value
""",
        **TWO,
    )


def test_a_question_from_a_context_of_ones_own(run):
    # GIVEN an application's own context WHEN the free and total memory are asked there THEN the
    # driver answers, and the primary context, which comes later, is managed all the same
    run(
        """
def figures():
    free, total = c_size_t(), c_size_t()
    api.cuMemGetInfo_v2(byref(free), byref(total))
    return total.value
api.cuInit(0)
own = c_void_p()
api.cuCtxCreate_v2(byref(own), 0, 0)
assert figures() == 1 << 30
api.cuCtxDestroy_v2(own)
open_device()
at = malloc(4 * MB)
fill(at, 1, MB)
expect_words(at, MB, 1)
assert figures() == 192 * MB and counters()["managed_bytes"] == 4 * MB
"""
    )


def test_memory_of_a_context_of_ones_own(run):
    # GIVEN the same WHEN memory is allocated and used there THEN it is the driver's own
    run(
        """
api.cuInit(0)
own = c_void_p()
api.cuCtxCreate_v2(byref(own), 0, 0)
theirs = malloc(4 * MB)
fill(theirs, 2, MB)
expect_words(theirs, MB, 2)
context = open_device()
at = malloc(4 * MB)
assert counters()["managed_bytes"] == 4 * MB
api.cuCtxSetCurrent(own)
api.cuMemFree_v2(theirs)
"""
    )
