"""`transit run`: start a job under the shim and say afterwards what happened."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from transit import launch, process, refusals, scratch, signature, stats, streams, summary, verdict
from transit.allocator import Allocator
from transit.errors import TransitError, UsageError
from transit.interruption import Interrupted
from transit.launch import Launch, RunOptions
from transit.signature import Signature
from transit.units import Budget, parse_budget
from transit.verdict import Verification

STDOUT: Final = "-"


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
@click.option(
    "--hbm",
    callback=_parse_budget,
    metavar="SIZE|PCT|auto",
    help="GPU memory per rank; auto by default.",
)
@click.option(
    "--dram",
    callback=_parse_budget,
    metavar="SIZE|PCT|auto",
    help="CPU memory per rank; auto by default.",
)
@click.option("--simulated", is_flag=True, help="Use the simulated GPU; no driver is needed.")
@click.option(
    "--allocator",
    type=click.Choice(list(Allocator), case_sensitive=False),
    help="PyTorch's allocator; native by default. async has no memory snapshots, CUDA IPC or"
    " cudagraph trees.",
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
    "--json",
    "json_target",
    metavar="FILE",
    help="Write the summary as JSON; - is stdout, as its last line.",
)
@click.option(
    "--quiet", is_flag=True, help="No summary and no notes but that a job runs without Transit."
)
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

    For example: transit run --hbm 62GiB -- torchrun --nproc-per-node 8 train.py
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
    if target is None:
        return
    if str(target) == STDOUT:
        if streams.is_closed(streams.STDOUT):
            raise UsageError("cannot write --json -: standard output is closed")
        return
    if not str(target):
        raise UsageError("cannot write '': the name of the file is empty", "--json - is stdout")
    path = Path(target).absolute()
    if path.is_dir():
        raise UsageError(f"cannot write {target}: it is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {target}: its folder does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {target}: permission denied")


def _run(options: RunOptions, job: tuple[str, ...], outputs: Outputs) -> process.Ended:
    with scratch.folder(scratch.RUN) as run_folder:
        prepared = launch.prepare(options, job, os.environ, run_folder)
        identity = signature.of_job(job, prepared) if prepared.shim else None
        known = verdict.recall(identity) if identity else Verification()
        streams.say(_before(prepared, known, outputs.quiet))
        started_ns = time.monotonic_ns()
        ended = process.run_child(job, prepared.environment)
        wall_ns = time.monotonic_ns() - started_ns
        with suppress(Interrupted):  # after the job, a signal costs the summary, never its code
            run = FinishedRun(job, prepared, identity, known, ended.exit_code, wall_ns)
            report = run.report(run_folder, options.log_level in ("info", "debug"))
            _finish(report, run_folder, outputs)
        return ended


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A job that has ended, with what was known of it before it started."""

    job: tuple[str, ...]
    prepared: Launch
    identity: Signature | None
    known: Verification
    exit_code: int
    wall_ns: int

    def report(self, run_folder: Path, verbose: bool) -> summary.RunReport:
        """What the job's processes left in the run's folder, put together."""
        processes, problems = stats.read_folder(run_folder)
        known = self.known
        if self.identity is not None and self.prepared.verifies:
            found = verdict.conclude(processes, self.exit_code, datetime.now(UTC))
            known = verdict.settle(self.identity, found)
        return summary.RunReport(
            exit_code=self.exit_code,
            wall_ns=self.wall_ns,
            simulated=self.prepared.simulated,
            with_shim=self.prepared.shim is not None,
            processes=processes,
            notes=[*self.prepared.notes, *problems],
            refused=refusals.read_folder(run_folder),
            instead=refusals.instead(sys.argv[1:], self.job, os.environ),
            verification=known,
            verbose=verbose,
        )


def _before(prepared: Launch, known: Verification, quiet: bool) -> list[str]:
    """What the user has to know before the job starts: said by one rank, if it is of all.

    That a job runs without Transit is said to the quiet too: they would wait for an out of memory.
    """
    told = [prepared.without] if quiet and prepared.without else []
    if not quiet:
        told = list(prepared.notes)
    lines = [f"transit: {note}" for note in told if os.environ.get("LOCAL_RANK", "0") == "0"]
    if known.verdict is not None and known.verdict.failed and not (quiet or prepared.verifies):
        text, names = summary.kept_verdict(known.verdict)
        lines.append(f"transit: {': '.join(filter(None, [text, ', '.join(names)]))}")
    return lines


def _finish(report: summary.RunReport, run_folder: Path, outputs: Outputs) -> None:
    """Say what happened. Nothing that fails here may replace the job's exit code."""
    if report.with_shim and not outputs.quiet:
        streams.say(summary.to_lines(report))
    if (record_file := outputs.record_file) is not None:
        with _told(record_file):
            _write_recordings(report, run_folder, record_file, outputs.quiet)
    if (target := outputs.json_target) is not None:
        with _told(target):
            _write_json(report, target)


@contextmanager
def _told(target: Path | str) -> Iterator[None]:
    """A failure to write `target` is told, and that is all."""
    try:
        yield
    except TransitError as error:
        streams.say([f"transit: error: {error}"])
    except OSError as error:
        where = error.filename or target
        streams.say([f"transit: error: cannot write {where}: {error.strerror or error}"])


def _write_recordings(
    report: summary.RunReport, run_folder: Path, record_file: Path, quiet: bool
) -> None:
    ranks = {each.pid: each.local_rank for each in report.processes}
    written = launch.collect_recordings(run_folder, record_file, ranks)
    if not quiet:
        nothing = ["transit: warning: the job recorded no step"]
        streams.say([f"transit: recorded {path}" for path in written] or nothing)


def _write_json(report: summary.RunReport, target: str) -> None:
    document = summary.to_json(report)
    if target == STDOUT:
        # The job wrote here too, perhaps without ending its last line.
        sys.stdout.write(f"\n{json.dumps(document)}\n")
    else:
        Path(target).write_text(json.dumps(document, indent=2) + "\n")
