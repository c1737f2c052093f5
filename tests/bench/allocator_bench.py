"""Replays the allocations of recorded steps through the shim's suballocator and prints a table.

Usage: allocator_bench.py NAME.trace.gz...
"""

import gzip
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SHIM = HERE.parents[1] / "shim"
PAIR_NS = 1000.0  # what an allocation and its free may cost
OVERHEAD = 0.015  # what whole extents may hold beyond the live bytes


@dataclass(frozen=True, slots=True)
class Row:
    """One granule's figures for one trace."""

    granule_bytes: int
    pair_ns: float
    live_peak_bytes: int
    backed_at_peak_bytes: int  # 32 MiB extents under any live block
    compared: int  # allocations held against the step before
    differing: int  # of those, blocks of 1 MiB and more that lie elsewhere
    small_differing: int
    small_differing_from_two_before: int

    @property
    def overhead(self) -> float:
        return self.backed_at_peak_bytes / self.live_peak_bytes - 1


def build(folder: Path) -> Path:
    program = folder / "allocator_bench"
    sources = [HERE / "allocator_bench.cpp", SHIM / "src" / "address_space.cpp"]
    subprocess.run(
        ["g++", "-std=c++20", "-O2", f"-I{SHIM / 'include'}", *sources, "-o", program], check=True
    )
    return program


def measure(program: Path, trace: Path) -> list[Row]:
    with gzip.open(trace) as lines:
        done = subprocess.run([program], input=lines.read(), stdout=subprocess.PIPE, check=True)
    return [Row(**json.loads(line)) for line in done.stdout.splitlines()]


def main() -> int:
    missing = [name for name in sys.argv[1:] if not Path(name).exists()]
    if missing or len(sys.argv) == 1:
        print(f"no such trace: {', '.join(missing)}" if missing else __doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        print(
            f"{'trace':24} {'granule':>8} {'pair':>7} {'live peak':>10} {'backed':>10} "
            f"{'over':>6} {'elsewhere':>14} {'small (2 before)':>17}"
        )
        for name in sys.argv[1:]:
            for row in measure(program, Path(name)):
                print(
                    f"{Path(name).name.removesuffix('.trace.gz'):24} "
                    f"{row.granule_bytes / 1024:6g} K {row.pair_ns:4.0f} ns "
                    f"{row.live_peak_bytes / 2**30:6.2f} GiB "
                    f"{row.backed_at_peak_bytes / 2**30:6.2f} GiB "
                    f"{row.overhead:6.2%} {row.differing:6} of {row.compared:4} "
                    f"{row.small_differing:8} {f'({row.small_differing_from_two_before})':>8}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
