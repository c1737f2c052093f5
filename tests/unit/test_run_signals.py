"""Signals reach the job exactly once, however they are sent."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[str]]

# Counts the signals it gets, says when it is ready, ends half a second after the first one.
COUNTER = """
import os, signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: got.append(number))
open(sys.argv[1], "w").write(str(os.getpid()))
end = time.monotonic() + 20
while not got and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.5)
print("got", *(int(number) for number in got), flush=True)
sys.exit(9)
"""


def wait_for(path: Path, seconds: float = 15) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.01)
    raise AssertionError(f"{path} never appeared")


@pytest.fixture
def counting(transit: Start, tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """A running job that counts signals, and the job's own pid."""
    ready = tmp_path / "ready"
    child = transit("run", "--quiet", "--", sys.executable, "-c", COUNTER, str(ready))
    return child, wait_for(ready)


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_transit_alone_is_passed_on(
    counting: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    child, _ = counting
    child.send_signal(number)
    output, _ = child.communicate(timeout=20)
    assert output == f"got {int(number)}\n"
    assert child.returncode == 9


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_the_group_is_not_doubled(
    counting: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    child, job = counting
    assert os.getpgid(job) == os.getpgid(child.pid)
    os.killpg(child.pid, number)
    output, _ = child.communicate(timeout=20)
    assert output == f"got {int(number)}\n"
    assert child.returncode == 9


def test_a_killed_transit_takes_the_job_with_it(
    counting: tuple[subprocess.Popen[str], int],
) -> None:
    # WHEN transit is killed and can do nothing more
    child, job = counting
    child.kill()
    child.communicate(timeout=20)
    # THEN the job is gone as it would be if it had been killed itself
    deadline = time.monotonic() + 5
    while Path(f"/proc/{job}/cmdline").exists() and time.monotonic() < deadline:
        if "Z" in Path(f"/proc/{job}/stat").read_text().rsplit(")", 1)[1].split()[0]:
            return
        time.sleep(0.02)
    assert not Path(f"/proc/{job}").exists()


def test_signal_dispositions_are_pythons_no_more(transit: Start) -> None:
    # WHEN a job looks at what it inherits
    child = transit("run", "--quiet", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    output, _ = child.communicate(timeout=20)
    # THEN nothing is blocked and nothing ignored
    assert {int(line.split()[1], 16) for line in output.splitlines()} == {0}


def run_on_terminal(arguments: list[str], environment: dict[str, str]) -> tuple[int, int]:
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execve(sys.executable, [sys.executable, *arguments], environment)
        finally:
            os._exit(99)
    return pid, terminal


def test_ctrl_c_at_a_terminal_comes_once_and_ends_shell_loops(
    shim_environment: dict[str, str], tmp_path: Path
) -> None:
    # GIVEN a job on a terminal that dies of SIGINT
    ready = tmp_path / "ready"
    script = f'echo $$ >"{ready}"; exec sleep 20'
    job = ["-m", "transit", "run", "--quiet", "--", "sh", "-c", script]
    pid, terminal = run_on_terminal(job, shim_environment)
    wait_for(ready)
    # WHEN somebody presses Ctrl-C
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    # THEN transit dies of the signal too: a shell would stop its loop
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGINT


def test_ctrl_c_at_a_terminal_is_not_doubled(
    shim_environment: dict[str, str], tmp_path: Path
) -> None:
    # GIVEN a job on a terminal that counts signals and survives them
    ready = tmp_path / "ready"
    job = ["-m", "transit", "run", "--quiet", "--", sys.executable, "-c", COUNTER, str(ready)]
    pid, terminal = run_on_terminal(job, shim_environment)
    wait_for(ready)
    # WHEN somebody presses Ctrl-C
    os.write(terminal, b"\x03")
    output = b""
    while b"got" not in output or not output.endswith(b"\n"):
        output += os.read(terminal, 1024)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    # THEN it came once, and the job's own code comes back
    assert output.decode().split("got", 1)[1].split() == [str(int(signal.SIGINT))]
    assert os.waitstatus_to_exitcode(status) == 9
