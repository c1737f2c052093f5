"""Folders of commands: removed by who made them, or by the next command once nobody holds them."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from transit import scratch

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def temporary(shim_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands' temporary folder; ours too."""
    folder = Path(shim_environment["TMPDIR"])
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def folders(temporary: Path) -> list[Path]:
    return sorted(temporary.glob("transit-run-*"))


def test_a_finished_run_leaves_nothing(transit: Start, temporary: Path) -> None:
    child = transit("run", "--", "true")
    child.communicate(timeout=30)
    assert list(temporary.iterdir()) == []


def test_a_killed_launchers_folder_goes_with_the_next_run(transit: Start, temporary: Path) -> None:
    # GIVEN a launcher that was killed, and its job with it
    child = transit("run", "--", "sleep", "60")
    wait_until(lambda: len(folders(temporary)) == 1 and (folders(temporary)[0] / "lock").exists())
    child.send_signal(signal.SIGKILL)
    child.wait()
    (left,) = folders(temporary)
    # WHEN the next one runs THEN the folder is gone
    transit("run", "--", "true").communicate(timeout=30)
    assert not left.exists()


def test_a_folder_is_kept_while_somebody_holds_it(transit: Start, temporary: Path) -> None:
    # GIVEN a folder whose launcher is gone, and a job that lives on: its shim holds the lock
    left = temporary / "transit-run-left"
    left.mkdir()
    with (left / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        # WHEN the next command runs THEN the folder stays until the lock goes
        transit("run", "--", "true").communicate(timeout=30)
        assert left.exists()
    transit("run", "--", "true").communicate(timeout=30)
    assert not left.exists()


def test_two_commands_do_not_remove_each_others_folders(transit: Start, temporary: Path) -> None:
    # GIVEN a running command WHEN another starts and ends THEN the first one's folder is there
    first = transit("run", "--", "sleep", "60")
    wait_until(lambda: len(folders(temporary)) == 1)
    (folder,) = folders(temporary)
    transit("run", "--", "true").communicate(timeout=30)
    assert folders(temporary) == [folder]
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=30)
    assert folders(temporary) == []


def test_what_is_not_ours_is_left_alone(temporary: Path, tmp_path: Path) -> None:
    # GIVEN a folder without a lock, a link to one with a lock, a file, and a lock that is a pipe
    unlocked, link, file = (temporary / f"transit-run-{name}" for name in ("a", "b", "c"))
    unlocked.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    link.symlink_to(elsewhere)
    file.touch()
    piped = temporary / "transit-run-d"
    piped.mkdir()
    (piped / "precious").touch()
    (piped / "lock").symlink_to(elsewhere / "lock")
    # WHEN leftovers are removed THEN none of them is touched, nor what a link points to
    scratch.remove_leftovers()
    assert unlocked.exists() and link.is_symlink() and file.exists()
    assert (piped / "precious").exists() and (elsewhere / "lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_is_left_alone(temporary: Path) -> None:
    theirs = temporary / "transit-run-theirs"
    theirs.mkdir()
    (theirs / "lock").touch()
    os.chown(theirs, 12345, 12345)
    scratch.remove_leftovers()
    assert theirs.exists()


@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_ended_leaves_nothing(
    temporary: Path, shim_environment: dict[str, str], number: signal.Signals, to_group: bool
) -> None:
    # GIVEN a demo whose training runs
    for name in ("TRANSIT_SHIM_PATH", "TRANSIT_REAL_LIBCUDA"):
        del shim_environment[name]
    demo = subprocess.Popen(
        [sys.executable, "-m", "transit", "demo", "--steps", "1000"],
        env=shim_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_until(lambda: any(temporary.glob("transit-demo-*/*.out")))
    # WHEN it is asked to end, alone or with its group as a terminal does
    (os.killpg if to_group else os.kill)(demo.pid, number)
    demo.communicate(timeout=30)
    # THEN it ends as by that signal, its training too, and no folder is left
    assert demo.returncode in (128 + number, -number)
    assert list(temporary.glob("transit-demo-*")) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)
