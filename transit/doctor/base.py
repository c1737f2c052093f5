"""What a check says."""

import enum
from dataclasses import dataclass


class State(enum.StrEnum):
    """How bad it is: a warning costs a feature, a problem keeps jobs from using Transit."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    state: State
    found: str
    fix: str | None = None


def ok(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name, State.OK, found)


def warning(name: str, found: str, fix: str) -> Check:
    """A feature is missing."""
    return Check(name, State.WARNING, found, fix)


def problem(name: str, found: str, fix: str) -> Check:
    """Jobs cannot use Transit here."""
    return Check(name, State.PROBLEM, found, fix)
