"""Run the demonstration's workload and read what came of it."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

from transit import libraries, process
from transit.driver import clean_environment
from transit.errors import TransitError
from transit.interruption import ENDING, Interrupted

WORKLOAD: Final = "numpy_gpt.py"
EXTENT_BYTES: Final = 2 * 2**20
_GROUP_SIGNAL_S: Final = 0.5
_SUMMARY: Final = re.compile(r"\bsummary\b.*\bpeak_hbm_bytes=(\d+).*\bpeak_dram_bytes=(\d+)")


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training run. The peaks are the simulated driver's own account."""

    losses: tuple[str, ...]
    peak_hbm_bytes: int
    peak_dram_bytes: int
    wall_ns: int
    counters: dict[str, int] = field(default_factory=dict)


def find_workload() -> Path:
    """In a checkout tests/workloads, else what the wheel brings."""
    package = Path(str(resources.files("transit")))
    for folder in (package.parent / "tests/workloads", package / "demo/workloads"):
        if (folder / WORKLOAD).is_file():
            return folder / WORKLOAD
    raise TransitError(
        f"the demonstration's program {WORKLOAD} is not installed",
        "run the demonstration from a checkout: ./dev demo",
    )


def train_without(steps: int, folder: Path) -> Training:
    """Train on the simulated GPU alone."""
    environment = {"LD_PRELOAD": str(libraries.sim_cuda_path())}
    return _train([], steps, folder / "without", environment)


def train_with(steps: int, hbm_bytes: int, dram_bytes: int, folder: Path) -> Training:
    """Train under `transit run` with a budget."""
    report = folder / "report.json"
    prefix = [sys.executable, "-m", "transit", "run", "--simulated", "--quiet"]
    prefix += ["--hbm", str(hbm_bytes), "--dram", str(dram_bytes), "--json", str(report), "--"]
    environment = {"TRANSIT_EXTENT_BYTES": str(EXTENT_BYTES)}
    if shim := os.environ.get("TRANSIT_SHIM_PATH"):
        environment["TRANSIT_SHIM_PATH"] = shim
    trained = _train(prefix, steps, folder / "with", environment)
    processes = json.loads(report.read_text())["processes"]
    if len(processes) != 1:
        raise TransitError(f"{len(processes)} processes left statistics instead of one")
    return Training(
        trained.losses,
        trained.peak_hbm_bytes,
        trained.peak_dram_bytes,
        trained.wall_ns,
        processes[0]["counters"],
    )


def _train(prefix: Sequence[str], steps: int, truth: Path, extra: dict[str, str]) -> Training:
    truth.mkdir()
    command = [*prefix, sys.executable, str(find_workload()), "--steps", str(steps), "--json"]
    environment = clean_environment() | extra | {"TRANSIT_SIM_TRUTH": str(truth)}
    started_ns = time.monotonic_ns()
    output = truth.with_name(f"{truth.name}.out")
    with output.open("wb") as file:
        ended = process.run_child(command, environment, file.fileno())
    wall_ns = time.monotonic_ns() - started_ns
    if ended.passed_on in (*ENDING, signal.SIGQUIT):  # it was meant for us as well
        raise Interrupted(ended.passed_on)
    if ended.signal in ENDING:  # so was this one, if it went to our group: ours may be on its way
        time.sleep(_GROUP_SIGNAL_S)
    if ended.exit_code != 0:
        raise TransitError(f"the training ended with exit code {ended.exit_code}")
    hbm, dram = read_peaks(truth)
    return Training(parse_losses(output.read_text(errors="replace")), hbm, dram, wall_ns)


def parse_losses(output: str) -> tuple[str, ...]:
    """The losses from the workload's last line, in hexadecimal, which loses no bit."""
    try:
        losses = json.loads(output.strip().splitlines()[-1])["losses_hex"]
        for loss in losses:
            float.fromhex(loss)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise TransitError("the training printed no losses") from error
    if not losses:
        raise TransitError("the training printed no losses")
    return tuple(losses)


def read_peaks(folder: Path) -> tuple[int, int]:
    """Peak HBM and DRAM bytes from the last line of the only truth log in `folder`."""
    found = []
    for path in sorted(folder.glob("*.truth")):
        lines = path.read_text(errors="replace").splitlines()
        if lines and (match := _SUMMARY.search(lines[-1])):
            found.append((int(match[1]), int(match[2])))
    used = [peaks for peaks in found if peaks[0]]
    if len(used) != 1:
        raise TransitError(f"{len(used)} processes used the simulated GPU instead of one")
    return used[0]
