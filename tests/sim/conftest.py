"""The simulated driver, built once, and a way to run a program against it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
sys.path.append(str(HERE.parent / "shim"))

from shim_build import cuda_include  # noqa: E402

LIBRARY = "libtransit_sim_cuda.so"

Run = Callable[..., subprocess.CompletedProcess[str]]


def build(folder: Path) -> Path:
    configure = ["cmake", "-S", str(REPOSITORY / "shim" / "sim"), "-B", str(folder), "-G", "Ninja"]
    subprocess.run(
        [*configure, f"-DTRANSIT_CUDA_INCLUDE={cuda_include()}"], check=True, capture_output=True
    )
    subprocess.run(["cmake", "--build", str(folder), "-j2"], check=True, capture_output=True)
    return folder / LIBRARY


@pytest.fixture(scope="session")
def sim_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TRANSIT_SIM_CUDA, or the library in TRANSIT_BUILD_DIR, or a fresh build."""
    if told := os.environ.get("TRANSIT_SIM_CUDA"):
        return Path(told)
    if folder := os.environ.get("TRANSIT_BUILD_DIR"):
        found = sorted(Path(folder).rglob(LIBRARY))
        return found[0] if found else build(Path(folder) / "sim")
    return build(tmp_path_factory.mktemp("sim_build"))


@pytest.fixture(scope="session")
def cuda_headers() -> str:
    """The folder of cuda.h."""
    return cuda_include()


@pytest.fixture
def run(sim_library: Path) -> Run:
    """Runs Python code that starts with ``from sim_cuda import *``
    fails the test if the code fails."""

    def start(
        code: str, expect: int | None = 0, **environment: object
    ) -> subprocess.CompletedProcess[str]:
        settings = {key: str(value) for key, value in environment.items()}
        done = subprocess.run(
            [sys.executable, "-c", "from sim_cuda import *\n" + code],
            env={**os.environ, "SIM": str(sim_library), "PYTHONPATH": str(HERE), **settings},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if expect is not None:
            assert done.returncode == expect, done.stdout + done.stderr
        return done

    return start
