"""`transit demo`: a small training job without and with Transit, compared bit by bit."""

import sys

import click

from transit import scratch
from transit.demo import training
from transit.demo.training import Training
from transit.errors import ExitCode
from transit.units import counted, fmt_bytes, fmt_ns

MIN_MOVES = 100


@click.command(name="demo", epilog="Exit code: 0 if every check holds, else 1.")
@click.option("--steps", type=click.IntRange(2), default=20, show_default=True, metavar="N",
              help="Training steps of each run.")  # fmt: skip
def command(steps: int) -> None:
    """Train a small GPT on the simulated GPU, without and with Transit.

    The second run gets half of the GPU memory that the first one used. Its losses must be the
    same bit for bit, the simulated driver must have seen it stay within the budget, and it must
    have moved memory at least a hundred times.
    """
    click.echo("A small GPT on the simulated GPU: no GPU is used, every figure is simulated.\n")
    with scratch.folder(scratch.DEMO) as folder:
        without = training.train_without(steps, folder)
        _show("without Transit", without)
        budget = without.peak_hbm_bytes // 2
        dram = max(2 * without.peak_hbm_bytes, 64 * 2**20)
        trained = training.train_with(steps, budget, dram, folder)
        _show("with Transit", trained)
    results = checks(without, trained, budget)
    click.echo()
    for holds, text in results:
        mark = click.style("ok    ", fg="green") if holds else click.style("FAILED", fg="red")
        click.echo(f"  {mark}  {text}")
    sys.exit(ExitCode.OK if all(holds for holds, _ in results) else ExitCode.FAILED)


def checks(without: Training, trained: Training, budget: int) -> list[tuple[bool, str]]:
    """What the demonstration promises, and whether it holds."""
    moves = trained.counters.get("offloads", 0) + trained.counters.get("prefetches", 0)
    out = fmt_bytes(trained.counters.get("offload_bytes", 0))
    back = fmt_bytes(trained.counters.get("prefetch_bytes", 0))
    equal = without.losses == trained.losses
    return [
        (equal, f"losses of all {len(without.losses)} steps are {'' if equal else 'not '}"
                "the same bit for bit"),
        (trained.peak_hbm_bytes <= budget,
         f"simulated GPU memory peaked at {fmt_bytes(trained.peak_hbm_bytes)}"
         f" of a budget of {fmt_bytes(budget)}"),
        (moves >= MIN_MOVES,
         f"{counted(moves, 'simulated move')}: {out} out to CPU memory, {back} back"),
    ]  # fmt: skip


def _show(name: str, trained: Training) -> None:
    first, last = (float.fromhex(trained.losses[index]) for index in (0, -1))
    click.echo(
        f"  {name:<16}  loss {first:.4f} to {last:.4f}, simulated GPU memory"
        f" {fmt_bytes(trained.peak_hbm_bytes)}, simulated CPU memory"
        f" {fmt_bytes(trained.peak_dram_bytes)}, {fmt_ns(trained.wall_ns)}"
    )
