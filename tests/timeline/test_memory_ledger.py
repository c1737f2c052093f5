"""The memory ledger."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded import ROWS, call, records
from transit.timeline.memory import NEVER, MemoryLedger, Space, memory_ledger

ALLOCATE = {Space.DEVICE: "cudaMalloc", Space.STREAM_ORDERED: "cudaMallocAsync",
            Space.MANAGED: "cudaMallocManaged", Space.HOST: "cudaHostAlloc"}  # fmt: skip


def ledger(*calls: dict[str, Any]) -> MemoryLedger:
    return memory_ledger(records(calls), ROWS)


def test_an_allocation_lives_from_its_return_to_its_free() -> None:
    # GIVEN an allocation and its free WHEN they are paired THEN it lived in between
    found = ledger(
        call("cudaMalloc", 10, 20, address=4096, bytes=100), call("cudaFree", 50, 60, address=4096)
    )
    assert found.lifetimes[["born_ns", "died_ns", "bytes"]].tolist() == [(20, 50, 100)]
    assert found.live_bytes() == 0
    assert found.peak() == (100, 20)


def test_an_address_given_out_before_its_free_returned() -> None:
    # GIVEN an address that another thread gets while its free is not back yet WHEN they are paired
    # THEN the old one died before the new one was born, and the new one lives
    found = ledger(
        call("cudaMalloc", 0, 1, address=8, bytes=1),
        call("cudaFree", 10, 30, address=8),
        call("cudaMalloc", 15, 20, address=8, bytes=2, tid=2),
    )
    assert found.lifetimes["died_ns"].tolist() == [10, NEVER]
    assert (found.live_bytes(), found.older, found.unseen) == (2, 0, 0)


def test_what_fits_not_together_is_counted() -> None:
    # GIVEN a free of older memory, one that failed, one of nothing, and an address that
    # is given out twice WHEN they are paired THEN the odd ones are counted, and nothing else
    found = ledger(
        call("cudaFree", 1, address=64),
        call("cudaMalloc", 2, address=0, bytes=9, result=2),
        call("cudaFree", 3, address=0),
        call("cudaMalloc", 4, address=128, bytes=10),
        call("cudaMalloc", 6, address=128, bytes=20),
    )
    assert (found.older, found.unseen) == (1, 1)
    assert found.lifetimes["died_ns"].tolist() == [6, NEVER]
    assert found.live_bytes() == 20


def test_spaces_processes_and_pitches_are_told_apart() -> None:
    found = ledger(
        call("cudaMalloc", 1, address=64, bytes=1),
        call("cudaMalloc", 2, address=64, bytes=2, pid=2),
        call("cudaHostAlloc", 3, address=64, bytes=4),
        call("cudaMallocPitch", 4, address=128, bytes=100, source=512, peer=10),
        call("cudaFreeHost", 5, address=64),
        call("cudaMallocAsync", 6, address=256, bytes=8),
        call("cudaFree", 7, address=256),
    )
    assert found.live_bytes(Space.HOST) == 0
    assert found.live_bytes(Space.DEVICE) == 1 + 2 + 5120
    assert found.peak(Space.STREAM_ORDERED) == (8, 6)
    assert found.live_bytes(Space.STREAM_ORDERED) == 0


@pytest.mark.parametrize("release_first", [True, False])
def test_physical_memory_lives_as_long_as_its_handle_or_a_mapping(release_first: bool) -> None:
    # GIVEN memory that is mapped WHEN its handle is released and it is unmapped, in any order THEN
    # it dies with the last
    ends = [
        call("cuMemRelease", 0, object=7),
        call("cuMemUnmap", 0, address=1 << 21, bytes=1 << 22),
    ]
    for time_ns, each in zip((30, 40), ends if release_first else ends[::-1], strict=True):
        each["start_ns"] = each["end_ns"] = time_ns
    found = ledger(
        call("cuMemCreate", 10, object=7, bytes=2 << 20),
        call("cuMemMap", 20, address=1 << 21, bytes=2 << 20, object=7),
        *ends,
    )
    assert found.lifetimes[["space", "born_ns", "died_ns"]].tolist() == [(5, 10, 40)]


@dataclass
class Model:
    """An allocator, call by call."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    live: dict[tuple[int, int], int] = field(default_factory=dict)
    now_ns: int = 0
    peak: int = 0

    def allocate(self, space: Space, address: int, size: int) -> None:
        family = Space.DEVICE if space < Space.HOST else space
        if (family, address) in self.live:
            return
        self.now_ns += 2
        self.calls.append(
            call(ALLOCATE[space], self.now_ns - 1, self.now_ns, address=address, bytes=size)
        )
        self.live[family, address] = size
        self.peak = max(self.peak, sum(self.live.values()))

    def free(self, index: int) -> None:
        if not self.live:
            return
        family, address = list(self.live)[index % len(self.live)]
        self.now_ns += 2
        name = "cudaFreeHost" if family == Space.HOST else "cudaFree"
        self.calls.append(call(name, self.now_ns - 1, self.now_ns, address=address))
        del self.live[family, address]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(list(ALLOCATE)), st.integers(1, 6).map(lambda n: n * 256),
            st.integers(1, 2**40),
        ),
        st.integers(0, 9),
    ),
    max_size=60,
)  # fmt: skip


@given(ACTIONS, st.randoms(use_true_random=False))
def test_the_ledger_is_the_allocators(actions: list[Any], shuffle: Any) -> None:
    # GIVEN what an allocator did, in the order in which the records happen to come
    model = Model()
    for action in actions:
        if isinstance(action, int):
            model.free(action)
        else:
            model.allocate(*action)
    calls = list(model.calls)
    shuffle.shuffle(calls)
    # WHEN the ledger is made THEN live bytes and peak are the allocator's, and nothing is odd
    found = memory_ledger(records(calls), ROWS)
    assert found.live_bytes() == sum(model.live.values())
    assert found.peak()[0] == model.peak
    assert (found.older, found.unseen) == (0, 0)
    assert np.all(found.lifetimes["born_ns"] < found.lifetimes["died_ns"])
