"""What all tests share: skipping what this machine cannot do, and saying so."""

import os
import platform
from pathlib import Path

import pytest

from transit import host
from transit.doctor.base import State
from transit.doctor.system import check_bpf

_SKIPPED = pytest.StashKey[list[str]]()


def _bpf_permitted() -> bool:
    capable = host.has_capability(host.CAP_BPF) or host.has_capability(host.CAP_SYS_ADMIN)
    return check_bpf(platform.release(), capable).state is State.OK


def _missing(marker: str) -> str | None:
    """Why tests with this marker cannot run here."""
    if marker == "bpf" and not _bpf_permitted():
        return "BPF is not permitted here"
    if marker == "root" and os.geteuid() != 0:
        return "needs root"
    if marker == "gpu" and not Path("/dev/nvidiactl").exists():
        return "needs an NVIDIA GPU"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_SKIPPED] = []
    for item in items:
        for marker in ("bpf", "root", "gpu"):
            reason = _missing(marker) if item.get_closest_marker(marker) else None
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
                config.stash[_SKIPPED].append(f"{marker}: {item.nodeid}: {reason}")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    skipped = config.stash.get(_SKIPPED, [])
    if skipped:
        terminalreporter.section(f"{len(skipped)} tests that this machine cannot run")
        for line in skipped:
            terminalreporter.write_line(line)
