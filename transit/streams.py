"""Standard output and standard error that can take neither the job nor its exit code with them.

Standard output carries data: when it cannot be written to, the command fails with a sentence.
Standard error carries notes: what it cannot take is dropped. Neither of them buffers, so that
nothing is left to fail while Python ends.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from transit.errors import OutputFailed, ReaderLeft

STDOUT: Final = 1
STDERR: Final = 2
_closed: set[int] = set()


class _Descriptor(io.RawIOBase):
    """Writes all it is given, at once, and hands failures to `_failed`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)

    def write(self, data: memoryview) -> int:  # type: ignore[override]
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            if self._number in _closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            while left:
                left = left[_write_some(self._number, left) :]
        except OSError as error:
            self._failed(error)
        return size

    def _failed(self, error: OSError) -> None:
        """Notes are dropped."""


class _DataDescriptor(_Descriptor):
    def _failed(self, error: OSError) -> None:
        raise _failure(error) from error


def _write_some(number: int, data: memoryview) -> int:
    try:
        return os.write(number, data)
    except BlockingIOError:  # somebody who shares the terminal or pipe made it non-blocking
        select.select([], [number], [])
        return 0


def _failure(error: OSError) -> OutputFailed:
    if error.errno == errno.EPIPE:
        return ReaderLeft("cannot write to standard output: its reader left")
    why = "it is closed" if error.errno == errno.EBADF else error.strerror
    return OutputFailed(f"cannot write to standard output: {why}")


def install() -> None:
    """Make sys.stdout and sys.stderr such streams.

    A closed descriptor becomes /dev/null, for the job too: else the next file that we, the shim or
    the job open would take its number and get what is meant for the terminal.
    """
    for number in (0, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            _closed.add(number)
            null = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
    sys.stdout = _text(_DataDescriptor(STDOUT))
    sys.stderr = _text(_Descriptor(STDERR))


def _text(raw: io.RawIOBase) -> io.TextIOWrapper:
    encoding = sys.__stdout__.encoding if sys.__stdout__ else "utf-8"
    return io.TextIOWrapper(
        raw,  # type: ignore[arg-type]
        encoding=encoding,
        errors="backslashreplace",
        write_through=True,
    )


def is_closed(number: int) -> bool:
    """Whether the descriptor was closed when we were started."""
    return number in _closed


def flush() -> None:
    """Before a fork: a child must not write what is ours a second time."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # None where nobody called `install`
            stream.flush()


def say(lines: Iterable[str]) -> None:
    """Lines for people, to standard error, in one piece."""
    text = "".join(f"{line}\n" for line in lines)
    if text and sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
