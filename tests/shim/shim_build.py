"""Building the shim, the simulated driver and the simulated NCCL for the tests."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
SHIM = "libtransit.so"
SIMULATOR = "libtransit_sim_cuda.so"


def cuda_include() -> str:
    """Where cuda.h is: told, or found as the build finds it."""
    if told := os.environ.get("TRANSIT_CUDA_INCLUDE"):
        return told
    finder = REPOSITORY / "shim" / "cmake" / "find_cuda_headers.py"
    found = subprocess.run([sys.executable, finder], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def build(folder: Path, *options: str) -> Path:
    """Everything, in `folder`."""
    configure = ["cmake", "-S", str(REPOSITORY), "-B", str(folder), "-G", "Ninja"]
    told = [f"-DPython_EXECUTABLE={sys.executable}", f"-DTRANSIT_CUDA_INCLUDE={cuda_include()}"]
    for command in (
        [*configure, *told, *options],
        ["cmake", "--build", str(folder), "-j2", "--target", "transit_shim"],
        ["cmake", "--build", str(folder), "-j2", "--target", "transit_sim_cuda"],
        ["cmake", "--build", str(folder), "-j2", "--target", "transit_sim_nccl"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@dataclass(frozen=True, slots=True)
class Libraries:
    """What was built, by absolute path."""

    shim: Path
    simulator: Path
    nccl: Path

    @classmethod
    def below(cls, folder: Path) -> "Libraries | None":
        names = (SHIM, SIMULATOR, "libtransit_sim_nccl.so")
        found = [next(iter(sorted(folder.rglob(name))), None) for name in names]
        return cls(*[path.resolve() for path in found]) if all(found) else None
