"""Attach, pairing of calls and returns, and the account of what was lost."""

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from run_stub import go_on, trace, waiting
from transit.errors import PermissionDenied, TargetGone
from transit.probes.attach import Counts, Observer
from transit.probes.records import RECORD

pytestmark = pytest.mark.bpf


def accounted(count: Counts) -> int:
    return count.emitted + count.lost + count.filtered + count.unreturned + count.launches


def test_calls_inside_calls_of_one_kind_are_one(scenarios: Path) -> None:
    # GIVEN a runtime that calls the driver, and an older name that calls the newer
    with Observer() as observer:
        # WHEN they are called THEN each call is told once, as the program made it
        traced = trace(observer, [scenarios, "nested"], {})
        assert traced.names(observer) == [
            "cudaMalloc", "cudaFree", "cudaFree", "ncclBcast", "cudaStreamSynchronize",
        ]  # fmt: skip
    assert traced.records["address"].tolist() == [2, 2, 0, 4096, 0]
    assert traced.records["result"].tolist() == [0, 0, 1, 0, 0]
    assert traced.counts["cuMemAlloc_v2"] == Counts(hits=1, filtered=1)
    assert traced.counts["ncclBroadcast"] == Counts(hits=1, filtered=1)
    # AND they lie in time as they were made
    starts, ends = traced.records["start_ns"], traced.records["end_ns"]
    assert (starts <= ends).all() and (ends[:-1] <= starts[1:]).all()


def test_calls_that_never_return_hide_nothing(scenarios: Path) -> None:
    # GIVEN calls that end by longjmp WHEN others follow THEN those are told, and the first counted
    with Observer() as observer:
        traced = trace(observer, [scenarios, "thrown"], {})
        assert traced.names(observer) == ["cudaEventQuery", "cudaMalloc", "cudaFree"]
    assert traced.records["result"].tolist() == [600, 0, 0]
    assert traced.counts["cudaEventQuery"] == Counts(hits=11, emitted=1, unreturned=10)
    assert not traced.records["depth"].any()


def test_threads_are_told_apart(scenarios: Path) -> None:
    # GIVEN eight threads that allocate 500 times each WHEN they run at once THEN each call is
    # there, with its own thread's address
    with Observer() as observer:
        traced = trace(observer, [scenarios, "threads"], {})
        by_name = Counter(traced.names(observer))
    assert by_name == {"cudaMalloc": 4000, "cudaFree": 4000}
    assert Counter(traced.records["tid"].tolist()).most_common()[-1][1] == 1000
    # A free's address is that of the allocation before it on the same thread.
    for tid in set(traced.records["tid"].tolist()):
        mine = traced.records[traced.records["tid"] == tid]
        assert mine["address"].tolist() == [2 * i for i in range(1, 501) for _ in range(2)]


def test_children_are_not_their_parents(scenarios: Path) -> None:
    # GIVEN a process that is attached WHEN it forks THEN only its own calls are told
    with Observer() as observer:
        traced = trace(observer, [scenarios, "forked"], {})
    assert traced.records["bytes"][::2].tolist() == [1, 2]
    assert set(traced.records["pid"].tolist()) == {traced.probed[0].pid}


@pytest.mark.parametrize(("calls", "ring_bytes"), [(100_000, 8 << 20), (10_000, 1 << 16)])
def test_what_does_not_fit_is_counted(scenarios: Path, calls: int, ring_bytes: int) -> None:
    # GIVEN more records than the ring holds, and nobody who reads WHEN they are made THEN the first
    # are there and the rest are counted, none forgotten
    with Observer(ring_bytes) as observer:
        traced = trace(observer, [scenarios, "many", str(calls)], {})
    fits = ring_bytes // (RECORD.itemsize + 8)  # each has a header
    kept = traced.records.size
    total = sum(traced.counts.values(), Counts())
    assert fits - 2 <= kept <= fits
    assert kept == total.emitted
    assert total.hits == accounted(total) == 3 * calls
    assert total.lost == 2 * calls - kept


def test_a_ring_that_is_read_goes_round(scenarios: Path) -> None:
    # GIVEN a small ring WHEN it is read while calls are made THEN nothing is lost, in order
    with Observer(1 << 20) as observer, waiting([scenarios, "many", "20000"], {}) as program:
        observer.attach(program.pid)
        assert program.stdin is not None
        program.stdin.write("\n")
        sizes: list[int] = []
        deadline = time.monotonic() + 60
        while len(sizes) < 40_000 and time.monotonic() < deadline:
            records = observer.drain()
            sizes += records["address"].tolist()
    assert sizes == [2 * i for i in range(1, 20_001) for _ in range(2)]


def test_detached_is_untouched(scenarios: Path) -> None:
    # GIVEN an observer that is closed before the calls WHEN they are made THEN they work
    with waiting([scenarios, "many", "10"], {}) as program:
        with Observer() as observer:
            assert len(observer.attach(program.pid)) == 3
            assert observer.attach(program.pid) == []
            started = time.monotonic()
        detached_s = time.monotonic() - started
        go_on(program)
    assert detached_s < 5  # perf events would take a minute here


def test_processes_that_cannot_be_attached(scenarios: Path) -> None:
    # GIVEN a process that is gone WHEN it is attached THEN that is said
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with Observer() as observer, pytest.raises(TargetGone, match=f"process {ended.pid} "):
        observer.attach(ended.pid)


def test_a_user_without_permission_is_told(scenarios: Path) -> None:
    # GIVEN a process without capabilities WHEN it wants to observe THEN it is told what it lacks
    if os.geteuid() != 0:
        pytest.skip("dropping privileges needs root")
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            with pytest.raises(PermissionDenied, match="may not load BPF programs"):
                Observer()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
