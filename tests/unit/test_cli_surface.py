"""The command line's surface is frozen: a change shows up as a change of tests/unit/golden.

`GOLDEN=write ./dev pytest tests/unit/test_cli_surface.py` writes the files anew.
"""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from transit import __version__
from transit.cli import COMMANDS, transit

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["transit", *COMMANDS])
def test_help_texts_are_golden(name: str) -> None:
    # WHEN help is asked for
    arguments = ["--help"] if name == "transit" else [name, "--help"]
    result = CliRunner().invoke(transit, arguments, prog_name="transit", terminal_width=80)
    # THEN it is what is kept
    assert result.exit_code == 0
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(result.output)
    assert result.output == path.read_text()


def test_every_command_is_in_the_overview_with_its_own_first_sentence() -> None:
    for name, short in COMMANDS.items():
        command = transit.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert (command.help or "").split("\n\n")[0].replace("\n", " ") == short


def test_version() -> None:
    result = CliRunner().invoke(transit, ["--version"])
    assert (result.exit_code, result.output) == (0, f"transit, version {__version__}\n")


def test_version_is_the_distributions() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'\nversion = "{__version__}"\n' in text
