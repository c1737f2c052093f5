"""Checks of the host's memory and of the limits on it."""

from pathlib import Path

from transit import dram, host
from transit.doctor.base import Check, ok, warning
from transit.dram import HostMemory
from transit.units import fmt_bytes


def check_memory() -> list[Check]:
    """What may become DRAM frames, and what limits it."""
    memory = host.read_host_memory()
    return [
        check_free(memory),
        check_cgroup(memory),
        check_memlock(memory),
        check_numa(Path("/sys/devices/system/node")),
    ]


def check_free(memory: HostMemory) -> Check:
    """What --dram auto would take."""
    auto = dram.auto_bytes(memory)
    text = (
        f"{fmt_bytes(memory.total_bytes)}, {fmt_bytes(memory.available_bytes)} available;"
        f" --dram auto takes {fmt_bytes(auto)}"
    )
    if auto == 0:
        return warning("host memory", text, "free some memory, or raise the limits below")
    return ok("host memory", text)


def check_cgroup(memory: HostMemory) -> Check:
    """The container's limit, where the host has more."""
    if memory.cgroup_limit_bytes is None:
        return ok("memory limit", "no cgroup limit below the host's memory")
    text = (
        f"cgroup allows {fmt_bytes(memory.cgroup_limit_bytes)},"
        f" {fmt_bytes(memory.cgroup_usage_bytes)} used"
    )
    if memory.free_bytes < memory.available_bytes:
        return warning("memory limit", text, "to offload more, raise the job's memory limit")
    return ok("memory limit", text)


def check_memlock(memory: HostMemory) -> Check:
    """RLIMIT_MEMLOCK, where it binds --dram auto."""
    if memory.memlock_bytes is None:
        return ok("locked memory", "no limit for this process")
    text = f"RLIMIT_MEMLOCK is {fmt_bytes(memory.memlock_bytes)}"
    if memory.memlock_bytes < memory.free_bytes - dram.reserve_bytes(memory):
        return warning(
            "locked memory", text, "ulimit -l unlimited (limits.conf), or give --dram SIZE"
        )
    return ok("locked memory", text)


def check_numa(folder: Path) -> Check:
    """The NUMA nodes; frames are made on the GPU's own."""
    nodes = sorted(int(p.name[4:]) for p in folder.glob("node[0-9]*") if p.name[4:].isdecimal())
    if not nodes:
        return ok("numa", "one node")
    return ok("numa", f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}: {nodes}".replace("'", ""))
