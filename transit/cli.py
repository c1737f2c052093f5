"""The command line: one file a command, loaded when it is called."""

import importlib
import sys
import traceback
from typing import Final

import click

from transit import __version__, interruption, streams
from transit.errors import ExitCode, ReaderLeft, TransitError
from transit.interruption import Interrupted

COMMANDS: Final = {
    "demo": "Train a small GPT on the simulated GPU, without and with Transit.",
    "doctor": "Tell what of this machine Transit can use, and how to mend the rest.",
    "run": "Run a training job with CPU memory as an extension of GPU memory.",
}


class LazyGroup(click.Group):
    """Commands by name; only the one that is called gets imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"transit.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="transit")
@click.option("-v", "--verbose", count=True, help="Say more; twice: debug, with tracebacks.")
@click.pass_context
def transit(ctx: click.Context, verbose: int) -> None:
    """CPU memory as an extension of GPU memory for unmodified PyTorch training."""
    ctx.obj = verbose


def main() -> None:
    """Entry point: every error ends in a sentence and its exit code."""
    streams.install()
    interruption.install()
    try:
        code = transit.main(prog_name="transit", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except Interrupted as interrupted:
        sys.exit(interrupted.exit_code)
    except ReaderLeft as error:
        sys.exit(error.exit_code)
    except TransitError as error:
        if any(word.startswith("-vv") for word in sys.argv[1:2]):
            traceback.print_exc()
        _complain(str(error), error.hint)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(ExitCode.INTERRUPTED)


def _complain(message: str, hint: str | None) -> None:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
