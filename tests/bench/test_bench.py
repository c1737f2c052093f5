"""The runner, on jobs that only write a result."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import Run, command_line, schedule
from gpu_memory import MemorySampler, process_tree

BENCH = Path(__file__).with_name("bench.py")

JOB = """\
import json, sys
json.dump({"tokens_per_s_per_gpu": %s}, open(sys.argv[-1], "w"))
"""


@pytest.fixture
def bench(tmp_path):
    """Runs bench.py on jobs given as Python source; returns the process and what it wrote."""

    def bench(jobs, *options):
        arguments = []
        for name, source in jobs.items():
            path = tmp_path / f"{name}.py"
            path.write_text(source)
            arguments += ["--config", f"{name}={sys.executable} {path}"]
        out = tmp_path / "out"
        command = [sys.executable, str(BENCH), *arguments, "--out", str(out), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done, json.loads((out / "bench.json").read_text())

    return bench


def test_order_alternates():
    # GIVEN two configurations WHEN THEN every other round goes backwards
    order = [name for _, name in schedule(["a", "b"], 3)]
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_result_file_is_appended_or_substituted():
    # GIVEN commands with and without a place for the file WHEN THEN
    file = Path("x.json")
    assert command_line("job --size 'a b'", file) == ["job", "--size", "a b", "--json", "x.json"]
    assert command_line("sh -c 'job >{json}'", file) == ["sh", "-c", "job >x.json"]


def test_ratio_and_table(bench):
    # GIVEN a job at 90 % of another
    # WHEN
    done, content = bench({"base": JOB % 100.0, "slow": JOB % 90.0}, "--rounds", "2")
    # THEN
    assert done.returncode == 0, done.stderr
    assert [r["config"] for r in content["runs"]] == ["base", "slow", "slow", "base"]
    assert content["summary"][1]["ratio"]["mean"] == pytest.approx(0.9)
    assert done.stdout.splitlines()[-1].startswith("| slow | 90.0 (90.0 to 90.0) | 0.900 (0.900")


def test_failed_run_fails_the_benchmark(bench):
    # GIVEN a job that fails
    # WHEN
    done, content = bench({"base": JOB % 100.0, "bad": "raise SystemExit(3)"}, "--rounds", "1")
    # THEN it is reported, and the others still count
    assert done.returncode == 1
    assert "bad: failed with 3" in done.stdout
    assert content["summary"][0]["values"]["median"] == 100.0


def test_run_without_result_is_a_failure():
    # GIVEN a run that ended well but wrote nothing THEN
    assert Run("a", 0, exit_code=0, wall_s=1.0, memory=None, result=None).failed


def test_timeout_ends_the_run(bench):
    # GIVEN a job that never ends
    # WHEN
    begin = time.monotonic()
    hang = {"hang": "import time; time.sleep(60)"}
    done, content = bench(hang, "--rounds", "1", "--timeout", "1")
    # THEN
    assert time.monotonic() - begin < 20
    assert done.returncode == 1
    assert "timed out" in done.stdout
    assert content["runs"][0]["exit_code"] is None


def test_configurations_from_a_file(tmp_path):
    # GIVEN a TOML file
    job = tmp_path / "job.py"
    job.write_text(JOB % 7.0)
    file = tmp_path / "bench.toml"
    file.write_text(f"rounds = 1\n[configs]\nonly = '{sys.executable} {job}'\n")
    # WHEN
    command = [sys.executable, str(BENCH), str(file), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # THEN
    assert done.returncode == 0, done.stderr
    assert "| only | 7.0 (7.0 to 7.0) | 1.000 |" in done.stdout


def test_process_tree_crosses_sessions():
    # GIVEN a child in a session of its own, as torchrun starts its workers
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        # WHEN THEN it belongs to this process's tree
        assert {os.getpid(), child.pid} <= process_tree(os.getpid())
        assert process_tree(child.pid) == {child.pid}
    finally:
        child.kill()
        child.wait()


class FakeNvml:
    """One GPU with 100 bytes in use, then 400; processes as told."""

    def __init__(self, processes):
        self.processes = processes
        self.readings = iter([100])

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetMemoryInfo(self, device):
        return type("Info", (), {"used": next(self.readings, 400)})

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [type("Process", (), p) for p in self.processes]


@pytest.mark.parametrize(
    ("pid", "expected"),
    [(os.getpid(), (250, "process")), (1 << 30, (300, "device"))],
    ids=["pids match", "pids of another namespace"],
)
def test_memory_of_processes_or_of_the_device(monkeypatch, pid, expected):
    # GIVEN an NVML that reports one process
    nvml = FakeNvml([{"pid": pid, "usedGpuMemory": 250}])
    monkeypatch.setattr("gpu_memory.open_nvml", lambda: nvml)
    # WHEN
    with MemorySampler(os.getpid()) as sampler:
        time.sleep(0.35)
    # THEN
    assert (sampler.peak.peak_bytes, sampler.peak.source) == expected


def test_no_nvml_no_figure(monkeypatch):
    # GIVEN no NVML WHEN THEN there is no peak, rather than a zero
    monkeypatch.setattr("gpu_memory.open_nvml", lambda: None)
    with MemorySampler(os.getpid()) as sampler:
        pass
    assert sampler.peak is None
