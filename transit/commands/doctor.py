"""`transit doctor`: what of this machine Transit can use."""

import dataclasses
import json
import sys

import click

from transit.doctor import Check, State, all_checks
from transit.errors import ExitCode
from transit.units import counted

_MARKS = {State.OK: ("ok", "green"), State.WARNING: ("warning", "yellow"),
          State.PROBLEM: ("problem", "red")}  # fmt: skip


@click.command(name="doctor", epilog="Exit code: 0 without a problem, else 1; 5 on other machines.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
def command(as_json: bool) -> None:
    """Tell what of this machine Transit can use, and how to mend the rest.

    Nothing is changed, loaded into the kernel or started on a GPU.
    """
    checks = all_checks()
    healthy = all(check.state is not State.PROBLEM for check in checks)
    if as_json:
        rows = [dataclasses.asdict(check) for check in checks]
        document = {"schema": "transit.doctor/1", "ok": healthy, "checks": rows}
        click.echo(json.dumps(document, indent=2))
    else:
        _show(checks)
    sys.exit(ExitCode.OK if healthy else ExitCode.FAILED)


def _show(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, colour = _MARKS[check.state]
        click.echo(f"{click.style(mark.ljust(7), fg=colour)}  {check.name.ljust(width)}  "
                   f"{check.found}")  # fmt: skip
        if check.fix:
            click.echo(f"{'':9}{'':{width}}  fix: {check.fix}")
    counts = [sum(check.state is state for check in checks) for state in State]
    warnings, problems = counted(counts[1], "warning"), counted(counts[2], "problem")
    click.echo(f"{counts[0]} ok, {warnings}, {problems}")
