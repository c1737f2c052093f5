"""`transit run`: start a job under the shim and say afterwards what happened."""

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from transit import launch, process, refusals, signature, stats, summary, verdict
from transit.allocator import Allocator
from transit.errors import TransitError, UsageError
from transit.launch import RunOptions
from transit.units import Budget, parse_budget
from transit.verdict import Verification


def _parse_budget(ctx: click.Context, param: click.Parameter, value: str | None) -> Budget | None:
    try:
        return None if value is None else parse_budget(value)
    except UsageError as error:
        text = f"{error}; {error.hint}" if error.hint else str(error)
        raise click.BadParameter(text, ctx, param) from error


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the results go."""

    record_file: Path | None
    json_target: str | None
    quiet: bool


@click.command(
    name="run",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="Exit code: the job's own; 126 or 127 if it cannot be started, 128+N on signal N.",
)
@click.option("--hbm", callback=_parse_budget, metavar="SIZE|PCT|auto", help="GPU memory per rank.")
@click.option(
    "--dram", callback=_parse_budget, metavar="SIZE|PCT|auto", help="CPU memory per rank."
)
@click.option("--simulated", is_flag=True, help="Use the simulated GPU; no driver is needed.")
@click.option(
    "--allocator",
    type=click.Choice(list(Allocator), case_sensitive=False),
    help="PyTorch's allocator. async has no memory snapshots, CUDA IPC or cudagraph trees.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Look for hidden accesses in a few steps, slowly; later runs tell the verdict.",
)
@click.option("--record-step", type=click.IntRange(0), metavar="N", help="Record step N's touches.")
@click.option("--record-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where to write the recorded step (transit.step).")  # fmt: skip
@click.option(
    "--json", "json_target", metavar="FILE", help="Write the summary as JSON; - is stdout."
)
@click.option("--quiet", is_flag=True, help="No summary and no notes.")
@click.argument("job", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_obj
def command(
    verbose: int,
    hbm: Budget | None,
    dram: Budget | None,
    simulated: bool,
    allocator: Allocator | None,
    verify: bool,
    record_step: int | None,
    record_file: Path | None,
    json_target: str | None,
    quiet: bool,
    job: tuple[str, ...],
) -> None:
    """Run a training job with CPU memory as an extension of GPU memory.

    Sizes are bytes or such as 62GiB. auto takes the whole device, and the CPU memory that is
    free less a reserve, which all ranks of the node share; so do percentages of CPU memory.
    """
    if record_file is not None and record_step is None:
        raise click.UsageError("--record-file needs --record-step")
    if record_step is not None:
        record_file = record_file or Path("transit.step")
    for target in (record_file, json_target):
        _refuse_unwritable(target)
    level = "quiet" if quiet else {0: None, 1: "info"}.get(verbose, "debug")
    options = RunOptions(hbm, dram, simulated, allocator, verify, record_step, level)
    outputs = Outputs(record_file, json_target, quiet)
    process.end_like(_run(options, job, outputs))


def _refuse_unwritable(target: Path | str | None) -> None:
    """Better now than after a day of training."""
    if target is None or str(target) == "-":
        return
    path = Path(target).absolute()
    if path.is_dir():
        raise UsageError(f"cannot write {target}: it is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {target}: its folder does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {target}: permission denied")


def _make_run_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="transit-run-"))
    except OSError as error:
        raise TransitError(
            f"cannot make a folder for the job's statistics: {error.strerror or error}",
            "set TMPDIR to a folder that can be written to",
        ) from error


def _run(options: RunOptions, job: tuple[str, ...], outputs: Outputs) -> process.Ended:
    run_folder = _make_run_folder()
    try:
        prepared = launch.prepare(options, job, os.environ, run_folder)
        identity = signature.of_job(job, prepared) if prepared.shim else None
        known = verdict.recall(identity) if identity else Verification()
        _say(_before(prepared, known), outputs.quiet)
        started_ns = time.monotonic_ns()
        ended = process.run_child(job, prepared.environment)
        wall_ns = time.monotonic_ns() - started_ns
        processes, problems = stats.read_folder(run_folder)
        if identity is not None and prepared.verifies:
            found = verdict.conclude(processes, ended.exit_code, datetime.now(UTC))
            known = verdict.settle(identity, found)
        report = summary.RunReport(
            exit_code=ended.exit_code,
            wall_ns=wall_ns,
            simulated=prepared.simulated,
            with_shim=prepared.shim is not None,
            processes=processes,
            notes=[*prepared.notes, *problems],
            refused=refusals.read_folder(run_folder),
            instead=refusals.instead(sys.argv[1:], job, os.environ),
            verification=known,
            verbose=options.log_level in ("info", "debug"),
        )
        _finish(report, run_folder, outputs)
        return ended
    finally:
        shutil.rmtree(run_folder, ignore_errors=True)


def _before(prepared: launch.Launch, known: Verification) -> list[str]:
    """What the user has to know before the job starts: said by one rank, if it is of all."""
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    lines = [f"transit: {note}" for note in prepared.notes if first]
    if known.verdict is not None and known.verdict.failed and not prepared.verifies:
        text, names = summary.kept_verdict(known.verdict)
        lines.append(f"transit: {': '.join(filter(None, [text, ', '.join(names)]))}")
    return lines


def _finish(report: summary.RunReport, run_folder: Path, outputs: Outputs) -> None:
    """Say what happened. Nothing that fails here may replace the job's exit code."""
    if report.with_shim:
        _say(summary.to_lines(report), outputs.quiet)
    try:
        if outputs.json_target is not None:
            _write_json(report, outputs.json_target)
        if outputs.record_file is not None:
            ranks = {each.pid: each.local_rank for each in report.processes}
            written = launch.collect_recordings(run_folder, outputs.record_file, ranks)
            _say([f"transit: recorded {path}" for path in written], outputs.quiet)
            if not written:
                _say(["transit: warning: the job recorded no step"], outputs.quiet)
    except TransitError as error:
        _say([f"transit: error: {error}"], False)
    except OSError as error:
        where = error.filename or outputs.json_target or outputs.record_file
        _say([f"transit: error: cannot write {where}: {error.strerror or error}"], False)


def _write_json(report: summary.RunReport, target: str) -> None:
    text = json.dumps(summary.to_json(report), indent=2)
    if target == "-":
        click.echo(text)
    else:
        Path(target).write_text(text + "\n")


def _say(lines: list[str], silent: bool) -> None:
    if not silent:
        sys.stderr.writelines(f"{line}\n" for line in lines)
        sys.stderr.flush()
