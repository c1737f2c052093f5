"""What a finished job did: lines for people, one object for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from transit import names, refusals
from transit.stats import NamedCount, ProcessStats
from transit.units import counted, fmt_bytes, fmt_count, fmt_ns
from transit.verdict import Verdict, Verification

SCHEMA: Final = "transit.run/1"
MAX_ROWS: Final = 16
_MAX_NAMES: Final = 5
_WAITS: Final = {
    "frames": "for an HBM frame",
    "claim": "for a move to end",
    "prefetch": "for a prefetch",
}
# Kind of named count, the counter of all of them, and what it says.
_COUNTED: Final = (
    ("in_place", "in_place_launches", "launch", "launches", "ran on CPU memory in place"),
    ("pinned", "pinned_extents", "extent", "extents", "pinned"),
    ("unknown", "unknown_launches", "launch", "launches", "of unknown layout"),
)
_BUDGET_ADVICE: Final = "the HBM budget is below"
_MAX_COLUMNS: Final = 110
_BY_SIGNAL: Final = 128  # exit codes above it
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
    refused: Sequence[str] = ()
    instead: str | None = None
    verification: Verification = field(default_factory=Verification)
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class _Detail:
    """A line about a process, and the names that explain it."""

    text: str
    names: tuple[str, ...] = ()


def to_json(report: RunReport) -> dict[str, Any]:
    """The object that `transit run --json` writes."""
    return {
        "schema": SCHEMA,
        "simulated": report.simulated,
        "with_shim": report.with_shim,
        "exit_code": report.exit_code,
        "wall_ns": report.wall_ns,
        "notes": list(report.notes),
        "refused": list(report.refused),
        "verification": _verification_json(report.verification),
        "processes": [_process_json(process) for process in report.processes],
    }


def _verification_json(verification: Verification) -> dict[str, Any]:
    verdict = verification.verdict
    return {"state": "none"} if verdict is None else verdict.to_json()


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
        body += _by_ranks(shown, report.exit_code, _MAX_COLUMNS - len(lead))
        if len(report.processes) > MAX_ROWS:
            body.append(f"{len(report.processes) - MAX_ROWS} more processes are only in --json")
    body += _refusals(report)
    body += _verification(report, _MAX_COLUMNS - len(lead))
    return [lead + line for line in body]


def _by_ranks(processes: Sequence[ProcessStats], exit_code: int, columns: int) -> list[str]:
    """What there is to tell of each rank; what is the same of several is told once."""
    told: dict[tuple[str, tuple[str, ...]], dict[int, None]] = {}
    for process in processes:
        for detail in _details(process, exit_code):
            told.setdefault((detail.text, detail.names), {})[process.local_rank] = None
    lines: list[str] = []
    for (text, named), ranks in told.items():
        who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        lines += _wrapped(f"{who}: {text}", named, columns)
    return lines


def _wrapped(text: str, named: Sequence[str], columns: int) -> list[str]:
    """`text: name, name` on one line if it fits, else the names indented below."""
    if not named:
        return [text]
    whole = f"{text}: {', '.join(named)}"
    if len(whole) <= columns:
        return [whole]
    lines = [f"{text}:"]
    for index, name in enumerate(named):
        piece = name + ("," if index + 1 < len(named) else "")
        if len(lines) > 1 and len(lines[-1]) + len(piece) < columns:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}")
    return lines


def _refusals(report: RunReport) -> Iterable[str]:
    for name in report.refused:
        yield (
            f"PyTorch refused {refusals.describe(name)},"
            " which its backend cudaMallocAsync (--allocator async) does not have"
        )
    if report.refused and report.instead:
        yield f"if the job needs that, {report.instead}"


def _verification(report: RunReport, columns: int) -> Iterable[str]:
    """The verdict of an earlier run; that of this one stands at its ranks."""
    verification, verdict = report.verification, report.verification.verdict
    if verdict is not None and not verification.fresh:
        yield from _wrapped(*kept_verdict(verdict), columns)
    elif verdict is None and not verification.fresh and report.verbose:
        yield "this job is not verified: run it once with --verify"
    if verification.note:
        yield verification.note


def kept_verdict(verdict: Verdict) -> tuple[str, tuple[str, ...]]:
    """A sentence on the verdict of an earlier run, and names that belong to it."""
    when = verdict.verified_at.replace("T", " ").replace("Z", " UTC")
    if verdict.failed:
        count = fmt_count(verdict.hidden_accesses)
        return (
            f"warning: VERIFICATION OF THIS JOB FAILED on {when}:"
            f" hidden accesses ({count}), so its results under Transit may be wrong",
            _names(list(verdict.hidden)),
        )
    return (
        f"verified on {when}: no hidden access in {counted(verdict.steps, 'step')},"
        f" {int(verdict.share * 100)} % of the managed memory unmapped"
    ), ()


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


def _details(process: ProcessStats, exit_code: int) -> Iterable[_Detail]:
    counter = process.counter
    waits = [
        f"{fmt_ns(counter(f'wait_{what}_ns'))} {text}"
        for what, text in _WAITS.items()
        if counter(f"wait_{what}_ns")
    ]
    if waits:
        yield _Detail(f"launches waited {_enumerated(waits)}")
    for kind, total, one, several, what in _COUNTED:
        named = process.of_kind(kind)
        if counter(total) or (kind == "pinned" and named):
            yield _Detail(f"{counted(counter(total), one, several)} {what}", _names(named))
    if passed := process.of_kind("passed"):
        yield _Detail("requests passed through", _names(passed))
    yield from _memory_refusals(process, exit_code)
    yield from _verdict(process, exit_code == 0)
    yield from _warnings(process)
    if not process.ended:
        yield _Detail("the process ended without saying so; its figures are its last ones")


def _memory_refusals(process: ProcessStats, exit_code: int) -> Iterable[_Detail]:
    """A caching allocator that is refused gives back what it keeps unused, and asks again."""
    dram_bytes = process.counter("dram_budget_bytes")
    more = "--dram, or --hbm" if dram_bytes else "--hbm"
    refused = fmt_bytes(process.counter("refused_bytes"))
    once = fmt_bytes(process.counter("refused_once_bytes"))
    if process.counter("refused_bytes") and exit_code == 0:
        yield _Detail(
            f"requests of {refused} in all fitted only after the job had given back memory that it"
            f" kept unused (PyTorch's cache); more {more} may be faster"
        )
    elif process.counter("refused_bytes"):
        both = process.counter("hbm_budget_bytes") + dram_bytes
        yield _Detail(
            f"requests of {refused} in all were refused: HBM and DRAM budgets hold"
            f" {fmt_bytes(both)} together; if the job ended out of memory, give more {more}"
        )
    elif process.counter("refused_once_bytes") and 0 < exit_code < _BY_SIGNAL:
        yield _Detail(
            f"requests of {once} in all did not fit in HBM and were refused once, so that a cache"
            " such as PyTorch's gives back what it keeps unused and asks again; a program that"
            " does not ask again needs more --hbm"
        )


def _enumerated(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _verdict(process: ProcessStats, well: bool) -> Iterable[_Detail]:
    hidden, verified = process.of_kind("hidden"), process.counter("unmapped_bytes_verified")
    count = process.counter("hidden_accesses")
    if count or hidden:
        found = counted(count, "hidden access", "hidden accesses")
        yield _Detail(f"VERIFICATION FAILED: {found}", _names(hidden))
    elif verified:
        lead = "verification passed" if well else "verification did not come to its end"
        yield _Detail(f"{lead}: no hidden access to {fmt_bytes(verified)} of unmapped memory")


def _warnings(process: ProcessStats) -> Iterable[_Detail]:
    """The shim's warnings; its advice on the budget with the figure as it was at the end."""
    smallest = process.counter("smallest_budget_bytes")
    for each in process.of_kind("warning"):
        if not (smallest and each.name.startswith(_BUDGET_ADVICE)):
            yield _Detail(f"warning: {each.name}")
    if smallest:
        full = process.counter("dram_budget_bytes")
        used = process.counter("dram_peak_bytes") + process.counter("extent_bytes")
        more_dram = "more --dram, which was full, or " if 0 < full < used else ""
        yield _Detail(
            f"the budget is below what the job uses at once, which makes it slow;"
            f" try {more_dram}--hbm {-(-smallest // 2**20)}MiB or more"
        )


def _names(counts: list[NamedCount]) -> tuple[str, ...]:
    """`kernel × n`, readable; kernels that differ in template arguments only are one."""
    merged: dict[str, int] = {}
    for each in counts:
        name = names.short(each.name)
        merged[name] = merged.get(name, 0) + each.count
    rows = sorted(merged.items(), key=lambda row: (-row[1], row[0]))
    shown = [f"{name} × {fmt_count(count)}" for name, count in rows[:_MAX_NAMES]]
    if (more := len(rows) - _MAX_NAMES) > 0:
        shown[-1] += f" and {more} more"
    return tuple(shown)
