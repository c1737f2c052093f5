"""What a job is told about its memory, budgets, and failures of the driver."""
# ruff: noqa: E501 (programs in strings)

import os
import signal
import subprocess
import sys
import time

import pytest

MIB = 1 << 20


def test_memory_figures(run):
    # GIVEN budgets of 64 and 128 MiB WHEN the job asks THEN the total is their sum, NULL outputs
    # are allowed, and what is free goes down and up by what is allocated
    run(
        """
open_device()
def figures():
    free, total = c_size_t(), c_size_t()
    api.cuMemGetInfo_v2(byref(free), byref(total))
    api.cuMemGetInfo_v2(None, None)
    only = c_size_t()
    api.cuMemGetInfo_v2(byref(only), None); assert only.value == free.value
    api.cuMemGetInfo_v2(None, byref(only)); assert only.value == total.value
    api.cuDeviceTotalMem_v2(byref(only), 0); assert only.value == total.value
    return free.value, total.value
assert figures() == (192 * MB, 192 * MB), figures()
at = malloc(10 * MB)
assert figures() == (182 * MB, 192 * MB), figures()
api.cuMemFree_v2(at)
assert figures() == (192 * MB, 192 * MB), figures()
""",
    )


def test_address_ranges_and_attributes_agree(run):
    # GIVEN a block WHEN its middle is asked about in every way THEN all answers name the block
    run(
        """
open_device()
at = malloc(5 * MB + 512)
inside = at + 3 * MB
base, bytes_ = c_uint64(), c_size_t()
api.cuMemGetAddressRange_v2(byref(base), byref(bytes_), inside)
api.cuMemGetAddressRange_v2(None, byref(bytes_), inside)
api.cuMemGetAddressRange_v2(byref(base), None, inside)
assert (base.value, bytes_.value) == (at, 5 * MB + 512)
def attribute(which):
    out = c_uint64()
    code = lib.cuPointerGetAttribute(byref(out), which, inside)
    return code, out.value
context = c_void_p(); api.cuCtxGetCurrent(byref(context))
assert attribute(1) == (0, context.value)
assert attribute(2) == (0, 2) and attribute(3) == (0, inside) and attribute(4)[0] == 1
assert attribute(8) == (0, 0) and attribute(9) == (0, 0)
assert attribute(11) == (0, at) and attribute(12) == (0, 5 * MB + 512)
which = (c_int * 3)(2, 4, 11)
values = [c_uint64(7) for _ in which]
api.cuPointerGetAttributes(3, which, (c_void_p * 3)(*[ctypes.addressof(v) for v in values]), inside)
assert [v.value & 0xFFFFFFFF for v in values][:2] == [2, 0] and values[2].value == at
assert lib.cuMemRetainAllocationHandle(byref(c_uint64()), at) == 1
""",
    )


def test_frees_of_what_is_not_allocated(run):
    # GIVEN a block WHEN it is freed twice, in its middle, or something else is freed THEN the
    # answer is INVALID_VALUE and the block's neighbour is whole
    run(
        """
open_device()
one, two = malloc(4 * MB), malloc(4 * MB)
fill(two, 7, MB); sync()
assert lib.cuMemFree_v2(one + 512) == 1
api.cuMemFree_v2(one)
assert lib.cuMemFree_v2(one) == 1
assert lib.cuMemFree_v2(one + (1 << 30)) == 1
assert lib.cuMemFree_v2(0x1234500000) == 1
api.cuMemFree_v2(0)
expect_words(two, MB, 7)
""",
    )


def test_more_than_both_budgets(run):
    # GIVEN budgets of 192 MiB together WHEN more is asked THEN it is OUT_OF_MEMORY, and the job
    # can go on with less
    done = run(
        """
open_device()
assert [malloc_code(300 * MB)[0] for _ in range(4)] == [2] * 4
held = []
while True:
    code, at = malloc_code(8 * MB)
    if code == 2: code, at = malloc_code(8 * MB)
    if code == 2: break
    assert code == 0
    held.append(at); fill(at, len(held), 2 * MB)
assert len(held) == 24, len(held)
for i, each in enumerate(held): expect_words(each, 2 * MB, i + 1)
api.cuMemFree_v2(held.pop())
again = malloc(8 * MB); fill(again, 99, 2 * MB); expect_words(again, 2 * MB, 99)
print(sim.transit_sim_peak_hbm_bytes(), sim.transit_sim_peak_dram_bytes())
""",
    )
    hbm, dram = map(int, done.out.split())
    assert hbm <= 64 * MIB and dram <= 128 * MIB
    assert done.stats.counter("hbm_peak_bytes") <= 64 * MIB
    assert done.stats.counter("refused_bytes") > 0


def test_budgets_are_kept_while_data_is_used(run):
    # GIVEN three times as much data as HBM WHEN every block is worked on in turn, by kernels that
    # need HBM THEN the simulator's own peaks are within the budgets and all bytes are right
    done = run(
        """
open_device()
blocks = [malloc(4 * MB) for _ in range(24)]
for each in blocks: fill(each, 0, MB)
end_setup()
for i in range(4):
    for each in blocks: launch("sim_increment", each, MB)
for each in blocks: expect_words(each, MB, 4)
print(sim.transit_sim_peak_hbm_bytes(), sim.transit_sim_peak_dram_bytes())
""",
        TRANSIT_HBM=32 * MIB,
    )
    hbm, dram = map(int, done.out.split())
    assert hbm <= 32 * MIB and dram <= 128 * MIB
    assert done.moves > 50


def test_ipc_of_managed_memory(run):
    # GIVEN a managed block WHEN it is exported THEN NOT_SUPPORTED, and a sentence says why
    done = run(
        "open_device(); assert lib.cuIpcGetMemHandle((c_uint64 * 8)(), malloc(4 * MB)) == 801"
    )
    assert "CUDA IPC" in done.err and "without Transit" in done.err
    assert any("CUDA IPC" in each.name for each in done.stats.of_kind("warning"))


def test_no_dram_frames(run):
    # GIVEN a driver that cannot place frames on the host WHEN a job runs THEN it runs within HBM,
    # a sentence says so, and the figures count HBM alone
    done = run(
        """
open_device()
held = []
while True:
    code, at = malloc_code(8 * MB)
    if code == 2: break
    held.append(at); fill(at, 5, 2 * MB)
assert len(held) == 8
for each in held: expect_words(each, 2 * MB, 5)
total = c_size_t(); api.cuMemGetInfo_v2(None, byref(total)); assert total.value == 64 * MB
""",
        TRANSIT_SIM_HOST_NUMA=0,
    )
    assert "HOST_NUMA" in done.err
    assert done.stats.counter("dram_budget_bytes") == 0


FAULTS = """
failures = 0
def go(code):
    global failures
    failures += code != 0
    return code == 0
open_device()
blocks = []
def grow(count):
    for _ in range(count):
        code, at = malloc_code(4 * MB)
        if code == 2: code, at = malloc_code(4 * MB)
        if code == 0: blocks.append([at, None])
def set_all(value):
    for each in blocks:
        if go(lib.cuMemsetD32Async(each[0], value, MB, None)): each[1] = value
def add_one():
    keep = []
    for each in blocks:
        one, pointers = packed(each[0], MB)
        keep.append(one)
        if each[1] is not None and go(lib.cuLaunchKernel(function("sim_increment"), 1, 1, 1, 32, 1, 1, 0, None, pointers, None)): each[1] += 1
def check():
    for each in blocks:
        if each[1] is None: continue
        out = (c_uint * MB)()
        if go(lib.cuMemcpyDtoH_v2(out, each[0], 4 * MB)):
            assert bytes(out) == struct.pack("I", each[1]) * MB, (hex(each[0]), each[1], out[0])
grow(6); set_all(10); end_setup(); add_one(); check()
grow(6); set_all(20); add_one(); check()
add_one(); check()
for at, _ in blocks[::2]: api.cuMemFree_v2(at)
del blocks[::2]
grow(6); set_all(30); add_one(); check()
print("failures", failures)
"""
CALLS = {
    "cuMemCreate": (1, 2, 5, 17, 20, 25, 30),
    "cuMemMap": (1, 2, 3, 8, 16, 34, 35, 40, 50, 60, 70),
    "cuMemSetAccess": (1, 2, 3, 8, 16, 34, 35, 40, 50, 60, 70),
    "cuMemUnmap": (1, 2, 3, 5, 8),
    "cuMemcpyAsync": (1, 2, 9),
    "cuEventRecord": (1, 2, 3, 4, 5, 9, 10, 11, 12),
    "cuEventSynchronize": (1, 2, 9),
    "cuEventCreate": (1, 2, 5, 8, 9),
    "cuStreamCreate": (1, 2),
    "cuMemAddressReserve": (1, 2, 3),
}


@pytest.mark.parametrize("function", CALLS)
def test_a_driver_call_fails_once(run, function):
    # GIVEN a job larger than HBM WHEN one call of the driver fails, whichever it is THEN no byte is
    # ever wrong, nothing hangs or crashes, and at most an error is returned
    for number in CALLS[function]:
        fail = f"{function}:{number}:{2 if function == 'cuMemCreate' else 999}"
        done = run(
            FAULTS, expect=None, TRANSIT_SIM_FAIL=fail, TRANSIT_HBM=24 * MIB, TRANSIT_DRAM=64 * MIB
        )
        assert done.returncode == 0, f"{fail}: {done.returncode}\n{done.out}{done.err}"
        assert "failures" in done.out, fail


@pytest.mark.parametrize("function", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_launch_that_was_refused_is_tried_again(run, function):
    # GIVEN a launch refused because memory could not be mapped WHEN the job tries once more THEN
    # it gets memory, or an error, but never a fault
    for number in range(1, 10):
        done = run(
            """
open_device()
blocks = [malloc(4 * MB) for _ in range(2)]
for each in blocks:
    keep, pointers = packed(each, MB)
    for attempt in range(3):
        code = lib.cuLaunchKernel(function("sim_increment"), 1, 1, 1, 32, 1, 1, 0, None, pointers, None)
        if code == 0: break
    sync()
    print(attempt, code)
    assert code == 0
""",
            expect=None,
            TRANSIT_SIM_FAIL=f"{function}:{number}:2",
            TRANSIT_DRAM=0,
        )
        assert done.returncode == 0, f"{number}: {done.returncode} {done.out} {done.err}"


@pytest.mark.parametrize(
    "function", ["cuMemMap", "cuMemSetAccess", "cuEventRecord", "cuMemcpyAsync"]
)
def test_moves_survive_failures(run, function):
    # GIVEN moves all the time WHEN every seventh call of one function fails THEN the extents stay
    # where they were and no byte is wrong
    fails = ",".join(f"{function}:{n}:999" for n in range(40, 3000, 7))
    done = run(
        """
open_device()
blocks = [malloc(4 * MB) for _ in range(4)]
for each in blocks: fill(each, 0, MB)
end_setup()
for i in range(100):
    for each in blocks: launch("sim_increment", each, MB)
    pass_markers()
    time.sleep(0.002)
for each in blocks: expect_words(each, MB, 100)
print(counters()["aborted_moves"], moves())
""",
        TRANSIT_FORCE_MOVES=9,
        TRANSIT_SIM_FAIL=fails,
    )
    assert int(done.lines[-1].split()[1]) >= 1


def test_two_processes_share_a_gpu(run, settings):
    # GIVEN two jobs at once on one simulated GPU WHEN both move memory THEN both are right
    code = """
from shim_cuda import *
open_device()
blocks = [malloc(4 * MB) for _ in range(12)]
for each in blocks: fill(each, 0, MB)
end_setup()
for i in range(5):
    for each in blocks: launch("sim_increment", each, MB)
for each in blocks: expect_words(each, MB, 5)
print(moves())
"""
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=settings(TRANSIT_HBM=24 * MIB),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outs = [job.communicate(timeout=60)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0] and all(int(out) > 0 for out in outs)


def test_a_killed_job_leaves_nothing_behind(settings, tmp_path):
    # GIVEN a job in the middle of its moves WHEN it is killed THEN nothing is left in /dev/shm, in
    # /tmp or in its own folder but the statistics, which say that it did not end in order
    code = """
from shim_cuda import *
open_device()
blocks = [malloc(4 * MB) for _ in range(6)]
for each in blocks: fill(each, 0, MB)
end_setup(); wait_moves(3)
print("moving", flush=True)
while True: launch("sim_spin", 1000)
"""
    home, shm = tmp_path / "home", set(os.listdir("/dev/shm"))
    home.mkdir()
    environment = settings(TRANSIT_FORCE_MOVES=5, TMPDIR=home, HOME=home, PYTHONDONTWRITEBYTECODE=1)
    job = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, cwd=home, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None and job.stdout.readline() == "moving\n"
    job.send_signal(signal.SIGKILL)
    job.wait()
    time.sleep(0.05)
    left = {name for name in set(os.listdir("/dev/shm")) - shm if "transit" in name}
    assert not left and not list(home.iterdir())
    run_folder = environment["TRANSIT_RUN_DIR"]
    assert os.listdir(run_folder) == [f"{job.pid}.stats"]


def test_addresses_repeat(run):
    # GIVEN one sequence of calls WHEN it runs with and without moves and pressure THEN every
    # address is the same relative to the first
    code = """
open_device()
state, live, seen = 5, [], []
for i in range(200):
    state = state * 6364136223846793005 % 2**64
    if live and (state >> 60) < 6: api.cuMemFree_v2(live.pop((state >> 40) % len(live)))
    elif len(live) < 14:
        live.append(malloc((1 + (state >> 33) % 8) << 19)); seen.append(live[-1])
        launch("sim_fill", live[-1], c_uint(i), MB // 8)
    if i == 20: end_setup()
    if i % 16 == 0: time.sleep(0.003)
print([each - seen[0] for each in seen])
"""
    runs = [
        run(code, TRANSIT_HBM=hbm * MIB, TRANSIT_SIM_SEED=seed, TRANSIT_FORCE_MOVES=moves)
        for hbm, seed, moves in ((64, 1, None), (64, 2, 3), (64, 5, 8))
    ]
    assert len({done.out for done in runs}) == 1


def test_a_librarys_memory_comes_after_all_was_promised(run):
    # GIVEN an allocation of all but one extent of both budgets, not touched yet WHEN memory that
    # passes Transit by takes half of the HBM THEN what was promised can still be used, and HBM use
    # beyond the budget is said
    done = run(
        """
open_device()
function("sim_fill")
promised = malloc(62 * MB)
capturing = stream()
api.cuStreamBeginCapture_v2(capturing, 2)
api.cuMemAlloc_v2(byref(c_uint64()), 32 * MB)  # passed: a capture is open
api.cuStreamEndCapture(capturing, byref(c_void_p()))
fill(promised, 5, 62 * MB // 4)
expect_words(promised, 62 * MB // 4, 5)
""",
        TRANSIT_DRAM=0,
    )
    assert "beyond --hbm" in done.err
    assert done.stats.counter("hbm_peak_bytes") == (62 + 32) << 20
