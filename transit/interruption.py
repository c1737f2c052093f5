"""Signals that ask us to end become an exception, so that whoever made something removes it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal asked us to end. No Exception: nobody may take it for a failure of theirs."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def install() -> None:
    """Raise `Interrupted` on the ending signals that our parent did not make us ignore (nohup)."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in ENDING:  # one is enough: the next must not keep us from clearing up
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


@contextmanager
def deferred() -> Iterator[None]:
    """Ending signals wait until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
