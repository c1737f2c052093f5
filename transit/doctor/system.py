"""Checks of the machine: processor, kernel, Python, container, BPF."""

import os
import platform
import re
from pathlib import Path
from typing import Final

from transit import host
from transit.doctor.base import Check, ok, warning
from transit.errors import Unsupported

_BPF_KERNEL: Final = (6, 6)  # uprobe_multi links


def check_system() -> list[Check]:
    """The machine.

    Raises:
        Unsupported: not Linux on x86-64.
    """
    machine, system = platform.machine(), platform.system()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        raise Unsupported(f"Transit runs on x86-64 Linux, this is {system} on {machine}")
    return [
        ok("platform", f"Linux {platform.release()} on {machine}"),
        ok("python", f"{platform.python_version()}"),
        check_container(),
        check_bpf(platform.release(), _has_bpf_capability(), host.answers_bpf()),
    ]


def check_container(root: Path = Path("/")) -> Check:
    """Whether this is a container, whose limits then count."""
    kinds = [
        ("docker", (root / ".dockerenv").exists()),
        ("podman", (root / "run/.containerenv").exists()),
        ("kubernetes", "KUBERNETES_SERVICE_HOST" in os.environ),
        ("slurm", "SLURM_JOB_ID" in os.environ),
    ]
    found = [name for name, present in kinds if present]
    limit, usage = host.read_cgroup_memory(root)
    limits = "no memory limit" if limit is None else f"memory limit {limit}, used {usage} bytes"
    return ok("container", f"{' in '.join(found) or 'none'}, {limits}")


def _has_bpf_capability() -> bool:
    return host.has_capability(host.CAP_BPF) or host.has_capability(host.CAP_SYS_ADMIN)


def check_bpf(release: str, capable: bool, answers: bool) -> Check:
    """Whether the observer could load BPF programs. Nothing is loaded to find out."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    kernel = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if kernel < _BPF_KERNEL:
        return warning(
            "bpf",
            f"kernel {release} is older than {_BPF_KERNEL[0]}.{_BPF_KERNEL[1]}",
            "jobs run without the observer; a newer kernel allows it",
        )
    if not capable:
        return warning(
            "bpf",
            "not permitted: neither CAP_BPF nor CAP_SYS_ADMIN is effective",
            "jobs run without the observer; as root, or in a container with"
            " --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE, it can watch them",
        )
    if not answers:
        return warning(
            "bpf",
            "not permitted: the system call bpf is refused (a container's seccomp filter)",
            "jobs run without the observer; a container with CAP_BPF and a profile that allows"
            " bpf can watch them",
        )
    return ok("bpf", f"kernel {release} and the capabilities permit it (nothing was loaded)")
