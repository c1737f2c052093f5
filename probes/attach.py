"""Probes on a running process, from compile to detach."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from transit.probes import bcc, links
from transit.probes.libraries import ELFError, Mapped, function_offsets, mapped_libraries
from transit.probes.links import Place
from transit.probes.ring import Records, Ring
from transit.probes.symbols import SymbolTable, symbol_table

_RING_BYTES: Final = 8 << 20
_THREADS: Final = 8192


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of a symbol's hits: `struct counts` of bpf/calls.bpf.c."""

    hits: int = 0
    emitted: int = 0
    lost: int = 0
    filtered: int = 0
    unreturned: int = 0
    launches: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, f) + getattr(other, f) for f in self.__slots__))


@dataclass(frozen=True, slots=True)
class Probed:
    """A file that probes are on; `problem` says why there are none."""

    pid: int
    mapped: Mapped
    symbols: tuple[int, ...]
    problem: str | None = None


class Observer:
    """The loaded programs and their ring; `attach` as many processes as there are."""

    def __init__(self, ring_bytes: int = _RING_BYTES, table: SymbolTable | None = None) -> None:
        self.table = table or symbol_table()
        self._bpf = bcc.compile_calls(ring_bytes, _THREADS)
        self._entry = self._load("on_entry")
        self._return = self._load("on_return")
        self._fill_recipes()
        self._ring = Ring(self._bpf[b"events"].map_fd, ring_bytes)
        self._links: list[int] = []
        self.probed: list[Probed] = []

    def _load(self, name: str) -> int:
        kprobe = bcc.load_bcc().BPF.KPROBE
        try:
            program = self._bpf.load_func(name.encode(), kprobe, attach_type=bcc.UPROBE_MULTI)
        except Exception as error:  # BCC raises plain ones
            raise bcc.refused("the kernel refuses the probes", error) from error
        return int(program.fd)

    def _fill_recipes(self) -> None:
        recipes = self._bpf[b"recipes"]
        for row, symbol in enumerate(self.table.rows):
            packed = symbol.recipe()
            ctypes.memmove(ctypes.byref(leaf := recipes.Leaf()), packed, len(packed))
            recipes[recipes.Key(row)] = leaf

    def attach(self, pid: int) -> list[Probed]:
        """Probe every library of `pid` that is not probed yet; what was found.

        Raises:
            TargetGone, PermissionDenied: the process cannot be looked at.
        """
        known = {(each.pid, each.mapped.device, each.mapped.inode) for each in self.probed}
        fresh = [
            self._attach_file(pid, mapped)
            for mapped in mapped_libraries(pid)
            if (pid, mapped.device, mapped.inode) not in known
        ]
        self.probed += fresh
        return fresh

    def _attach_file(self, pid: int, mapped: Mapped) -> Probed:
        rows = self.table.of_library(mapped.library)
        try:
            places = _places(function_offsets(mapped.opened, rows), rows)
        except (ELFError, OSError) as error:
            return Probed(pid, mapped, (), f"cannot be read: {error}")
        if not places:
            return Probed(pid, mapped, (), "defines none of the functions")
        try:
            # Returns first: a call that is seen to begin should be seen to end.
            for program, at_return in ((self._return, True), (self._entry, False)):
                self._links.append(links.attach(program, mapped.opened, places, pid, at_return))
        except OSError as error:
            return Probed(pid, mapped, (), f"the kernel refuses probes: {error.strerror}")
        return Probed(pid, mapped, tuple(place.cookie for place in places))

    def drain(self) -> Records:
        """What was recorded since the last call."""
        return self._ring.drain()

    def counts(self) -> dict[int, Counts]:
        """By row of the table, those that were hit."""
        found = {}
        for row, per_cpu in enumerate(self._per_cpu_counts()):
            if any(each.hits for each in per_cpu):
                found[row] = sum(
                    (Counts(*(getattr(each, f) for f in Counts.__slots__)) for each in per_cpu),
                    Counts(),
                )
        return found

    def _per_cpu_counts(self) -> Iterator[Any]:
        table = self._bpf[b"counts"]
        for row in range(len(self.table.rows)):
            yield table[table.Key(row)]

    def close(self) -> None:
        """Detach, and unmap the ring."""
        while self._links:
            with suppress(OSError):
                os.close(self._links.pop())
        self._ring.close()
        self._bpf.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _places(offsets: dict[str, int], rows: dict[str, int]) -> list[Place]:
    """Names at one address are one function: the first in the table stands for it."""
    chosen: dict[int, int] = {}
    for name, row in rows.items():
        if name in offsets:
            chosen.setdefault(offsets[name], row)
    return [Place(offset, row) for offset, row in chosen.items()]
