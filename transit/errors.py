"""Errors that end a command: what failed, why, what to do, and the exit code."""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of every command except `run`, which returns its child's."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PERMISSION = 3
    GONE = 4
    UNSUPPORTED = 5
    CANNOT_EXECUTE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    READER_LEFT = 141  # as a program that SIGPIPE ends


class TransitError(Exception):
    """A failure to be told in a sentence, with a hint, and without a traceback."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class OutputFailed(TransitError):
    """Standard output cannot take what the command is for."""


class ReaderLeft(OutputFailed):
    """The reader of a pipe has read enough, which is no news to anybody."""

    exit_code = ExitCode.READER_LEFT


class UsageError(TransitError):
    """The command line asks for something that makes no sense."""

    exit_code = ExitCode.USAGE


class PermissionDenied(TransitError):
    """The system does not allow it to this user."""

    exit_code = ExitCode.PERMISSION


class TargetGone(TransitError):
    """The process or file that the command is about does not exist."""

    exit_code = ExitCode.GONE


class Unsupported(TransitError):
    """This machine, kernel or driver cannot do it."""

    exit_code = ExitCode.UNSUPPORTED


class CannotExecute(TransitError):
    """The job's command exists but cannot be executed."""

    exit_code = ExitCode.CANNOT_EXECUTE


class CommandNotFound(TransitError):
    """The job's command does not exist."""

    exit_code = ExitCode.NOT_FOUND
