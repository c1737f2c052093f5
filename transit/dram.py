"""How much CPU memory a job may pin. Pure: the figures of the host come as arguments."""

from dataclasses import dataclass
from typing import Final

from transit.errors import UsageError
from transit.units import Budget, BudgetKind, fmt_bytes

GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What the host and the container around us have left. None means no limit."""

    total_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None = None
    cgroup_usage_bytes: int = 0
    memlock_bytes: int | None = None

    @property
    def whole_bytes(self) -> int:
        """All memory this container could ever have; percentages are of this."""
        return min(self.total_bytes, self.cgroup_limit_bytes or self.total_bytes)

    @property
    def free_bytes(self) -> int:
        """What can be taken now without being killed for it."""
        if self.cgroup_limit_bytes is None:
            return max(0, self.available_bytes)
        in_cgroup = self.cgroup_limit_bytes - self.cgroup_usage_bytes
        return max(0, min(self.available_bytes, in_cgroup))


@dataclass(frozen=True, slots=True)
class DramPlan:
    """The figure for the shim; `shared` when the shim has to divide it among local ranks."""

    dram_bytes: int
    shared: bool
    warning: str | None = None


def reserve_bytes(memory: HostMemory) -> int:
    """What stays free for everybody else: 4 GiB or a tenth, whichever is more."""
    return max(4 * GIB, memory.whole_bytes // 10)


def auto_bytes(memory: HostMemory) -> int:
    """What the ranks of this node may pin together when the user gives no figure."""
    size = max(0, memory.free_bytes - reserve_bytes(memory))
    return size if memory.memlock_bytes is None else min(size, memory.memlock_bytes)


def plan(budget: Budget, memory: HostMemory, ranks: int | None, tasks: int = 1) -> DramPlan:
    """Turn what the user asked for into what one rank, or one task, may hold.

    Args:
        budget: bytes are per rank; percent and auto are of the node and shared by its ranks.
        memory: the host's figures.
        ranks: ranks on this node when running inside one of them, else None.
        tasks: other `transit run` beside this one, started by srun or mpirun; each may be a
            launcher itself, so that the shim divides once more.

    Raises:
        UsageError: an explicit budget does not fit in what the host or the cgroup has.
    """
    neighbours = ranks or tasks
    if budget.kind is BudgetKind.BYTES:
        _refuse_excess(int(budget.value) * neighbours, memory)
        return DramPlan(int(budget.value), shared=False)
    warning = None
    if budget.kind is BudgetKind.AUTO:
        node = auto_bytes(memory)
        warning = _auto_warning(node, memory)
    else:
        node = budget.bytes_of(memory.whole_bytes)
        _refuse_excess(node, memory)
    return DramPlan(node // neighbours, shared=ranks is None, warning=warning)


def _refuse_excess(wanted_bytes: int, memory: HostMemory) -> None:
    if wanted_bytes <= memory.free_bytes:
        return
    in_cgroup = memory.cgroup_limit_bytes is not None
    if in_cgroup and memory.free_bytes < memory.available_bytes:
        why = f"the cgroup's memory limit of {fmt_bytes(memory.cgroup_limit_bytes)} leaves"
        more = ", or raise the limit"
    else:
        why, more = "the host has", ", or end what else holds memory"
    raise UsageError(
        f"--dram asks for {fmt_bytes(wanted_bytes)} of CPU memory on this node, "
        f"but {why} {fmt_bytes(memory.free_bytes)} free",
        f"give at most --dram {memory.free_bytes >> 20}MiB, use --dram auto{more}",
    )


def _auto_warning(node_bytes: int, memory: HostMemory) -> str | None:
    if memory.memlock_bytes is not None and node_bytes == memory.memlock_bytes:
        return (
            f"--dram auto: RLIMIT_MEMLOCK allows only {fmt_bytes(node_bytes)} of pinned memory;"
            " raise it (ulimit -l unlimited) or give --dram SIZE"
        )
    if node_bytes == 0:
        return (
            f"--dram auto: {fmt_bytes(memory.free_bytes)} of CPU memory is free, which is all"
            " kept in reserve; nothing will be offloaded unless --dram SIZE says so"
        )
    return None
