"""Compare the losses of several runs bit for bit: `python compare_losses.py A.json B.json ...`

The files are what llama.py wrote with --json. Every run is compared with the first over the steps
that both made (a resumed run begins later). Where two runs end at the same step, the checksums of
parameters and optimizer states are compared too. Exits with 1 at any difference, 2 if there is
nothing to compare.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Losses:
    """Exact losses of a run: per rank one hexadecimal float per step."""

    name: str
    first_step: int
    of_ranks: tuple[tuple[str, ...], ...]
    checksums: tuple[str, ...]

    @property
    def steps(self) -> range:
        return range(self.first_step, self.first_step + len(self.of_ranks[0]))

    def at(self, step: int) -> tuple[str, ...]:
        """Losses of all ranks at one step."""
        return tuple(losses[step - self.first_step] for losses in self.of_ranks)


class NothingToCompare(Exception):
    """Two runs have no step in common, or not the same number of ranks."""


def main(paths: Sequence[str]) -> int:
    """Compare files and print one line for each."""
    if len(paths) < 2:
        print("usage: compare_losses.py A.json B.json ...", file=sys.stderr)
        return 2
    first, *others = (read(Path(path)) for path in paths)
    different = False
    for other in others:
        try:
            verdict = difference(first, other)
        except NothingToCompare as reason:
            print(f"{other.name}: {reason}", file=sys.stderr)
            return 2
        different |= verdict is not None
        count = len(common_steps(first, other))
        print(f"{other.name}: {verdict or f'equal to {first.name} over {count} steps'}")
    return 1 if different else 0


def read(path: Path) -> Losses:
    """Read one run."""
    run = json.loads(path.read_text())
    of_ranks = tuple(tuple(losses) for losses in run["losses_hex"])
    return Losses(path.name, run["first_step"], of_ranks, tuple(run["checksums"]))


def common_steps(a: Losses, b: Losses) -> range:
    """Steps that both runs made."""
    return range(max(a.steps.start, b.steps.start), min(a.steps.stop, b.steps.stop))


def difference(a: Losses, b: Losses) -> str | None:
    """A sentence about the first difference, or None if there is none.

    Raises:
        NothingToCompare: if no step or rank corresponds.
    """
    if len(a.of_ranks) != len(b.of_ranks):
        raise NothingToCompare(f"{len(b.of_ranks)} ranks, {a.name} has {len(a.of_ranks)}")
    if not common_steps(a, b):
        raise NothingToCompare(f"no step in common with {a.name}")
    for step in common_steps(a, b):
        for rank, (ours, theirs) in enumerate(zip(a.at(step), b.at(step), strict=True)):
            if ours != theirs:
                values = f"{float.fromhex(theirs)!r} against {float.fromhex(ours)!r}"
                return f"differs from {a.name} first at step {step}, rank {rank}: {values}"
    if a.steps.stop == b.steps.stop and a.checksums != b.checksums:
        return f"losses equal {a.name}'s, but parameters or optimizer states differ at the end"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
