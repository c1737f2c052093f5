"""The shim's pure parts behind their C interface."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings
from transit_pure import Pure

SHIM = Path(__file__).parents[2] / "shim"

# The same examples every time, and no verdict by the clock: CI machines are slow at times.
settings.register_profile("transit", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("transit")


@pytest.fixture(scope="session")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Pure:
    """TRANSIT_PURE_C, or a fresh build."""
    told = os.environ.get("TRANSIT_PURE_C")
    return Pure(Path(told) if told else build(tmp_path_factory.mktemp("pure")))


def build(folder: Path) -> Path:
    library = folder / "libtransit_pure_c.so"
    sources = [
        SHIM / "tests" / "pure_c.cpp",
        *(SHIM / "src" / f"{part}.cpp" for part in ("address_space", "ledger", "policy")),
    ]
    compile_it = ["g++", "-std=c++20", "-O1", "-g", "-shared", "-fPIC", "-D_GLIBCXX_ASSERTIONS"]
    subprocess.run(
        [*compile_it, f"-I{SHIM / 'include'}", *map(str, sources), "-o", str(library)], check=True
    )
    return library
