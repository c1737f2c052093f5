"""Start a program of the tests and trace it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transit.probes.attach import Counts, Observer, Probed
from transit.probes.ring import Records


@dataclass
class Traced:
    """A program that waits before and after its calls, and what was seen of them."""

    probed: list[Probed]
    records: Records
    counts: dict[str, Counts]

    def names(self, observer: Observer) -> list[str]:
        return [observer.table.rows[row].name for row in self.records["symbol"]]


@contextmanager
def waiting(
    command: list[str | Path], environment: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """The program has said that it is ready."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        env=environment,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


def go_on(program: subprocess.Popen[str]) -> None:
    """Let it make its calls; back when it has."""
    assert program.stdin is not None and program.stdout is not None
    program.stdin.write("\n")
    assert program.stdout.readline() == "done\n"


def trace(observer: Observer, command: list[str | Path], environment: dict[str, str]) -> Traced:
    """Attach to the program, let it run, and detach."""
    with waiting(command, environment) as program:
        probed = observer.attach(program.pid)
        go_on(program)
        rows = observer.table.rows
        counts = {rows[row].name: count for row, count in observer.counts().items()}
        return Traced(probed, observer.drain(), counts)
