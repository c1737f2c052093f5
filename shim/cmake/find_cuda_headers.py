"""Print the folder that holds cuda.h: NVIDIA's PyPI wheels first, then an installed toolkit.

CMake runs this with the Python that builds Transit. -DTRANSIT_CUDA_INCLUDE=DIR makes it needless.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def candidates() -> Iterator[Path]:
    """Include folders, the newest wheel first: nvidia/cu13, then nvidia/cuda_runtime (cu12)."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(folder).glob("cu[0-9]*/include"), reverse=True)
        yield from sorted(Path(folder).glob("cuda_runtime/include"))
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield Path(home) / "include"


def main() -> int:
    """Print the first folder that has cuda.h."""
    for folder in candidates():
        if (folder / "cuda.h").is_file():
            print(folder)
            return 0
    print(
        "cuda.h not found: pip install 'nvidia-cuda-runtime==13.*' 'nvidia-cuda-crt==13.*',"
        " or set TRANSIT_CUDA_INCLUDE",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
