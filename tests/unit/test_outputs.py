"""Outputs that are closed, full, or left by their reader cost neither the job nor its exit code."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Shell = Callable[[str], subprocess.CompletedProcess[str]]

# Says on both outputs that it ran, and which of its first three descriptors are open.
JOB = """
import os, sys
def is_open(number):
    try: os.fstat(number)
    except OSError: return False
    return True
open(sys.argv[1], "w").write(" ".join(str(is_open(n)) for n in range(3)))
for number in (1, 2):
    try: os.write(number, b"from the job\\n")
    except OSError: pass
sys.exit(7)
"""


@pytest.fixture
def shell(shim_environment: dict[str, str]) -> Shell:
    """Runs a line in which $T is `transit`."""

    def run(line: str) -> subprocess.CompletedProcess[str]:
        transit = f"{shlex.quote(sys.executable)} -m transit"
        return subprocess.run(
            ["bash", "-c", line.replace("$T", transit)],
            env=shim_environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.parametrize(
    ("redirected", "heard"),
    [
        (">&-", {"stderr"}),
        ("2>&-", {"stdout"}),
        (">&- 2>&-", set()),
        ("<&-", {"stdout", "stderr"}),
        ("<&- >&- 2>&-", set()),
        (">/dev/full", {"stderr"}),
        ("2>/dev/full", {"stdout"}),
    ],
)
def test_the_job_runs_whatever_its_outputs_are(
    shell: Shell, tmp_path: Path, redirected: str, heard: set[str]
) -> None:
    # GIVEN outputs that cannot be written to WHEN a job runs
    ran = tmp_path / "ran"
    job = shlex.join([sys.executable, "-c", JOB, str(ran)])
    done = shell(f"$T run -- {job} {redirected}")
    # THEN it ran with all three descriptors open, its exit code comes back, and what can is heard
    assert ran.read_text() == "True True True"
    assert done.returncode == 7
    assert {name for name in ("stdout", "stderr") if "from the job" in getattr(done, name)} == heard
    assert "Traceback" not in done.stdout + done.stderr


def test_a_reader_that_leaves_does_not_end_the_job(shell: Shell, tmp_path: Path) -> None:
    # GIVEN a pipe whose reader has left WHEN a job runs with a summary to write there THEN its exit
    # code comes back
    ran = tmp_path / "ran"
    job = shlex.join([sys.executable, "-c", JOB, str(ran)])
    done = shell(f"{{ sleep 1; $T run --json - -- {job}; echo code $? >&2; }} | true")
    assert ran.exists()
    assert "code 7\n" in done.stderr
    assert "Traceback" not in done.stderr


COMMANDS = ["--version", "--help", "run --help", "doctor", "doctor --json", "demo --help"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_output_is_told_in_one_line(shell: Shell, command: str) -> None:
    # WHEN what a command prints cannot be written THEN a line says so, and the exit code is not 0
    done = shell(f"$T {command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: cannot write to standard output: No space left on device\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_read_enough_is_no_news(shell: Shell, command: str) -> None:
    # WHEN the reader of a pipe is gone THEN the command ends quietly, as one that SIGPIPE ends
    done = shell(f"{{ sleep 0.5; $T {command}; echo code $? >&2; }} | true")
    assert done.stderr == "code 141\n"


@pytest.mark.parametrize(
    ("job", "before"),
    [("true", ""), ("echo line", "line\n"), ("printf %s half", "half")],
)
def test_json_on_standard_output_is_the_last_line(shell: Shell, job: str, before: str) -> None:
    # WHEN the summary goes where the job writes too THEN it is the last line, whatever came before
    done = shell(f"$T run --quiet --json - -- {job}")
    *others, last = done.stdout.splitlines()
    assert json.loads(last)["exit_code"] == 0
    assert "\n".join(others).strip() == before.strip()


def test_quiet_still_tells_that_a_job_runs_without_transit(
    shell: Shell, shim_environment: dict[str, str]
) -> None:
    # GIVEN no driver WHEN a job runs quietly THEN that it runs without Transit is told, once, and
    # with a driver nothing is
    assert shell("$T run --quiet -- true").stderr == ""
    shim_environment["TRANSIT_REAL_LIBCUDA"] = "/nowhere/libcuda.so.1"
    done = shell("$T run --quiet -- true")
    assert done.returncode == 0
    assert done.stderr.count("without Transit") == 1
    assert done.stderr.count("\n") == 1
