"""Compare ways of running a training job, interleaved, each run in a fresh process.

    python bench.py --rounds 5 --out results \\
        --config resident="python3 tests/workloads/llama.py --size 3b" \\
        --config transit="python3 -m transit run --hbm 62GiB -- python3 tests/workloads/llama.py"
    python bench.py bench.toml --out results

The TOML file holds `rounds`, `timeout_s`, `metric` (all optional) and a table [configs] from name
to command line. `--json FILE` is appended to a command, or FILE takes the place of {json} in it;
the metric is read from that file. The order is reversed every other round. Ratios are to the
first configuration, pairwise per round. Writes OUT/bench.json and one log per run; exits with 1
if a run failed.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_memory import MemorySampler, Peak
from spread import Interval, Spread, paired_ratio, spread

METRIC = "tokens_per_s_per_gpu"
TERMINATE_S = 10  # grace between SIGTERM and SIGKILL after a timeout


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run."""

    configs: dict[str, str]
    rounds: int
    timeout_s: float
    metric: str


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one configuration; `exit_code` is None after a timeout."""

    config: str
    round: int
    exit_code: int | None
    wall_s: float
    memory: Peak | None
    result: dict | None

    @property
    def failed(self) -> bool:
        return self.exit_code != 0 or self.result is None


@dataclass(frozen=True, slots=True)
class Row:
    """Summary of one configuration."""

    config: str
    failed: int
    values: Spread | None
    ratio: Interval | None
    peak_bytes: int | None


def main() -> int:
    """Run everything, write the results, print the table."""
    args = parse_arguments()
    plan = make_plan(args)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    for number, name in schedule(list(plan.configs), plan.rounds):
        runs.append(run(plan, name, number, out))
        print(describe(runs[-1], plan.metric), flush=True)
        write(out / "bench.json", plan, runs)
    print_table(summarise(plan, runs), plan.metric)
    return 1 if any(r.failed for r in runs) else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", help="TOML file with the configurations")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="per run; default 600")
    parser.add_argument("--metric", help=f"key in the runs' JSON; default {METRIC}")
    parser.add_argument("--out", default="bench-results", metavar="DIR")
    args = parser.parse_args()
    if not args.file and not args.config:
        parser.error("give a TOML file or --config")
    return args


def make_plan(args: argparse.Namespace) -> Plan:
    """Join file and command line; the command line wins."""
    given = tomllib.loads(Path(args.file).read_text()) if args.file else {}
    configs = dict(given.get("configs", {}))
    for text in args.config:
        name, equals, command = text.partition("=")
        if not (name and equals and command):
            sys.exit(f"bench.py: --config wants NAME=COMMAND, not {text!r}")
        configs[name] = command
    return Plan(
        configs=configs,
        rounds=args.rounds or given.get("rounds", 3),
        timeout_s=args.timeout or given.get("timeout_s", 600.0),
        metric=args.metric or given.get("metric", METRIC),
    )


def schedule(names: list[str], rounds: int) -> list[tuple[int, str]]:
    """Order of the runs: every round has all, every other round backwards."""
    return [
        (number, name)
        for number in range(rounds)
        for name in (reversed(names) if number % 2 else names)
    ]


def run(plan: Plan, name: str, number: int, out: Path) -> Run:
    """Run one configuration once, with its output in a log."""
    stem = out / f"{name}-{number}"
    result_file = stem.with_suffix(".json")
    result_file.unlink(missing_ok=True)
    command = command_line(plan.configs[name], result_file)
    begin = time.monotonic()
    with open(stem.with_suffix(".log"), "wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        with MemorySampler(child.pid) as sampler:
            exit_code = wait(child, plan.timeout_s)
    wall_s = time.monotonic() - begin
    return Run(name, number, exit_code, wall_s, sampler.peak, read_result(result_file))


def command_line(text: str, result_file: Path) -> list[str]:
    """Split a command and tell it where to write its measurements."""
    words = shlex.split(text)
    if any("{json}" in word for word in words):
        return [word.replace("{json}", str(result_file)) for word in words]
    return [*words, "--json", str(result_file)]


def wait(child: subprocess.Popen, timeout_s: float) -> int | None:
    """Wait for a child; end its process group and return None if it takes too long."""
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(TERMINATE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return None


def read_result(path: Path) -> dict | None:
    """The measurements a run wrote, or None if it did not get that far."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def value(one: Run, metric: str) -> float | None:
    """The metric of a run that went well."""
    return None if one.failed else one.result.get(metric)


def describe(one: Run, metric: str) -> str:
    """One line of progress."""
    if one.exit_code is None:
        outcome = "timed out"
    elif one.failed:
        outcome = f"failed with {one.exit_code}" if one.exit_code else "wrote no result"
    else:
        outcome = f"{metric} {one.result.get(metric)}"
    return f"round {one.round}  {one.config}: {outcome}  ({one.wall_s:.0f} s)"


def summarise(plan: Plan, runs: list[Run]) -> list[Row]:
    """One row per configuration, in the order given."""
    by_config = {
        name: {
            r.round: value(r, plan.metric)
            for r in runs
            if r.config == name and value(r, plan.metric) is not None
        }
        for name in plan.configs
    }
    base = by_config[next(iter(plan.configs))]
    rows = []
    for name, values in by_config.items():
        own = [r for r in runs if r.config == name]
        peaks = [r.memory.peak_bytes for r in own if r.memory]
        failed = sum(r.failed for r in own)
        ratio = paired_ratio(values, base)
        rows.append(
            Row(name, failed, spread(list(values.values())), ratio, max(peaks, default=None))
        )
    return rows


def write(path: Path, plan: Plan, runs: list[Run]) -> None:
    """Write all results so far."""
    rows = summarise(plan, runs)
    content = {"plan": asdict(plan), "runs": runs, "summary": rows}
    path.write_text(json.dumps(content, indent=1, default=asdict) + "\n")


def print_table(rows: list[Row], metric: str) -> None:
    """The summary as a Markdown table."""
    base = rows[0].config
    titles = ("config", f"{metric}: median (low to high)", f"ratio to {base} (95 %)")
    print(f"\n| {' | '.join(titles)} | peak GPU MiB | failed |")
    print("|---|---|---|---|---|")
    for row in rows:
        peak = "n/a" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}"
        cells = (row.config, format_spread(row.values), format_ratio(row.ratio), peak, row.failed)
        print(f"| {' | '.join(str(cell) for cell in cells)} |")


def format_spread(values: Spread | None) -> str:
    """Median and extremes."""
    return f"{values.median:.1f} ({values.low:.1f} to {values.high:.1f})" if values else "n/a"


def format_ratio(ratio: Interval | None) -> str:
    """Mean ratio and its interval."""
    if ratio is None:
        return "n/a"
    if ratio.low is None:
        return f"{ratio.mean:.3f}"
    return f"{ratio.mean:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
