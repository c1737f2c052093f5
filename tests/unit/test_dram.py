"""How much CPU memory a job may pin."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.dram import GIB, HostMemory, auto_bytes, plan, reserve_bytes
from transit.errors import TransitError
from transit.units import AUTO, Budget, BudgetKind

SIZES = st.integers(0, 4096 * GIB)


@st.composite
def memories(draw: st.DrawFn) -> HostMemory:
    total = draw(SIZES)
    return HostMemory(
        total_bytes=total,
        available_bytes=draw(st.integers(0, total)),
        cgroup_limit_bytes=draw(st.none() | st.integers(1, max(1, total))),
        cgroup_usage_bytes=draw(SIZES),
        memlock_bytes=draw(st.none() | SIZES),
    )


@given(memories())
def test_auto_respects_every_limit_and_keeps_the_reserve(memory: HostMemory) -> None:
    # WHEN the figure is computed
    size = auto_bytes(memory)
    # THEN no limit is passed
    assert size >= 0
    assert size == 0 or size + reserve_bytes(memory) <= memory.available_bytes
    if memory.cgroup_limit_bytes is not None and size:
        left = memory.cgroup_limit_bytes - memory.cgroup_usage_bytes
        assert size + reserve_bytes(memory) <= left
    if memory.memlock_bytes is not None:
        assert size <= memory.memlock_bytes


@given(memories(), st.integers(0, 64 * GIB))
def test_more_memory_never_gives_less(memory: HostMemory, more: int) -> None:
    larger = dataclasses.replace(memory, available_bytes=memory.available_bytes + more)
    assert auto_bytes(larger) >= auto_bytes(memory)


@given(memories(), st.integers(1, 16), st.integers(1, 16))
def test_shares_of_all_ranks_fit_together(memory: HostMemory, ranks: int, tasks: int) -> None:
    # GIVEN ranks that each run `transit run`, or tasks that are launchers
    inside, outside = plan(AUTO, memory, ranks), plan(AUTO, memory, None, tasks)
    # THEN the node's figure is divided exactly once here, and the shim is told what is left to do
    assert inside.dram_bytes * ranks <= auto_bytes(memory)
    assert not inside.shared
    assert outside.dram_bytes * tasks <= auto_bytes(memory)
    assert outside.shared


@given(memories(), SIZES.filter(bool), st.integers(1, 16))
def test_explicit_figure_is_kept_or_refused(memory: HostMemory, size: int, ranks: int) -> None:
    budget = Budget(BudgetKind.BYTES, size)
    if size * ranks <= memory.free_bytes:
        assert plan(budget, memory, ranks).dram_bytes == size
    else:
        with pytest.raises(TransitError):
            plan(budget, memory, ranks)


def test_reserve_is_a_tenth_of_large_machines() -> None:
    assert reserve_bytes(HostMemory(16 * GIB, 0)) == 4 * GIB
    assert reserve_bytes(HostMemory(640 * GIB, 0)) == 64 * GIB
    assert reserve_bytes(HostMemory(640 * GIB, 0, cgroup_limit_bytes=80 * GIB)) == 8 * GIB


def test_refusal_says_what_why_and_what_to_do() -> None:
    # GIVEN a container of 8 GiB on a large host
    memory = HostMemory(512 * GIB, 500 * GIB, cgroup_limit_bytes=8 * GIB, cgroup_usage_bytes=GIB)
    # WHEN more is asked for than it has left
    with pytest.raises(TransitError) as caught:
        plan(Budget(BudgetKind.BYTES, 64 * GIB), memory, None)
    # THEN the sentence names the cgroup, both figures and a way out
    assert "64.0 GiB" in str(caught.value)
    assert "cgroup's memory limit of 8.0 GiB leaves 7.0 GiB" in str(caught.value)
    assert "--dram auto" in (caught.value.hint or "")


def test_percent_is_of_what_the_container_may_have() -> None:
    memory = HostMemory(512 * GIB, 500 * GIB, cgroup_limit_bytes=100 * GIB)
    assert plan(Budget(BudgetKind.PERCENT, 50), memory, None).dram_bytes == 50 * GIB
    with pytest.raises(TransitError, match="cgroup"):
        plan(
            Budget(BudgetKind.PERCENT, 50),
            dataclasses.replace(memory, cgroup_usage_bytes=60 * GIB),
            None,
        )


def test_small_memlock_is_named() -> None:
    memory = HostMemory(64 * GIB, 60 * GIB, memlock_bytes=8 * 2**20)
    made = plan(AUTO, memory, None)
    assert made.dram_bytes == 8 * 2**20
    assert "RLIMIT_MEMLOCK" in (made.warning or "")
