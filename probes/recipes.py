"""From a line of the symbol table to what the kernel side reads of a call (bpf/events.h).

A line is a function's name, its kind, and `field=source` pairs. Sources:

    3        argument 3, 64 bits          3w       its lower 32 bits
    *1       what argument 1 points to when the call has returned well; *1w 32 bits of it
    @1+16    what lies 16 bytes behind argument 1 when the call begins; @1+16w
    #2       the number 2

Arguments count from 1 as the ABI counts them (x86-64 System V): the first six are registers, the
rest lie on the stack. A structure of up to 16 bytes passed by value, such as dim3, takes two; a
larger one lies on the stack and takes none.
"""

import enum
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from transit.probes.records import FIELDS

_SOURCE: Final = re.compile(r"(?:(\*|@)?(\d+)(?:\+(\d+))?(w)?|#(\d+))")
_FIELD: Final = struct.Struct("<BBBxI")
_TAIL: Final = struct.Struct("<BBB5x")
SIZE: Final = _FIELD.size * len(FIELDS) + _TAIL.size
_ENTRY_ONLY: Final = 1
_LAUNCH: Final = 2


class From(enum.IntEnum):
    """Where a value comes from: `enum source` of bpf/events.h."""

    NONE = 0
    ARGUMENT = 1
    BEHIND = 2
    RESULT = 3
    CONSTANT = 4


class Kind(enum.StrEnum):
    """What a call does. Calls of one kind inside each other are one call, if they are ONCE."""

    ALLOCATE = "allocate"
    FREE = "free"
    MAP = "map"
    COPY = "copy"
    SET = "set"
    SYNCHRONIZE = "synchronize"
    LAUNCH = "launch"
    GRAPH = "graph"
    EVENT = "event"
    STREAM = "stream"
    COLLECTIVE = "collective"
    TRANSFER = "transfer"
    COMMUNICATOR = "communicator"
    GROUP = "group"


# The runtime calls the driver, and NCCL's older names its newer ones.
_ONCE: Final = {
    kind: number
    for number, kind in enumerate(
        (
            Kind.ALLOCATE, Kind.FREE, Kind.MAP, Kind.COPY, Kind.SET, Kind.SYNCHRONIZE, Kind.LAUNCH,
            Kind.GRAPH, Kind.EVENT, Kind.STREAM, Kind.COLLECTIVE, Kind.TRANSFER, Kind.COMMUNICATOR,
        ),
        start=1,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """One field's value."""

    source: From = From.NONE
    place: int = 0
    width: int = 8
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function that is probed."""

    name: str
    kind: Kind
    fields: Mapping[str, Source]

    def recipe(self) -> bytes:
        """`struct recipe`, enabled."""
        sources = [self.fields.get(name, Source()) for name in FIELDS]
        packed = [_FIELD.pack(each.source, each.place, each.width, each.offset) for each in sources]
        flags = _LAUNCH if self.kind is Kind.LAUNCH else 0
        return b"".join(packed) + _TAIL.pack(_ONCE.get(self.kind, 0), flags, 1)


def parse_source(text: str) -> Source:
    """One source of the table's little language.

    Raises:
        ValueError: it is none.
    """
    match = _SOURCE.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no source")
    how, place, offset, narrow, constant = match.groups()
    if constant is not None:
        return Source(From.CONSTANT, offset=int(constant))
    source = {None: From.ARGUMENT, "*": From.RESULT, "@": From.BEHIND}[how]
    if (offset is not None and source is From.ARGUMENT) or not int(place):
        raise ValueError(f"'{text}' is no source")
    return Source(source, int(place), 4 if narrow else 8, int(offset or 0))


def parse_table(text: str) -> list[Symbol]:
    """The symbols of a table; `#` at the start of a line is a comment.

    Raises:
        ValueError: a line is wrong, or a name stands there twice.
    """
    symbols: dict[str, Symbol] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("# "):
            continue
        name, kind, *pairs = line.split()
        fields = {}
        for pair in pairs:
            field, _, source = pair.partition("=")
            if field not in FIELDS or field in fields:
                raise ValueError(f"{name}: '{field}' is no field, or stands there twice")
            fields[field] = parse_source(source)
        if name in symbols:
            raise ValueError(f"{name} stands there twice")
        symbols[name] = Symbol(name, Kind(kind), fields)
    return list(symbols.values())
