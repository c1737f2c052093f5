"""Decoder of the statistics files that the shim writes (docs/formats.md).

The files come from the job, so nothing in them is trusted: sizes are checked before they are
used, text is cleaned before it is shown.
"""

import os
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from transit.errors import TransitError

MAGIC: Final = b"TRANSITS"
VERSION: Final = 1
MAX_COUNTERS: Final = 1024
MAX_NAMES: Final = 65536
HEADER: Final = struct.Struct("<8s6I")
COUNTER: Final = struct.Struct("<56sQ")
NAMED: Final = struct.Struct("<16s232sQ")
_MAX_FILE: Final = HEADER.size + MAX_COUNTERS * COUNTER.size + MAX_NAMES * NAMED.size


class MalformedStats(TransitError):
    """A statistics file that is not one."""


@dataclass(frozen=True, slots=True)
class NamedCount:
    """How often something with a name happened."""

    kind: str
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """What one process of the job did."""

    pid: int
    local_rank: int
    ended: bool
    counters: dict[str, int] = field(default_factory=dict)
    named: tuple[NamedCount, ...] = ()

    def counter(self, name: str) -> int:
        """A counter's value, 0 when this shim does not keep it."""
        return self.counters.get(name, 0)

    def of_kind(self, kind: str) -> list[NamedCount]:
        """The named counts of a kind, most frequent first, then by name."""
        found = [each for each in self.named if each.kind == kind]
        return sorted(found, key=lambda each: (-each.count, each.name))


def decode(data: bytes) -> ProcessStats:
    """Decode one file's bytes.

    Raises:
        MalformedStats: with a sentence that says what is wrong.
    """
    if len(data) < HEADER.size:
        raise MalformedStats(f"it has {len(data)} bytes, a header has {HEADER.size}")
    magic, version, pid, local_rank, counters, names, state = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise MalformedStats("it does not start with TRANSITS")
    if version != VERSION:
        raise MalformedStats(f"it has version {version}, this transit reads version {VERSION}")
    if counters > MAX_COUNTERS or names > MAX_NAMES:
        raise MalformedStats(f"it claims {counters} counters and {names} names, too many")
    names_at = HEADER.size + counters * COUNTER.size
    needed = names_at + names * NAMED.size
    if len(data) < needed:
        raise MalformedStats(f"it is cut short: {len(data)} bytes of {needed}")
    return ProcessStats(
        pid=pid,
        local_rank=local_rank,
        ended=state == 2,
        counters=_counters(data[HEADER.size : names_at]),
        named=_named(data[names_at:needed]),
    )


def _counters(data: bytes) -> dict[str, int]:
    pairs = ((_text(name), value) for name, value in COUNTER.iter_unpack(data))
    return {name: value for name, value in pairs if name}


def _named(data: bytes) -> tuple[NamedCount, ...]:
    rows = ((_text(kind), _text(name), count) for kind, name, count in NAMED.iter_unpack(data))
    return tuple(NamedCount(kind, name, count) for kind, name, count in rows if kind)


def _text(raw: bytes) -> str:
    """Text up to the first zero; what a terminal could act on becomes `?`."""
    decoded = raw.split(b"\0", 1)[0].decode("utf-8", errors="replace")
    return "".join(character if character.isprintable() else "?" for character in decoded)


def read_file(path: Path) -> ProcessStats:
    """Decode a file, refusing links, pipes and oversized files."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise MalformedStats("it is not a regular file")
            return decode(file.read(_MAX_FILE))
    except OSError as error:
        raise MalformedStats(f"it cannot be read: {error.strerror}") from error


def read_folder(folder: Path) -> tuple[list[ProcessStats], list[str]]:
    """All processes of a run by rank and pid, and a sentence for each unreadable file."""
    found: list[ProcessStats] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.stats")):
        try:
            found.append(read_file(path))
        except MalformedStats as error:
            problems.append(f"statistics file {_text(path.name.encode())} is ignored: {error}")
    return sorted(found, key=lambda each: (each.local_rank, each.pid)), problems
