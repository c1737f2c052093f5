"""What PyTorch refuses under its cudaMallocAsync backend, and the command instead."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from transit import refusals

Start = Callable[..., subprocess.Popen[str]]
JOB = ("python", "train.py", "--allocator", "async", "a b")


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (["run", "--allocator", "async", "--"], "run --allocator native --"),
        (["-v", "run", "--allocator=ASYNC", "--"], "-v run --allocator=native --"),
    ],
)
def test_the_command_instead_changes_our_allocator_only(ours: list[str], expected: str) -> None:
    answer = refusals.instead([*ours, *JOB], JOB, {})
    assert answer == f"run: transit {expected} python train.py --allocator async 'a b'"


def test_the_users_own_setting_is_named() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    answer = refusals.instead(["run", "--", *JOB], JOB, environment)
    assert answer == "take backend:cudaMallocAsync out of PYTORCH_CUDA_ALLOC_CONF"


def test_an_unknown_command_line_has_no_answer() -> None:
    assert refusals.instead(["something"], JOB, {}) is None


def test_files_of_the_job_are_not_trusted(tmp_path: Path) -> None:
    # GIVEN refusals of two processes, one twice, and rubbish
    for pid, text in enumerate(("snapshot", "snapshot", "getIpcDevPtr", "\x1b[2J", "", "x" * 9999)):
        (tmp_path / f"{pid}.refused").write_text(text)
    (tmp_path / "9.refused").mkdir()
    # THEN each name is there once, and no rubbish
    assert refusals.read_folder(tmp_path) == ["getIpcDevPtr", "snapshot", "x" * 80]
    assert refusals.describe("snapshot") == "memory snapshots (snapshot)"
    assert refusals.describe("newThing") == "newThing"


def test_a_refusal_is_answered_after_the_run(transit: Start) -> None:
    # GIVEN a job whose PyTorch refuses something
    script = "printf checkPoolLiveAllocations > $TRANSIT_RUN_DIR/1.refused; exit 3"
    # WHEN it has ended
    child = transit("run", "--allocator", "async", "--", "sh", "-c", script)
    _, errors = child.communicate(timeout=20)
    # THEN its code comes back, with the command to run instead
    assert child.returncode == 3
    assert "PyTorch refused cudagraph trees (checkPoolLiveAllocations)" in errors
    assert "run: transit run --allocator native -- sh -c 'printf" in errors
