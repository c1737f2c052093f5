"""The NumPy GPT on the simulated GPU."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

GPT = Path(__file__).parents[1] / "workloads" / "numpy_gpt.py"
SMALL = ["--steps", "6", "--layers", "2", "--dim", "128", "--seq", "64", "--json"]


def start(sim_library: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    nccl = sim_library.with_name("libtransit_sim_nccl.so")
    return subprocess.Popen(
        [sys.executable, str(GPT), *arguments],
        env={**os.environ, "LD_PRELOAD": f"{sim_library}:{nccl}", **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def report(process: subprocess.Popen[str]) -> dict:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


def test_loss_falls_and_runs_are_identical(sim_library):
    # GIVEN the same arguments WHEN trained twice THEN the loss falls and every loss is the same
    # bit for bit
    one = report(start(sim_library, *SMALL))
    two = report(start(sim_library, *SMALL, TRANSIT_SIM_SEED="99", TRANSIT_SIM_LATENCY_US="200"))
    assert one["simulated"] is True
    assert one["losses"][-1] < 0.8 * one["losses"][0]
    assert one["losses_hex"] == two["losses_hex"]


def test_default_size_is_worth_offloading(sim_library):
    # GIVEN the default model WHEN one step runs THEN it uses at least 150 MiB of device memory
    assert report(start(sim_library, "--steps", "1", "--json"))["peak_bytes"] >= 150 << 20


def test_pool_returns_its_cache_before_it_gives_up(sim_library):
    # GIVEN a full device with a cached block WHEN another size is wanted THEN the block is freed
    code = (
        "from simdriver import *; p = Pool(Driver()); p.release(p.empty(1 << 20)); p.empty(2 << 20)"
    )
    environment = {"LD_PRELOAD": str(sim_library), "TRANSIT_SIM_HBM_BYTES": str(8 << 20)}
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={**os.environ, **environment, "PYTHONPATH": str(GPT.parent)},
    )


def test_ends_as_interrupted_with_kernels_queued(sim_library):
    # GIVEN kernels in the queue, one of them running WHEN Ctrl-C arrives THEN the process ends by
    # that signal and not by an abort
    code = (
        "import time; from simdriver import *; d = Driver()\n"
        "k = d.kernel('slow', 'i', lambda _: time.sleep(0.01))\n"
        "for i in range(20): k(i)\n"
        "raise KeyboardInterrupt"
    )
    environment = {"LD_PRELOAD": str(sim_library), "PYTHONPATH": str(GPT.parent)}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment})
    assert done.returncode == -signal.SIGINT


def test_ranks_train_together(sim_library, tmp_path):
    # GIVEN two ranks WHEN they average gradients THEN both finish and the loss falls
    ranks = [
        start(sim_library, *SMALL, "--rendezvous", str(tmp_path), RANK=str(rank), WORLD_SIZE="2")
        for rank in range(2)
    ]
    for result in [report(process) for process in ranks]:
        assert result["losses"][-1] < 0.8 * result["losses"][0]
