"""What the launch hook costs the CPU, by kind of launch, on the simulated driver.

    python tests/bench/hook_bench.py [--launches N] [--libraries FOLDER]

Hook times are the shim's own samples: the driver's call is not part of them. The simulated driver
says nothing of a GPU machine's caches and clock: compare runs on one machine with each other.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "shim")]

from shim_build import Libraries, cuda_include  # noqa: E402

from transit.stats import read_folder  # noqa: E402

KINDS = ("gemm", "copy", "point", "adam")


def build(libraries: Libraries, folder: Path) -> Path:
    program = folder / "hook_bench"
    (folder / "libcuda.so.1").symlink_to(libraries.simulator)
    source = [str(HERE / "hook_bench.cpp"), "-isystem", cuda_include(), "-ldl"]
    link = [str(folder / "libcuda.so.1"), f"-Wl,-rpath,{folder}", "-o", str(program)]
    subprocess.run(["g++", "-std=c++20", "-O2", *source, *link], check=True)
    return program


def measure(program: Path, libraries: Libraries, kind: str, launches: int) -> tuple[int, int, int]:
    """Samples, median and 99th percentile in nanoseconds."""
    with tempfile.TemporaryDirectory() as run:
        environment = {
            **os.environ,
            "LD_PRELOAD": str(libraries.shim),
            "TRANSIT_REAL_LIBCUDA": str(libraries.simulator),
            "SIMULATOR": str(libraries.simulator),
            "TRANSIT_HBM": str(64 << 30),
            "TRANSIT_SIM_HBM_BYTES": str(128 << 30),
            "TRANSIT_SIM_LATENCY_US": "0",
            "TRANSIT_RUN_DIR": run,
        }
        subprocess.run([str(program), kind, str(launches)], env=environment, check=True)
        (process,), _ = read_folder(Path(run))
    names = ("hook_samples", "hook_p50_ns", "hook_p99_ns")
    samples, median, high = (process.counter(name) for name in names)
    return samples, median, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=20000)
    parser.add_argument("--libraries", type=Path, default=ROOT / "build" / "release")
    arguments = parser.parse_args()
    libraries = Libraries.below(arguments.libraries)
    if libraries is None:
        sys.exit(f"hook_bench: no libraries below {arguments.libraries}: run ./dev build first")
    with tempfile.TemporaryDirectory() as folder:
        program = build(libraries, Path(folder))
        print("launch  samples  median ns  p99 ns")
        for kind in KINDS:
            samples, median, high = measure(program, libraries, kind, arguments.launches)
            print(f"{kind:6}  {samples:7}  {median:9}  {high:6}")


if __name__ == "__main__":
    main()
