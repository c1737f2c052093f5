"""What all tests share: skipping what this machine cannot do, and saying so."""

import os
import platform
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from transit import host
from transit.doctor.base import State
from transit.doctor.system import check_bpf

# A script's background job ignores the first two, nohup the third; what they start inherits that.
_IGNORED_BY_STARTERS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_SKIPPED = pytest.StashKey[list[str]]()


@pytest.fixture(autouse=True, scope="session")
def _signals_are_not_ignored() -> Iterator[None]:
    """Tests must not depend on how they were started."""
    before = {number: signal.getsignal(number) for number in _IGNORED_BY_STARTERS}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            fresh = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, fresh)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _bpf_permitted() -> bool:
    capable = host.has_capability(host.CAP_BPF) or host.has_capability(host.CAP_SYS_ADMIN)
    return check_bpf(platform.release(), capable, host.answers_bpf()).state is State.OK


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
