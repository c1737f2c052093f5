"""The shim and the simulated driver, built once, and ways to run programs under both."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from shim_build import HERE, REPOSITORY, Libraries, build, cuda_include

from transit.stats import ProcessStats, read_folder

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program under the shim said and left behind."""

    returncode: int
    out: str
    err: str
    folder: Path

    @property
    def stats(self) -> ProcessStats:
        processes, problems = read_folder(self.folder)
        assert len(processes) == 1 and not problems, (processes, problems, self.err)
        return processes[0]

    @property
    def moves(self) -> int:
        return self.stats.counter("offloads") + self.stats.counter("prefetches")

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """What TRANSIT_BUILD_DIR holds, or a fresh build."""
    told = os.environ.get("TRANSIT_BUILD_DIR")
    if told and (found := Libraries.below(Path(told))):
        return found
    built = Libraries.below(build(tmp_path_factory.mktemp("build")))
    assert built is not None
    return built


Settings = Callable[..., dict[str, str]]
Start = Callable[..., Outcome]


@pytest.fixture
def settings(libraries: Libraries, tmp_path: Path) -> Settings:
    """The environment of a job under the shim; every call has a run folder of its own."""
    count = 0

    def make(preload: bool = True, **extra: object) -> dict[str, str]:
        nonlocal count
        count += 1
        run = tmp_path / f"run{count}"
        run.mkdir(mode=0o700)
        ours = {
            "LD_PRELOAD": str(libraries.shim),
            "TRANSIT_REAL_LIBCUDA": str(libraries.simulator),
            "TRANSIT_EXTENT_BYTES": str(2 * MIB),
            "TRANSIT_HBM": str(64 * MIB),
            "TRANSIT_DRAM": str(128 * MIB),
            "TRANSIT_RUN_DIR": str(run),
        }
        if not preload:
            ours = {"LD_LIBRARY_PATH": str(plain_driver(libraries, tmp_path))}
        told = {key: str(value) for key, value in extra.items() if value is not None}
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRANSIT_")}
        path = f"{HERE}:{REPOSITORY}:{REPOSITORY / 'tests' / 'workloads'}"
        simulator = {"SIMULATOR": str(libraries.simulator), "PYTHONPATH": path}
        return {**clean, **simulator, **ours, **told}

    return make


def plain_driver(libraries: Libraries, folder: Path) -> Path:
    """A folder where the simulated driver is libcuda.so.1, as on a machine without Transit."""
    plain = folder / "plain"
    plain.mkdir(exist_ok=True)
    for name in ("libcuda.so.1", "libcuda.so"):
        if not (plain / name).exists():
            (plain / name).symlink_to(libraries.simulator)
    return plain


def start(
    command: list[str], environment: dict[str, str], expect: int | None, timeout: float
) -> Outcome:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    folder = Path(environment.get("TRANSIT_RUN_DIR", "."))
    outcome = Outcome(done.returncode, done.stdout, done.stderr, folder)
    if expect is not None:
        assert done.returncode == expect, done.stdout + done.stderr
    return outcome


@pytest.fixture
def run(settings: Settings) -> Start:
    """Runs Python code that starts with ``from shim_cuda import *``; fails if the code fails."""

    def python(
        code: str,
        expect: int | None = 0,
        timeout: float = 60,
        preload: bool = True,
        **extra: object,
    ) -> Outcome:
        program = "from shim_cuda import *\n" + code
        return start([sys.executable, "-c", program], settings(preload, **extra), expect, timeout)

    return python


@pytest.fixture(scope="session")
def program(libraries: Libraries, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a C++ program of this folder, linked with libcuda.so.1, once."""
    folder = tmp_path_factory.mktemp("programs")
    plain = plain_driver(libraries, folder)
    made: dict[tuple[str, ...], Path] = {}

    def compile_(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in made:
            target = folder / f"{Path(name).stem}{len(made)}"
            command = ["g++", str(HERE / name), "-o", str(target), "-std=c++20", "-O1", "-g"]
            common = ["-Wall", "-Wextra", "-isystem", cuda_include(), "-pthread", "-ldl"]
            link = [str(plain / "libcuda.so.1"), f"-Wl,-rpath,{plain}"]
            done = subprocess.run(
                [*command, *common, *flags, *link], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            made[key] = target
        return made[key]

    return compile_


@pytest.fixture
def native(program: Callable[..., Path], settings: Settings) -> Start:
    """Runs a C++ program of this folder under the shim; fails if the program fails."""

    def start_native(
        name: str, *arguments: object, expect: int | None = 0, timeout: float = 60, **extra: object
    ) -> Outcome:
        command = [str(program(name)), *map(str, arguments)]
        return start(command, settings(**extra), expect, timeout)

    return start_native
