"""Setting the managed device up: what the driver refuses then costs Transit, not the job."""

import pytest

TRAINS = """
open_device()
blocks = [malloc(8 * MB) for _ in range(4)]
for i, block in enumerate(blocks): fill(block, i, 2 * MB)
sync()
for i, block in enumerate(blocks): expect_words(block, 2 * MB, i)
"""


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("cuMemGetInfo:1", "does not say how much memory is free\n"),
        ("cuMemAddressReserve:1", "running without Transit"),
        ("cuMemAddressReserve:2", "running without Transit"),
        ("cuMemAddressReserve:3", "running within the HBM budget alone"),
        ("cuDevicePrimaryCtxRetain:2", ""),
    ],
)
def test_setting_up_fails_once(run, what, says):
    # GIVEN a driver call that fails when the device is set up WHEN the job allocates and computes
    # THEN it gets its memory and its bytes, and a sentence tells what it runs without
    done = run(TRAINS, TRANSIT_SIM_FAIL=f"{what}:304")
    assert says in done.err


def test_quiet_still_tells_that_a_job_runs_without_transit(run):
    # GIVEN a driver that refuses the arena's addresses WHEN the job runs quietly THEN it gets its
    # memory, and that it runs without Transit is told
    done = run(TRAINS, TRANSIT_SIM_FAIL="cuMemAddressReserve:1:304", TRANSIT_LOG="quiet")
    assert done.err.count("running without Transit") == 1
    assert done.err.count("\n") == 1


def test_asking_a_device_for_its_memory_does_not_choose_it(run):
    # GIVEN a job that asks each device what is free WHEN it then allocates on one THEN that one is
    # the managed device, and what it was told holds
    run(
        """
context = open_device()
free, total = c_size_t(), c_size_t()
other = c_void_p()
api.cuDevicePrimaryCtxRetain(byref(other), 1)
for one in (other, context):
    api.cuCtxSetCurrent(one)
    api.cuMemGetInfo_v2(byref(free), byref(total))
    assert (free.value, total.value) == (192 * MB, 192 * MB), (free.value, total.value)
malloc(4 * MB)
assert counters()["device"] == 0 and counters()["managed_bytes"] == 4 * MB
api.cuMemGetInfo_v2(byref(free), byref(total))
assert (free.value, total.value) == (188 * MB, 192 * MB), (free.value, total.value)
api.cuCtxSetCurrent(other)
api.cuMemGetInfo_v2(byref(free), byref(total))
assert total.value == 1 << 30, total.value
""",
        TRANSIT_SIM_DEVICES=2,
    )


def test_attributes_of_a_block_that_no_launch_has_named(run):
    # GIVEN a new block, mapped nowhere yet WHEN its attributes are asked THEN they are those of
    # cuMemAlloc memory, and the same once it is mapped
    run(
        """
open_device()
block = malloc(4 * MB)
def attributes():
    answers = []
    # sync memops, size of range and mapping, handle types, access flags: as of an H200's cuMemAlloc
    for which in (6, 12, 18, 14, 16):
        out = c_uint64(0)
        api.cuPointerGetAttribute(byref(out), which, block)
        answers.append(out.value)
    return answers
before = attributes()
assert before == [0, 4 * MB, 4 * MB, 0, 3], before
fill(block, 1, MB); sync()
assert attributes() == before
""",
    )


@pytest.mark.parametrize(
    ("budgets", "says"),
    [
        ({"TRANSIT_HBM": 1 << 20}, "HBM budget is less than one extent"),
        ({"TRANSIT_DRAM": 1 << 20}, "DRAM budget is less than one extent"),
    ],
)
def test_budgets_that_hold_no_extent(run, budgets, says):
    # GIVEN a budget below the least that can move WHEN the job runs THEN it gets its memory, and a
    # sentence tells what it runs without
    done = run(TRAINS, **budgets)
    assert says in done.err


@pytest.mark.parametrize(("dram_mib", "advice"), [(30, "try more --dram"), (200, "try --hbm")])
def test_advice_names_the_budget_that_is_short(run, dram_mib, advice):
    # GIVEN blocks that do not fit in HBM together WHEN CPU memory has little room either THEN more
    # of it is advised, else more GPU memory
    done = run(
        """
open_device()
blocks = [malloc(30 * MB) for _ in range(3)]
for i, block in enumerate(blocks): fill(block, i, 1)
sync()
""",
        TRANSIT_HBM=64 << 20,
        TRANSIT_DRAM=dram_mib << 20,
    )
    assert advice in done.err


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ("quiet", []),
        ("INFO", ["HBM budget is below"]),
        (
            "loud",
            ["TRANSIT_LOG=loud is none of quiet, warn, info and debug", "HBM budget is below"],
        ),
    ],
)
def test_an_unknown_log_level_is_told_and_hides_no_warning(run, level, told):
    # GIVEN a job with too small a budget WHEN its level is known, in capitals or none at all THEN
    # only the quiet one hears nothing
    done = run(
        """
open_device()
blocks = [malloc(30 * MB) for _ in range(3)]
for i, block in enumerate(blocks): fill(block, i, 1)
sync()
""",
        TRANSIT_HBM=64 << 20,
        TRANSIT_DRAM=200 << 20,
        TRANSIT_LOG=level,
    )
    assert all(each in done.err for each in told)
    assert bool(done.err) == bool(told)
    # AND the time in the shim is known however few launches there were
    assert 0 < done.stats.counter("hook_samples") < 64
    assert 0 < done.stats.counter("hook_p50_ns") <= done.stats.counter("hook_p99_ns")


def test_requests_that_are_refused_once_are_counted_apart(run):
    # GIVEN memory whose lifetimes are hidden WHEN a request does not fit in HBM though DRAM has
    # room THEN it is refused once, granted when it is asked again, and no refusal for want of room
    done = run(
        """
open_device()
kept = [malloc(30 * MB) for _ in range(2)]
code, _ = malloc_code(30 * MB)
assert code == 2
kept.append(malloc(30 * MB))
""",
        TRANSIT_HBM=64 << 20,
        TRANSIT_DRAM=200 << 20,
    )
    assert done.stats.counter("refused_once_bytes") == 30 << 20
    assert done.stats.counter("refused_bytes") == 0
