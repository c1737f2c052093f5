"""Collectives: buffers that only NCCL's arguments name, while extents are moved all the time."""
# ruff: noqa: E501 (programs in strings)

from pathlib import Path

import pytest

MOVING = {"TRANSIT_FORCE_MOVES": 7, "TRANSIT_SIM_LATENCY_US": 20}
VERIFYING = {"TRANSIT_VERIFY": 1}
RANK = """
open_device()
real = ctypes.CDLL(os.environ["NCCL"])
nccl = ctypes.CDLL(None)
class Id(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 128)]
name, comm = Id(), c_void_p()
assert real.ncclGetUniqueId(byref(name)) == 0
real.ncclCommInitRank.argtypes = [pointer, c_int, Id, c_int]
assert real.ncclCommInitRank(byref(comm), 1, name, 0) == 0
nccl.ncclAllReduce.argtypes = [address, address, size, c_int, c_int, pointer, pointer]
def reduce(source, target, on): assert nccl.ncclAllReduce(source, target, MB, 3, 0, comm, on) == 0
"""


@pytest.fixture
def rank(run, libraries, tmp_path):
    """Runs a program as the only rank of a job, with the simulated NCCL."""

    def start(code: str, **extra: object):
        return run(RANK + code, NCCL=libraries.nccl, TRANSIT_SIM_NCCL_DIR=tmp_path, **extra)

    return start


def unmapped_after(truth: Path, moment_ns: int) -> set[int]:
    """Addresses that were unmapped after that moment, by the simulated driver's own log."""
    (log,) = truth.glob("*.truth")
    rows = [line.split() for line in log.read_text().splitlines()]
    late = [row for row in rows if row[2] == "cuMemUnmap" and int(row[0]) > moment_ns]
    return {int(row[3].removeprefix("address="), 16) for row in late}


@pytest.mark.parametrize("order", ["one after another", "coming back"])
def test_group_of_six_streams(rank, tmp_path, order):
    # GIVEN a group with collectives on six streams WHEN it has ended THEN every byte is right, and
    # every extent it named can move again: each submission gave back its own tickets
    streams = "on" if order == "one after another" else "on[3:] + on + on[:3]"
    done = rank(
        f"""
on = [stream() for _ in range(6)]
blocks = [(malloc(4 * MB), malloc(4 * MB)) for _ in on]
end_setup()
for i in range(20):
    for k, (source, target) in enumerate(blocks): fill(source, 10 * i + k, MB); fill(target, 0, MB)
    sync()
    nccl.ncclGroupStart()
    for each in {streams}: reduce(*blocks[on.index(each)], each)
    assert nccl.ncclGroupEnd() == 0
    sync()
    for k, (source, target) in enumerate(blocks): expect_words(target, MB, 10 * i + k, (i, k))
print(time.monotonic_ns())
wait_moves(250, seconds=30)
for at in sum(blocks, ()): print(at)
""",
        TRANSIT_SIM_TRUTH=tmp_path / "truth",
        **MOVING,
    )
    moment, *blocks = map(int, done.lines)
    moved = unmapped_after(tmp_path / "truth", moment)
    assert all(at in moved for at in blocks), [hex(at) for at in blocks if at not in moved]
    assert done.stats.counter("collectives") == 20 * (6 if order == "one after another" else 12)


@pytest.mark.parametrize(
    "call",
    [
        "ncclAlltoAll(source, target, MB, 3, comm, None)",
        "ncclGather(source, target, MB, 3, 0, comm, None)",
        "ncclScatter(source, target, MB, 3, 0, comm, None)",
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_newer_collectives(rank, call, grouped):
    # GIVEN memory that is unmapped while nothing names it WHEN a collective of NCCL 2.28 is called
    # THEN its buffers are mapped
    begin, end = ("nccl.ncclGroupStart()", "nccl.ncclGroupEnd()") if grouped else ("0", "0")
    name = call.split("(")[0]
    done = rank(
        f"""
source, target = c_uint64(malloc(4 * MB)), c_uint64(malloc(4 * MB))
fill(source.value, 5, MB); fill(target.value, 0, MB)
sync()
nccl.{name}.argtypes = [address, address, size, c_int, *[c_int] * {call.count("0")}, pointer, pointer]
assert {begin} == 0 and nccl.{call} == 0 and {end} == 0
sync()
expect_words(target.value, MB, 5)
""",
        **VERIFYING,
    )
    assert done.stats.counter("collectives") == 1


def test_group_that_is_only_simulated(rank):
    # GIVEN a group that ended as a simulation WHEN the next collective is called THEN its buffers
    # are touched at once, and the simulated ones are not
    rank(
        """
source, target = malloc(4 * MB), malloc(4 * MB)
fill(source, 5, MB); fill(target, 0, MB)
sync()
assert nccl.ncclGroupStart() == 0
reduce(target, source, None)
assert nccl.ncclGroupSimulateEnd(None) == 0
reduce(source, target, None)
sync()
expect_words(source, MB, 5); expect_words(target, MB, 5)
""",
        **VERIFYING,
    )


@pytest.mark.parametrize(("residence", "pins"), [(0, 2), (1, 0)], ids=["device", "host"])
def test_scalar_of_a_reduction(rank, residence, pins):
    # GIVEN an operation that multiplies by a scalar WHEN the scalar lies on the device THEN it is
    # pinned: collectives read it as long as the operation lives
    rank(
        f"""
at, op = malloc(4 * MB), c_int()
end_setup()
nccl.ncclRedOpCreatePreMulSum(byref(op), c_uint64(at), 7, {residence}, comm)
assert counters()["pinned_extents"] == {pins}, counters()["pinned_extents"]
"""
    )


def test_function_that_this_nccl_lacks(rank):
    # GIVEN an NCCL without a function that the shim wraps WHEN it is found through the whole
    # process and called THEN it fails with NCCL's code, and the reason is told; NCCL's own handle
    # does not know it
    done = rank(
        """
assert nccl.ncclRedOpCreatePreMulSum(byref(c_int()), None, 7, 1, comm) == 2
assert not hasattr(real, "ncclRedOpCreatePreMulSum")
"""
    )
    assert "ncclRedOpCreatePreMulSum" in done.err


def test_group_while_dead_memory_has_yet_to_pass(rank):
    # GIVEN one buffer in HBM and one in DRAM, and memory freed behind a kernel of the first one's
    # stream, which could make room WHEN a group names both, each on a stream of its own THEN it
    # does not wait for what cannot pass while the group is open, and every byte is right
    done = rank(
        """
one, two = stream(), stream()
in_hbm = malloc(48 * MB); fill(in_hbm, 1, 16); sync()
first = malloc(16 * MB); fill(first, 5, 4 * MB); sync()
second = malloc(16 * MB); fill(second, 5, 4 * MB); sync()
api.cuMemFree_v2(in_hbm)
end_setup(); sync()
dead = malloc_async(40 * MB, one)
fill(dead, 1, 16, on=one); launch("sim_spin", 20_000_000, on=one); fill(dead, 1, 16, on=one)
api.cuMemFreeAsync(dead, one)
began = time.monotonic()
nccl.ncclGroupStart()
for each, on in (first, one), (second, two):
    assert nccl.ncclAllReduce(each, each, 4 * MB, 3, 0, comm, on) == 0
assert nccl.ncclGroupEnd() == 0
print(time.monotonic() - began)
sync()
expect_words(first, 4 * MB, 5); expect_words(second, 4 * MB, 5)
"""
    )
    assert float(done.out) < 5  # the wait in vain is 10 s


@pytest.mark.parametrize("stream_", ["None", "1", "2"], ids=["null", "legacy", "per-thread"])
@pytest.mark.parametrize("grouped", [False, True])
def test_default_streams_are_the_communicators(rank, grouped, stream_):
    # GIVEN two ranks, each with a device WHEN the first one's collective is called on a default
    # stream while the second device is current, where everything passes, THEN the buffer does not
    # move as long as the collective waits for the second rank
    begin, end = ("nccl.ncclGroupStart()", "nccl.ncclGroupEnd()") if grouped else ("0", "0")
    rank(
        f"""
context, other, on, theirs = open_device(), c_void_p(), {stream_}, c_uint64()
block = malloc(8 * MB)
fill(block, 3, 2 * MB, on=on); end_setup(); next_step(); sync()
api.cuDevicePrimaryCtxRetain(byref(other), 1)
api.cuCtxSetCurrent(other)
api.cuMemAlloc_v2(byref(theirs), 8 * MB)
fill(theirs.value, 4, 2 * MB); sync()
assert real.ncclGetUniqueId(byref(name)) == 0
ranks = [c_void_p(), c_void_p()]
def join(i):
    api.cuCtxSetCurrent((context, other)[i])
    assert real.ncclCommInitRank(byref(ranks[i]), 2, name, i) == 0
threads = [threading.Thread(target=join, args=[i]) for i in (0, 1)]
for each in threads: each.start()
for each in threads: each.join()
def call(i, at): assert nccl.ncclAllReduce(at, at, 2 * MB, 3, 0, ranks[i], on) == 0
api.cuCtxSetCurrent(context)
wait_moves(1); sync()
api.cuCtxSetCurrent(other)
assert {begin} == 0
call(0, block)
assert {end} == 0
for _ in range(40): assert lib.cuMemsetD8Async(theirs, 4, 16, on) == 0
sync()
before = moves()
time.sleep(0.1)
assert moves() == before, moves() - before
assert {begin} == 0
call(1, theirs)
assert {end} == 0
sync(); api.cuCtxSetCurrent(context); sync()
expect_words(block + 16, 2 * MB - 4, 7)
""",
        TRANSIT_SIM_DEVICES=2,
        **MOVING,
    )
