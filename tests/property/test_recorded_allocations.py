"""Recorded steps get the same addresses every time, cheaply and in few extents."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]
TRACES = ("dense3b-async", "fsdp2x2-1b-accum2.rank0")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """tests/bench/allocator_bench.py."""
    spec = importlib.util.spec_from_file_location(
        "allocator_bench", REPOSITORY / "tests" / "bench" / "allocator_bench.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", TRACES)
def test_recorded_step_repeats_its_addresses(bench: ModuleType, name: str, tmp_path: Path) -> None:
    # GIVEN a recording with one allocation call a tensor
    data = Path(os.environ.get("TRANSIT_TRACES", REPOSITORY.parent / "shared" / "data"))
    if not (trace := data / f"{name}.trace.gz").exists():
        pytest.skip(f"no recording {trace} (TRANSIT_TRACES names the folder)")
    # WHEN its calls are replayed
    for row in bench.measure(bench.build(tmp_path), trace):
        # THEN large blocks lie where they lay a step before, in hardly more extents than they fill
        assert row.compared > 0
        assert row.differing == 0
        assert row.overhead <= bench.OVERHEAD
        assert row.pair_ns <= bench.PAIR_NS
