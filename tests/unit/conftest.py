"""Fixtures of the unit tests."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_outer_transit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests must not depend on being run under Transit or a launcher."""
    for name in list(os.environ):
        if name.startswith(("TRANSIT_", "SLURM_")) or name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def harmless_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library that can be preloaded and does nothing."""
    folder = tmp_path_factory.mktemp("harmless")
    source, library = folder / "harmless.c", folder / "libharmless.so"
    source.write_text("int transit_test_harmless;\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture
def shim_environment(harmless_library: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a `transit run` whose shim and driver are the harmless library."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return {
        **os.environ,
        "TRANSIT_SHIM_PATH": str(harmless_library),
        "TRANSIT_REAL_LIBCUDA": str(harmless_library),
        "TMPDIR": str(temporary),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.fixture
def transit(shim_environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `transit ARGS`; keyword arguments change the environment, None removes."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **changes: str | None) -> subprocess.Popen[str]:
        environment = {**shim_environment, **changes}
        child = subprocess.Popen(
            [sys.executable, "-m", "transit", *arguments],
            env={name: value for name, value in environment.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()
