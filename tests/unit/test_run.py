"""`transit run` around plain shell children and a harmless shim: codes, environment, files."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stats_files import encode

Start = Callable[..., subprocess.Popen[str]]
PRINT_ENV = ("--", "sh", "-c", "env")


def variables(output: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137),
     ("kill -INT $$", 130), ("exit 126", 126)],
)  # fmt: skip
def test_the_childs_code_comes_back(transit: Start, script: str, code: int) -> None:
    child = transit("run", "--", "sh", "-c", script)
    child.communicate(timeout=20)
    assert child.returncode == code


def test_what_cannot_be_started(transit: Start, tmp_path: Path) -> None:
    # GIVEN a command that does not exist and one that cannot be executed
    plain = tmp_path / "plain"
    plain.write_text("text")
    for name, code in (("no-such-command", 127), ("", 127), (str(plain), 126)):
        for flags in ([], ["-vv"]):
            # WHEN it is run
            child = transit(*flags, "run", "--", name)
            _, errors = child.communicate(timeout=20)
            # THEN the shell's code comes back with one sentence, and a traceback if asked for
            assert child.returncode == code
            assert f"error: cannot start '{name}'" in errors
            assert ("Traceback" in errors) == bool(flags)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run"], 2),
        (["run", "--hbm", "much", "--", "true"], 2),
        (["run", "--record-file", "x", "--", "true"], 2),
        (["run", "--hbm", "62", "--", "true"], 2),
        (["run", "--json", "/no/such/folder/x", "--", "true"], 2),
        (["run", "--json", "/tmp", "--", "true"], 2),
        (["run", "--json", "", "--", "true"], 2),
        (["run", "--dram", "8000T", "--", "true"], 2),
        (["run", "--dram", "-5GiB", "--", "true"], 2),
        (["frobnicate"], 2),
    ],
)
def test_refusals_come_before_the_job(transit: Start, arguments: list[str], code: int) -> None:
    child = transit(*arguments)
    output, errors = child.communicate(timeout=20)
    assert child.returncode == code
    assert output == ""
    assert "rror: " in errors
    assert "Traceback" not in errors


def test_a_full_disk_leaves_the_jobs_code(transit: Start) -> None:
    # GIVEN an output to which nothing can be written WHEN a job ends with 7 and wants JSON there
    child = transit("run", "--json", "/dev/full", "--", "sh", "-c", "exit 7")
    _, errors = child.communicate(timeout=20)
    # THEN its code comes back, with one sentence
    assert child.returncode == 7
    assert "error: cannot write /dev/full: No space left" in errors
    assert "Traceback" not in errors


def test_environment_is_the_contract(transit: Start, shim_environment: dict[str, str]) -> None:
    # WHEN a job runs with budgets
    child = transit(
        "run", "--hbm", "45%", "--dram", "64MiB", "--verify", "--record-step", "3", *PRINT_ENV
    )
    output, _ = child.communicate(timeout=20)
    # THEN it sees what docs/formats.md says
    seen = variables(output)
    assert seen["TRANSIT_HBM"] == "45%"
    assert seen["TRANSIT_DRAM"] == str(64 * 2**20)
    assert seen["TRANSIT_DRAM_SHARED"] == "0"
    assert seen["TRANSIT_VERIFY"] == "1"
    assert seen["TRANSIT_RECORD_STEP"] == "3"
    assert seen["TRANSIT_REAL_LIBCUDA"] == shim_environment["TRANSIT_REAL_LIBCUDA"]
    assert seen["LD_PRELOAD"] == shim_environment["TRANSIT_SHIM_PATH"]
    assert seen["NCCL_GRAPH_REGISTER"] == seen["NCCL_LOCAL_REGISTER"] == "0"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in seen


def test_users_settings_stay(transit: Start, harmless_library: Path, tmp_path: Path) -> None:
    # GIVEN a preload and NCCL settings of the user's own
    other = tmp_path / "libother.so"
    other.write_bytes(harmless_library.read_bytes())
    child = transit("run", *PRINT_ENV, LD_PRELOAD=str(other), NCCL_LOCAL_REGISTER="1")
    # WHEN the job runs
    seen = variables(child.communicate(timeout=20)[0])
    # THEN ours comes last and theirs wins
    assert seen["LD_PRELOAD"] == f"{other}:{harmless_library}"
    assert seen["NCCL_LOCAL_REGISTER"] == "1"


def test_dram_is_divided_once(transit: Start) -> None:
    # GIVEN a launcher outside of the ranks, and a rank among four
    outside = variables(transit("run", *PRINT_ENV).communicate(timeout=20)[0])
    rank = transit("run", *PRINT_ENV, LOCAL_WORLD_SIZE="4", LOCAL_RANK="2")
    inside = variables(rank.communicate(timeout=20)[0])
    # THEN the first is the node's figure, the second a quarter
    assert outside["TRANSIT_DRAM_SHARED"] == "1"
    assert inside["TRANSIT_DRAM_SHARED"] == "0"
    quarter = int(outside["TRANSIT_DRAM"]) / 4
    assert int(inside["TRANSIT_DRAM"]) == pytest.approx(quarter, rel=0.2)


def test_nested_run_replaces_the_budget_and_preloads_once(
    transit: Start, harmless_library: Path
) -> None:
    # WHEN one run starts another
    inner = ("transit", "run", "--hbm", "2GiB", *PRINT_ENV)
    child = transit("run", "--hbm", "1GiB", "--dram", "64MiB", "--", "python3", "-m", *inner,
                    PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # fmt: skip
    seen = variables(child.communicate(timeout=30)[0])
    # THEN the inner budget counts, and what it does not name is the outer one's
    assert seen["TRANSIT_HBM"] == str(2 * 2**30)
    assert seen["TRANSIT_DRAM"] == str(2**26)
    assert seen["LD_PRELOAD"] == str(harmless_library)


def test_without_a_driver_the_job_runs_without_transit(transit: Start) -> None:
    # GIVEN a machine without a driver
    child = transit("run", "--", "sh", "-c", "env; exit 3", TRANSIT_REAL_LIBCUDA="/no/libcuda.so.1")
    output, errors = child.communicate(timeout=20)
    # THEN it is said in one line and the job is as it would have been
    assert child.returncode == 3
    assert "LD_PRELOAD" not in variables(output)
    assert [line for line in errors.splitlines() if line] == [errors.strip()]
    assert "warning: no NVIDIA driver" in errors


def test_statistics_become_a_table_and_json(transit: Start, tmp_path: Path) -> None:
    # GIVEN a job that leaves statistics, good and broken
    counters = {
        "hbm_peak_bytes": 3 * 2**30,
        "hbm_budget_bytes": 4 * 2**30,
        "offload_bytes": 2**20,
        "wait_frames_ns": 1_500_000,
        "pinned_extents": 2,
        "unknown_launches": 7,
    }
    named = [("pinned", "nccl", 2), ("unknown", "mystery_kernel", 7), ("warning", "look out", 1)]
    (tmp_path / "1.stats").write_bytes(encode(counters, named, pid=1, state=1))
    (tmp_path / "2.stats").write_bytes(b"broken")
    script = f"cp {tmp_path}/*.stats $TRANSIT_RUN_DIR; echo $TRANSIT_RUN_DIR"
    # WHEN it is run
    child = transit("run", "--json", str(tmp_path / "out.json"), "--", "sh", "-c", script)
    output, errors = child.communicate(timeout=20)
    # THEN people read of each, programs too, and the folder is gone
    for text in ("3.0 GiB", "4.0 GiB", "1.5 ms for an HBM frame", "2 extents pinned: nccl × 2",
                 "7 launches of unknown layout: mystery_kernel × 7", "warning: look out",
                 "2.stats is ignored", "ended without saying so"):  # fmt: skip
        assert text in errors
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["schema"] == "transit.run/1"
    assert document["exit_code"] == 0
    assert document["processes"][0]["counters"] == counters
    assert document["processes"][0]["named"]["pinned"] == [{"name": "nccl", "count": 2}]
    assert not Path(output.strip()).exists()


def test_json_on_standard_output_is_one_object(transit: Start) -> None:
    child = transit("run", "--quiet", "--json", "-", "--", "true")
    output, errors = child.communicate(timeout=20)
    assert json.loads(output)["processes"] == []
    assert errors == ""


def test_recorded_step_is_moved_to_the_named_file(transit: Start, tmp_path: Path) -> None:
    # GIVEN a job of two ranks that record a step
    for pid, rank in ((11, 0), (12, 1)):
        (tmp_path / f"{pid}.stats").write_bytes(encode({}, pid=pid, local_rank=rank))
        (tmp_path / f"{pid}.step").write_text(f"rank {rank}")
    script = f"cp {tmp_path}/*.st* $TRANSIT_RUN_DIR"
    # WHEN it ends
    child = transit("run", "--record-step", "2", "--record-file", str(tmp_path / "a.trace"),
                    "--", "sh", "-c", script)  # fmt: skip
    child.communicate(timeout=20)
    # THEN each rank's step has its own file
    assert (tmp_path / "a.trace.rank0").read_text() == "rank 0"
    assert (tmp_path / "a.trace.rank1").read_text() == "rank 1"


def test_allocator_conflict_is_said_once(transit: Start) -> None:
    child = transit("run", "--allocator", "async", *PRINT_ENV,
                    PYTORCH_CUDA_ALLOC_CONF="backend:native")  # fmt: skip
    output, errors = child.communicate(timeout=20)
    assert errors.count("which is kept") == 1
    assert variables(output)["PYTORCH_ALLOC_CONF"] == "backend:native"
