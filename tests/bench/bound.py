"""The least time and traffic of a recorded step under HBM budgets, whatever the policy.

Reads a file of `transit run --record-step` (docs/formats.md); record it with a budget that does not
bind, since its GPU times are taken as those without Transit. Memory is a fluid here: bytes that
must be away flow out as early and back as late as the link allows, beside the kernels; a kernel
waits only while more lives than the budget holds; and what is away when the optimizer begins has
to come in for its update, and as much to go out for it. Which bytes those are is left open, as are
extents, the latency of a move and memory that cannot move, so a real run is slower.
"""

import argparse
import bisect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from transit.errors import TransitError
from transit.units import fmt_bytes, parse_size

DEFAULT_SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step: what lives at each operation, and how long each took on the GPU."""

    live_bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    optimizer: int  # index of its first launch; the number of operations if there is none

    @property
    def resident_s(self) -> float:
        """The step's time as it was recorded."""
        return sum(self.seconds)


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes per second between HBM and DRAM: one way, the other, and each of both at once."""

    out: float
    back: float
    both: float


@dataclass(frozen=True, slots=True)
class Bound:
    """The best steady step under a budget."""

    seconds: float
    out_bytes: float
    in_bytes: float


class NotARecord(Exception):
    """A file that does not hold a whole recorded step."""


class Living:
    """The blocks that live, as births and deaths are read."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.sizes: dict[int, int] = {}
        self.total = 0

    def born(self, start: int, size: int) -> None:
        """A block; those that it overlaps are gone (their ends were never told)."""
        at = bisect.bisect_left(self.starts, start)
        if at and self.starts[at - 1] + self.sizes[self.starts[at - 1]] > start:
            at -= 1
        while at < len(self.starts) and self.starts[at] < start + size:
            self.died(self.starts[at])
        self.starts.insert(at, start)
        self.sizes[start] = size
        self.total += size

    def died(self, start: int) -> None:
        """The end of a block; of anything else nothing is known."""
        if start in self.sizes:
            del self.starts[bisect.bisect_left(self.starts, start)]
            self.total -= self.sizes.pop(start)


def parse(text: str) -> Step:
    """Read a record; NotARecord tells that it is something else, or only part of a step."""
    living, optimizers, kinds = Living(), set(), []
    live: list[int] = []
    ends_us: dict[int, float] = {}
    optimizer = None
    for line in text.splitlines():
        kind, *fields = line.split(",")
        kinds.append(kind)
        try:
            if kind in ("A", "B"):
                living.born(int(fields[-2], 16), int(fields[-1]))
            elif kind == "F":
                living.died(int(fields[1], 16))
            elif kind == "K" and fields[1] == "o":
                optimizers.add(fields[0])
            elif kind in ("L", "M"):
                if optimizer is None and fields[1] in optimizers:
                    optimizer = len(live)
                live.append(living.total)
            elif kind == "G":
                ends_us[int(fields[0])] = float(fields[1])
        except (IndexError, ValueError) as error:
            raise NotARecord(f"line {len(kinds)} is not of a recorded step: {line[:60]}") from error
    if kinds[:1] != ["S"] or kinds.count("S") != 2 or not live or not ends_us:
        raise NotARecord("this is not a whole recorded step")
    times = tuple(durations([ends_us.get(index) for index in range(len(live))]))
    return Step(tuple(live), times, len(live) if optimizer is None else optimizer)


def durations(ends_us: Sequence[float | None]) -> Iterator[float]:
    """Seconds from the latest end before to each end; 0 for what ended earlier or has no time."""
    latest = 0.0
    for end in ends_us:
        yield max(0.0, (end or 0.0) - latest) / 1e6
        latest = max(latest, end or 0.0)


def bound(step: Step, budget_bytes: float, link: Link) -> Bound:
    """The best steady step: repeated until it begins as it ends."""
    excess = [max(0.0, live - budget_bytes) for live in step.live_bytes]
    away, result = 0.0, Bound(step.resident_s, 0, 0)
    for _ in range(8):
        before = away
        result, away = one_step(step, excess, away, link)
        if abs(away - before) < 1:
            break
    return result


def one_step(step: Step, excess: Sequence[float], away: float, link: Link) -> tuple[Bound, float]:
    """One step that begins with `away` bytes in DRAM; also what is there when it ends."""
    fullest = max(range(len(excess)), key=excess.__getitem__)
    # The most that has to be away at each operation or later, as long as no optimizer runs.
    stay = list(accumulate(reversed(excess[: step.optimizer]), max))[::-1]
    seconds = out = back = 0.0
    for index, lasts in enumerate(step.seconds):
        if index == step.optimizer:  # all parameters and states pass through HBM now
            seconds += away / link.both
            out, back, away = out + excess[index], back + away, excess[index]
        if away < excess[index]:  # the kernel waits for room
            seconds += (excess[index] - away) / link.out
            out, away = out + excess[index] - away, excess[index]
        seconds += lasts
        if index < fullest or index >= step.optimizer:
            moved = min(excess[fullest] - away, link.out * lasts)
            out, away = out + moved, away + moved
        else:
            moved = max(0.0, min(away - stay[index], link.back * lasts))
            back, away = back + moved, away - moved
    return Bound(seconds, out, back), away


def report(step: Step, budgets: Sequence[int], overhead: int, link: Link) -> Iterator[str]:
    """The figures, line by line."""
    peak = max(step.live_bytes)
    yield f"{len(step.seconds)} operations in {step.resident_s:.4f} s, live peak {fmt_bytes(peak)}"
    if step.optimizer < len(step.seconds):
        yield f"live when the optimizer begins: {fmt_bytes(step.live_bytes[step.optimizer])}"
    else:
        yield "no optimizer kernel is known in this step: the bound leaves its traffic out"
    for budget in budgets or [int(peak * share) + overhead for share in DEFAULT_SHARES]:
        best = bound(step, budget - overhead, link)
        yield (
            f"{fmt_bytes(budget):>10}: at least {best.seconds:.4f} s"
            f" ({step.resident_s / best.seconds:.1%} of the resident speed),"
            f" {fmt_bytes(int(best.out_bytes))} out, {fmt_bytes(int(best.in_bytes))} in"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("record", type=Path, help="a file of transit run --record-step")
    add("--hbm", action="append", default=[], metavar="SIZE", help="a budget; may be repeated")
    add("--overhead", default="0", metavar="SIZE", help="what of each budget is not for live bytes")
    for name, default in (("out", 55.4), ("in", 55.5), ("both", 50.5)):
        text = f"the link's speed, {name} (%(default)s, an H200's)"
        add(f"--{name}-gbs", type=float, default=default, metavar="GB/S", help=text)
    told = parser.parse_args(arguments)
    link = Link(*(1e9 * getattr(told, f"{name}_gbs") for name in ("out", "in", "both")))
    try:
        budgets, overhead = [parse_size(size) for size in told.hbm], parse_size(told.overhead)
        for line in report(parse(told.record.read_text()), budgets, overhead, link):
            print(line)
    except (OSError, UnicodeDecodeError, NotARecord, TransitError) as error:
        print(f"{told.record}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
