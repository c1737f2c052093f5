"""Sizes, shares and durations: from what people type, and to what people read."""

import enum
import re
from dataclasses import dataclass
from typing import Final

from transit.errors import UsageError

NA: Final = "n/a"

_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b?)", re.IGNORECASE | re.ASCII)
_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_NEGATIVE: Final = re.compile(r"-\d.*")
_MAX_BYTES: Final = 2**63 - 1
_LEAST_BUDGET_BYTES: Final = 32 << 20  # one extent, the least that can move


class BudgetKind(enum.StrEnum):
    """How a budget was given."""

    BYTES = "bytes"
    PERCENT = "percent"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as the user gave it: bytes, percent of something, or automatic."""

    kind: BudgetKind
    value: float = 0

    def bytes_of(self, whole_bytes: int) -> int:
        """The budget in bytes, for a percentage of `whole_bytes`."""
        if self.kind is BudgetKind.BYTES:
            return int(self.value)
        if self.kind is BudgetKind.PERCENT:
            return int(whole_bytes * self.value / 100)
        raise ValueError("an automatic budget has no size of its own")

    def __str__(self) -> str:
        if self.kind is BudgetKind.BYTES:
            return str(int(self.value))
        return f"{self.value:g}%" if self.kind is BudgetKind.PERCENT else "auto"


AUTO: Final = Budget(BudgetKind.AUTO)


def parse_size(text: str, others: str = "") -> int:
    """Bytes from `62GiB`, `62G`, `62GB` or `66571993088`.

    `K M G T P`, alone or with `i` or `iB`, count in 1024s; `KB MB GB TB PB` in 1000s.
    """
    if _NEGATIVE.fullmatch(text.strip()):
        raise UsageError(f"'{text}' is negative", "give a size above 0")
    match = _SIZE.fullmatch(text.strip())
    if match is None or (not match[2] and "i" in match[3].lower()):
        raise UsageError(f"'{text}' is not a size", f"write bytes, or a size such as 62GiB{others}")
    base = 1000 if match[2] and match[3].lower() == "b" else 1024
    power = _POWERS[match[2].lower()]
    whole, _, fraction = match[1].partition(".")
    size = int(whole + fraction) * int(base**power) // int(10 ** len(fraction))
    if size > _MAX_BYTES:
        raise UsageError(f"'{text}' is larger than any memory")
    return size


def parse_budget(text: str) -> Budget:
    """A budget from a size, a percentage above 0 and up to 100, or `auto`."""
    stripped = text.strip()
    if stripped.lower() == "auto":
        return AUTO
    if match := _PERCENT.fullmatch(stripped):
        percent = float(match[1])
        if not 0 < percent <= 100:
            raise UsageError(f"'{text}' is not between 0 % and 100 %")
        return Budget(BudgetKind.PERCENT, percent)
    size = parse_size(stripped, ", or a percentage such as 45%, or auto")
    if size == 0:
        raise UsageError("a budget of nothing holds nothing", "give a size above 0, or auto")
    if size < _LEAST_BUDGET_BYTES:
        raise UsageError(
            f"'{text}' is a budget of {fmt_bytes(size)}, which holds no model",
            "give 32 MiB or more; a number alone counts bytes: write GiB behind it for gibibytes",
        )
    return Budget(BudgetKind.BYTES, size)


def fmt_bytes(size: int | None) -> str:
    """`62.0 GiB`; `n/a` for None."""
    if size is None:
        return NA
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while abs(value) >= 1023.95 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{int(value)} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def fmt_ns(duration_ns: int | None) -> str:
    """`13 ns`, `4.2 µs`, `1.5 ms`, `12.0 s`; `n/a` for None."""
    if duration_ns is None:
        return NA
    for limit, divisor, unit in ((1e3, 1e0, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if duration_ns < limit:
            return f"{duration_ns / divisor:.{0 if unit == 'ns' else 1}f} {unit}"
    return f"{duration_ns / 1e9:.1f} s"


def counted(count: int, noun: str, several: str | None = None) -> str:
    """`1 move`, `2 moves`, `1,024 launches`."""
    return f"{fmt_count(count)} {noun if count == 1 else several or noun + 's'}"


def fmt_count(count: int | None) -> str:
    """`12,345`; `n/a` for None."""
    return NA if count is None else f"{count:,}"
