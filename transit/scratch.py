"""Folders that live as long as a command; those of killed ones go when the next one starts.

Whoever uses a folder holds a shared lock on the file `lock` in it: the command that made it, and
each process of the job that has CUDA open (shim/src/stats.cpp), which may outlive a killed
command. A lock ends with its last holder, however that dies, and holds across containers that
share the folder above. Who gets the exclusive lock is therefore alone and may remove.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from transit import interruption
from transit.errors import TransitError

RUN: Final = "transit-run-"
DEMO: Final = "transit-demo-"
LOCK: Final = "lock"


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """A private folder for the time of the block.

    Raises:
        TransitError: none can be made.
    """
    remove_leftovers()
    path, lock = None, None
    try:
        with interruption.deferred():
            path = _make(prefix)
            lock = _hold(path)
        yield path
    finally:
        with interruption.deferred():
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
            if lock is not None:
                os.close(lock)


def _make(prefix: str) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as error:
        raise TransitError(
            f"cannot make a folder for the job's statistics: {error.strerror or error}",
            "set TMPDIR to a folder that can be written to",
        ) from error


def _hold(path: Path) -> int | None:
    """Lock the folder; it is locked already when its lock gets the name that others look for."""
    try:
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return None  # without a lock nobody removes it but us
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.rename(path / ".lock", path / LOCK)
    except OSError:  # a file system without locks
        os.close(lock)
        return None
    return lock


def remove_leftovers() -> None:
    """Remove this user's folders that nobody holds any more. Never fails."""
    with suppress(OSError):
        above = Path(tempfile.gettempdir())
        for prefix in (RUN, DEMO):
            for path in above.glob(f"{prefix}*"):
                _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    with suppress(OSError):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
