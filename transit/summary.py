"""What a finished job did: lines for people, one object for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from transit.stats import NamedCount, ProcessStats
from transit.units import fmt_bytes, fmt_count, fmt_ns

SCHEMA: Final = "transit.run/1"
MAX_ROWS: Final = 16
_MAX_NAMES: Final = 5
_WAITS: Final = {
    "frames": "for an HBM frame",
    "claim": "for a move to end",
    "prefetch": "for a prefetch",
}
_HEAD: Final = ("rank", "pid", "HBM peak", "budget", "DRAM peak", "budget", "out", "in", "waited")


@dataclass(frozen=True, slots=True)
class RunReport:
    """A finished job."""

    exit_code: int
    wall_ns: int
    simulated: bool
    with_shim: bool
    processes: Sequence[ProcessStats] = ()
    notes: Sequence[str] = ()


def to_json(report: RunReport) -> dict[str, Any]:
    """The object that `transit run --json` writes."""
    return {
        "schema": SCHEMA,
        "simulated": report.simulated,
        "with_shim": report.with_shim,
        "exit_code": report.exit_code,
        "wall_ns": report.wall_ns,
        "notes": list(report.notes),
        "processes": [_process_json(process) for process in report.processes],
    }


def _process_json(process: ProcessStats) -> dict[str, Any]:
    named: dict[str, list[dict[str, Any]]] = {}
    for each in sorted(process.named, key=lambda item: (item.kind, -item.count, item.name)):
        named.setdefault(each.kind, []).append({"name": each.name, "count": each.count})
    return {
        "pid": process.pid,
        "local_rank": process.local_rank,
        "ended": process.ended,
        "counters": dict(sorted(process.counters.items())),
        "named": named,
    }


def to_lines(report: RunReport) -> list[str]:
    """The table for standard error. Every line says it when its figures are simulated."""
    lead = "transit (simulated): " if report.simulated else "transit: "
    body = [note for note in report.notes if note.startswith("statistics")]
    if not report.processes:
        body.append("no process of the job used CUDA through the shim")
    else:
        shown = report.processes[:MAX_ROWS]
        body += _table([_row(process) for process in shown])
        for process in shown:
            body += [f"rank {process.local_rank}: {text}" for text in _details(process)]
        if len(report.processes) > MAX_ROWS:
            body.append(f"{len(report.processes) - MAX_ROWS} more processes are only in --json")
    return [lead + line for line in body]


def _row(process: ProcessStats) -> tuple[str, ...]:
    counter = process.counter
    waited = sum(counter(f"wait_{what}_ns") for what in _WAITS)
    return (
        str(process.local_rank),
        str(process.pid),
        fmt_bytes(counter("hbm_peak_bytes")),
        fmt_bytes(counter("hbm_budget_bytes")),
        fmt_bytes(counter("dram_peak_bytes")),
        fmt_bytes(counter("dram_budget_bytes")),
        fmt_bytes(counter("offload_bytes")),
        fmt_bytes(counter("prefetch_bytes")),
        fmt_ns(waited),
    )


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    table = [_HEAD, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]


def _details(process: ProcessStats) -> Iterable[str]:
    counter = process.counter
    waits = [
        f"{fmt_ns(counter(f'wait_{what}_ns'))} {text}"
        for what, text in _WAITS.items()
        if counter(f"wait_{what}_ns")
    ]
    if waits:
        yield "waited " + ", ".join(waits)
    if counter("in_place_launches"):
        count = fmt_count(counter("in_place_launches"))
        yield f"{count} launches ran on CPU memory in place{_names(process.of_kind('in_place'))}"
    if counter("pinned_extents") or process.of_kind("pinned"):
        count = fmt_count(counter("pinned_extents"))
        yield f"{count} pinned extents{_names(process.of_kind('pinned'))}"
    if counter("unknown_launches"):
        count = fmt_count(counter("unknown_launches"))
        yield f"{count} launches with unknown layout{_names(process.of_kind('unknown'))}"
    if passed := process.of_kind("passed"):
        yield f"requests passed through{_names(passed)}"
    if counter("refused_bytes"):
        yield f"{fmt_bytes(counter('refused_bytes'))} answered with out of memory" + _smallest(
            counter("smallest_budget_bytes")
        )
    yield from _verdict(process)
    yield from (f"warning: {each.name}" for each in process.of_kind("warning"))
    if not process.ended:
        yield "the process ended without saying so; its figures are its last ones"


def _verdict(process: ProcessStats) -> Iterable[str]:
    hidden, verified = process.of_kind("hidden"), process.counter("unmapped_bytes_verified")
    count = process.counter("hidden_accesses")
    if count or hidden:
        yield f"VERIFICATION FAILED: {fmt_count(count)} hidden accesses{_names(hidden)}"
    elif verified:
        yield (f"verification passed: no hidden access to {fmt_bytes(verified)} of unmapped memory")


def _smallest(budget_bytes: int) -> str:
    return f"; the smallest sufficient budget is {fmt_bytes(budget_bytes)}" if budget_bytes else ""


def _names(counts: list[NamedCount]) -> str:
    if not counts:
        return ""
    shown = ", ".join(f"{each.name} × {fmt_count(each.count)}" for each in counts[:_MAX_NAMES])
    more = len(counts) - _MAX_NAMES
    return f": {shown}" + (f" and {more} more" if more > 0 else "")
