"""What the host says about memory, limits and capabilities. Changes nothing."""

import ctypes
import errno
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from transit.dram import HostMemory

CAP_IPC_LOCK: Final = 14
CAP_SYS_ADMIN: Final = 21
CAP_BPF: Final = 39
_SYS_BPF: Final = 321

# How many tasks a launcher outside of us started on this node.
_TASK_VARIABLES: Final = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")


def read_text(path: Path) -> str:
    """A small file's text, empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def read_host_memory(root: Path = Path("/")) -> HostMemory:
    """The figures `transit.dram` works on."""
    meminfo = parse_meminfo(read_text(root / "proc/meminfo"))
    limit, usage = read_cgroup_memory(root)
    total = meminfo.get("MemTotal", 0)
    return HostMemory(
        total_bytes=total,
        available_bytes=meminfo.get("MemAvailable", meminfo.get("MemFree", 0)),
        cgroup_limit_bytes=limit if limit is not None and limit < total else None,
        cgroup_usage_bytes=usage,
        memlock_bytes=read_memlock(),
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name from the text of /proc/meminfo."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            sizes[name] = int(words[0]) * 1024
    return sizes


def read_memlock() -> int | None:
    """RLIMIT_MEMLOCK in bytes; None when it does not bind this process."""
    if has_capability(CAP_IPC_LOCK):
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def has_capability(number: int, status: Path = Path("/proc/self/status")) -> bool:
    """Whether the capability is in this process's effective set."""
    for line in read_text(status).splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def answers_bpf() -> bool:
    """Whether the system call is there for us: a container's seccomp filter may refuse it."""
    libc = ctypes.CDLL(None, use_errno=True)
    nothing = ctypes.create_string_buffer(8)  # to make a map of no type, which is invalid
    failed = libc.syscall(_SYS_BPF, 0, nothing, len(nothing)) < 0
    return bool(failed) and ctypes.get_errno() == errno.EINVAL


def read_cgroup_memory(root: Path = Path("/")) -> tuple[int | None, int]:
    """The tightest memory limit above this process and the usage under it.

    Works for cgroup v2 and v1, and inside a container whose own cgroup is the root of the mount.
    Page cache that can be dropped at once is not counted as used.
    """
    tightest: tuple[int | None, int] = (None, 0)
    for folder, limit_name, usage_name in _cgroup_folders(root):
        limit_text = read_text(folder / limit_name).strip()
        if not limit_text.isdecimal() or int(limit_text) >= 2**60:  # v1 writes 2^63 for none
            continue
        limit = int(limit_text)
        usage_text = read_text(folder / usage_name).strip()
        usage = int(usage_text) if usage_text.isdecimal() else 0
        usage = max(0, usage - _droppable_bytes(folder))
        if tightest[0] is None or limit - usage < tightest[0] - tightest[1]:
            tightest = (limit, usage)
    return tightest


def _cgroup_folders(root: Path) -> list[tuple[Path, str, str]]:
    folders: list[tuple[Path, str, str]] = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        if fields[1] == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in fields[1].split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        path = top / fields[2].lstrip("/")
        above = [folder for folder in (path, *path.parents) if folder.is_relative_to(top)]
        folders += [(folder, *names) for folder in above]
    return folders


def _droppable_bytes(folder: Path) -> int:
    for line in read_text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.strip().isdecimal():
            return int(value)
    return 0


def _positive(text: str) -> int | None:
    return int(text) if text.isdecimal() and 0 < int(text) < 2**31 else None


def local_ranks(environment: Mapping[str, str] = os.environ) -> int | None:
    """Ranks on this node when we run inside one of them (torchrun), else None."""
    return _positive(environment.get("LOCAL_WORLD_SIZE", ""))


def local_tasks(environment: Mapping[str, str] = os.environ) -> int:
    """Tasks that mpirun or srun started on this node, 1 when there is no such launcher."""
    for name in _TASK_VARIABLES:
        if count := _positive(environment.get(name, "")):
            return count
    counts = _slurm_counts(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = environment.get("SLURM_NODEID", "")
    index = int(node) if node.isdecimal() else 0
    return counts[index] if index < len(counts) else max(counts, default=1)


def _slurm_counts(text: str) -> list[int]:
    """Slurm's `4(x2),3` is 4, 4, 3. Empty when it is not that."""
    counts: list[int] = []
    for part in text.split(","):
        number, _, times = part.partition("(x")
        count, repeat = _positive(number), _positive(times.rstrip(")") or "1")
        if count is None or repeat is None:
            return []
        counts += [count] * min(repeat, 100_000)
    return counts
