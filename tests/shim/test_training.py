"""The NumPy GPT, a real training job, under the shim: bit-identical losses, whatever moves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transit.stats import read_folder

GPT = Path(__file__).parents[1] / "workloads" / "numpy_gpt.py"
MODEL = ["--steps", "5", "--layers", "2", "--dim", "512", "--seq", "64", "--json"]
EXTENT = 2 << 20


def begin(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    # NumPy's own threads would fight with the simulator's for two cores.
    quiet = {"OPENBLAS_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [sys.executable, str(GPT), *MODEL, *arguments],
        env=quiet,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def report(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    return json.loads(out)


@pytest.fixture(scope="session")
def plain(libraries, tmp_path_factory) -> dict:
    """The run without Transit."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "libcuda.so.1").symlink_to(libraries.simulator)
    return report(begin({**os.environ, "LD_LIBRARY_PATH": str(folder)}))


@pytest.mark.parametrize("percent", [100, 75, 50, 40])
def test_budgets(settings, plain, percent):
    # GIVEN a budget below what the job uses WHEN it trains THEN every loss is the same bit for bit,
    # and the simulator's own peak of HBM is within the budget
    budget = plain["peak_bytes"] * percent // 100 // EXTENT * EXTENT
    truth = settings()["TRANSIT_RUN_DIR"]
    environment = settings(TRANSIT_HBM=budget, TRANSIT_DRAM=512 << 20, TRANSIT_SIM_TRUTH=truth)
    ours = report(begin(environment))
    assert ours["losses_hex"] == plain["losses_hex"]
    summary = next(Path(truth).glob("*.truth")).read_text().splitlines()[-1]
    peak = int(summary.split("peak_hbm_bytes=")[1].split()[0])
    assert peak <= budget
    (stats,), _ = read_folder(Path(environment["TRANSIT_RUN_DIR"]))
    assert stats.counter("hbm_peak_bytes") <= budget
    if percent < 100:
        assert stats.counter("dram_peak_bytes") > 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_forced_moves(settings, plain, seed):
    # GIVEN moves all the time WHEN it trains THEN every loss is the same bit for bit
    environment = settings(TRANSIT_FORCE_MOVES=seed, TRANSIT_HBM=256 << 20, TRANSIT_DRAM=512 << 20)
    assert report(begin(environment))["losses_hex"] == plain["losses_hex"]
    (stats,), _ = read_folder(Path(environment["TRANSIT_RUN_DIR"]))
    assert stats.counter("offloads") > 0


@pytest.mark.parametrize("forced", [None, 5])
def test_two_ranks(settings, libraries, tmp_path, forced):
    # GIVEN two ranks with NCCL WHEN they train with the shim under pressure and without it THEN
    # each rank's losses are the same bit for bit
    results = {}
    for ours in (True, False):
        meet = tmp_path / f"meet{ours}"
        meet.mkdir()
        jobs = []
        for rank in range(2):
            extra = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "TRANSIT_SIM_NCCL_DIR": meet}
            preload = (
                [libraries.shim, libraries.nccl] if ours else [libraries.simulator, libraries.nccl]
            )
            environment = settings(
                ours,
                **extra,
                LD_PRELOAD=":".join(map(str, preload)),
                TRANSIT_HBM=96 << 20,
                TRANSIT_DRAM=512 << 20,
                TRANSIT_FORCE_MOVES=forced,
            )
            jobs.append(begin(environment, "--rendezvous", str(meet)))
        results[ours] = [report(job)["losses_hex"] for job in jobs]
    assert results[True] == results[False]
