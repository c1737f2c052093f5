"""Run the job as a child that gets each signal exactly once, and pass on how it ended.

The child stays in our process group, as it would be without Transit, so that the terminal,
`kill -- -PGID` and job control work on it directly. A signal sent to us alone has to be passed
on, one sent to the group must not be. Nothing in the signal's own record tells the two apart,
so a sentinel, a tiny process in the same group (and cgroup), reports what it gets as well.
"""

import ctypes
import errno
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from transit import streams
from transit.errors import CannotExecute, CommandNotFound

FORWARDED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_WAITED: Final = frozenset({*FORWARDED, signal.SIGCHLD})
_SENTINEL_WAIT_S: Final = 0.1
_SAME_SIGNAL_NS: Final = 500_000_000
_PR_SET_PDEATHSIG: Final = 1
_REPORT: Final = struct.Struct("=iq")


@dataclass(frozen=True, slots=True)
class Ended:
    """How the child ended: an exit code as a shell would give it, and the signal if any.

    `passed_on` is the last signal that came for us meanwhile, whatever the child made of it.
    """

    exit_code: int
    signal: int | None = None
    from_terminal: bool = False
    passed_on: int | None = None


def run_child(
    command: Sequence[str], environment: dict[str, str], stdout: int | None = None
) -> Ended:
    """Run `command` to its end.

    Args:
        command: the program, searched for in PATH, and its arguments.
        environment: all of it.
        stdout: the descriptor that becomes the child's standard output; None: ours.

    Raises:
        CommandNotFound, CannotExecute: it could not be started.
    """
    if not command[0]:
        raise CommandNotFound("cannot start '': the name of the command is empty")
    libc = ctypes.CDLL(None, use_errno=True)  # before any fork
    streams.flush()
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, nobody could wait
    sentinel, reports = _start_sentinel(libc)
    child, failure, early = _start(command, environment, old_mask, libc, stdout)
    try:
        _raise_start_failure(command[0], child, failure)
        return _supervise(child, reports, early)
    finally:
        os.kill(sentinel, signal.SIGKILL)
        os.waitpid(sentinel, 0)
        os.close(reports)
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)


def end_like(ended: Ended) -> NoReturn:
    """Exit with the child's code.

    After Ctrl-C at a terminal we die of the signal too: that is how a shell loop knows to stop.
    """
    if ended.signal == signal.SIGINT and ended.from_terminal:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(ended.exit_code)


def _die_with_parent(libc: ctypes.CDLL, parent: int) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _start(
    command: Sequence[str],
    environment: dict[str, str],
    mask: set[int],
    libc: ctypes.CDLL,
    stdout: int | None,
) -> tuple[int, int, list[signal.struct_siginfo]]:
    """Fork and exec. The pipe that comes back yields an errno if exec failed, else ends.

    The signals that come back were passed on here.
    """
    parent = os.getpid()
    reader, writer = os.pipe()  # both close on exec
    wait, go = os.pipe()
    pid = os.fork()
    if pid:
        for end in (writer, wait):
            os.close(end)
        early = _pass_on_early(pid)
        os.close(go)
        return pid, reader, early
    try:
        _die_with_parent(libc, parent)
        os.close(go)
        os.read(wait, 1)
        _undo_pythons_handlers()
        if stdout is not None:
            os.dup2(stdout, streams.STDOUT)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        os.write(writer, (error.errno or errno.EINVAL).to_bytes(4, "little"))
    finally:
        os._exit(127)


def _pass_on_early(child: int) -> list[signal.struct_siginfo]:
    """Signals to our group from before the child was in it, or after: nobody can tell.

    The child still blocks them, so that one it got already and ours become one.
    """
    early = []
    while (info := signal.sigtimedwait(FORWARDED, 0)) is not None:
        os.kill(child, info.si_signo)
        early.append(info)
    return early


def _undo_pythons_handlers() -> None:
    """What Python or we made of signals: between unblocking and exec it would still count."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    for number in FORWARDED:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _raise_start_failure(name: str, child: int, failure: int) -> None:
    with os.fdopen(failure, "rb") as pipe:
        code = int.from_bytes(pipe.read(4), "little")
    if not code:
        return
    os.waitpid(child, 0)
    if code in (errno.ENOENT, errno.ENOTDIR):
        where = "is the path right?" if "/" in name else "is its folder in PATH?"
        raise CommandNotFound(f"cannot start '{name}': {os.strerror(code)}", where)
    hint = "a script needs its interpreter in front, such as python, or chmod +x and a #! line"
    raise CannotExecute(f"cannot start '{name}': {os.strerror(code)}", hint)


def _start_sentinel(libc: ctypes.CDLL) -> tuple[int, int]:
    parent = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        _die_with_parent(libc, parent)
        _close_all_but(writer)
        while True:
            number = signal.sigwait(FORWARDED)
            os.write(writer, _REPORT.pack(number, time.monotonic_ns()))
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """The sentinel must not hold the job's pipes open."""
    os.closerange(0, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _supervise(child: int, reports: int, early: list[signal.struct_siginfo]) -> Ended:
    passed_on = early[-1].si_signo if early else None
    from_terminal = any(_is_ctrl_c(info) for info in early)
    while True:
        info = signal.sigwaitinfo(_WAITED)
        if info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return _ended(status, from_terminal, passed_on)
            continue
        passed_on = info.si_signo
        if info.si_signo == signal.SIGINT:
            from_terminal = _is_ctrl_c(info)
        if not _child_got_it_too(info.si_signo, child, reports):
            os.kill(child, info.si_signo)


def _is_ctrl_c(info: signal.struct_siginfo) -> bool:
    """Sent by the kernel, that is the terminal."""
    return info.si_signo == signal.SIGINT and info.si_code > 0


def _ended(status: int, from_terminal: bool, passed_on: int | None) -> Ended:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Ended(128 + number, number, from_terminal, passed_on)
    return Ended(os.WEXITSTATUS(status), passed_on=passed_on)


def _child_got_it_too(number: int, child: int, reports: int) -> bool:
    received_ns = time.monotonic_ns()
    deadline_s = time.monotonic() + _SENTINEL_WAIT_S
    in_our_group = os.getpgid(child) == os.getpgrp()
    while (left_s := deadline_s - time.monotonic()) > 0:
        if not select.select([reports], [], [], left_s)[0]:
            break
        report = os.read(reports, _REPORT.size)
        if len(report) < _REPORT.size:
            break  # the sentinel is gone
        reported, at_ns = _REPORT.unpack(report)
        if reported == number and abs(at_ns - received_ns) < _SAME_SIGNAL_NS:
            return in_our_group
    return False
