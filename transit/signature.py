"""What a job is, as far as a verdict of `transit run --verify` holds for it (docs/formats.md).

A verdict comes from a run of a few steps and is wanted for the long run that follows. So what
says how long a job runs and where its results go is left out, and all that may bring other
kernels or other memory is in. Too narrow a signature only means that a job counts as not verified.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from transit import __version__, allocator, host
from transit.launch import Launch

# Options whose values do not change what a step does: `--max-steps 5`, `trainer.log_dir=x`.
_LENGTH: Final = re.compile(r"(^|_)(steps?|iters?|iterations|epochs?|seed|minutes|hours|time)$")
_OUTPUT: Final = re.compile(
    r"^out$|(^|_)((outputs?|save|logs?|logging|results?)(_?(dir|file|path|folder|to))?"
    r"|out_?(dir|file|path|folder)|run_name|run_id)$"
)
_PLACE: Final = re.compile(r"(^|_)(port|addr|address|endpoint|rdzv_id|node_rank|local_rank)$")
_READ: Final = frozenset({".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".ini", ".cfg"})
_ANY: Final = "*"
_MAX_FILE: Final = 16 * 2**20
_RANKS: Final = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True, slots=True)
class Signature:
    """All that a verdict is kept by."""

    program: str
    arguments: tuple[str, ...]
    torch: str
    driver: str
    devices: tuple[str, ...]
    shim: str
    allocator: tuple[str, ...]
    rank: str

    @property
    def key(self) -> str:
        """Names the record's file."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def of_job(
    command: Sequence[str],
    launch: Launch,
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Signature:
    """The signature of a job that is about to start.

    Args:
        command: the job's command line.
        launch: how it is started; it has a shim.
        environment: ours, for the job's place among its ranks.
        root: of the system's files.
    """
    program = Path(command[0])
    return Signature(
        program=" ".join(filter(None, [program.name, _script_digest(program)])),
        arguments=tuple(_plain(command[1:])),
        torch=launch.torch or "none",
        driver="simulated" if launch.simulated else _driver(launch.driver, root),
        devices=() if launch.simulated else _devices(root),
        shim=f"{__version__} {_digest(launch.shim) if launch.shim else ''}",
        allocator=_allocator(launch.environment),
        rank=_rank(environment),
    )


def _plain(words: Sequence[str]) -> Iterable[str]:
    """The arguments, with `*` for what may differ and digests for files that are read."""
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"[-\w.+/]+", name):
            yield f"{name}={_ANY if _may_differ(name) else _value(value)}"
            option = ""
        elif word.startswith("-"):
            yield word
            option = word
        else:
            yield _ANY if _may_differ(option) else _value(word)
            option = ""


def _may_differ(option: str) -> bool:
    name = option.lstrip("-+").lower().replace("-", "_").rsplit(".", 1)[-1]
    if "accum" in name:  # steps of gradient accumulation are part of a step
        return False
    return any(pattern.search(name) for pattern in (_LENGTH, _OUTPUT, _PLACE))


def _value(word: str) -> str:
    path = Path(word)
    try:
        if path.suffix.lower() in _READ and path.is_file():
            return f"file {_digest(path)}"
    except (OSError, ValueError):  # too long for a path, or not one
        pass
    return word  # other paths too: they may name the model


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(_MAX_FILE)).hexdigest()[:16]
    except OSError:
        return "unreadable"


def _script_digest(program: Path) -> str | None:
    """Of a program that is text; what an interpreter or a binary does is told by the rest."""
    try:
        with program.open("rb") as file:
            return _digest(program) if file.read(2) == b"#!" else None
    except OSError:
        return None  # found by PATH: a launcher such as torchrun


def _driver(library: Path | None, root: Path) -> str:
    version = host.read_text(root / "sys/module/nvidia/version").strip()
    return version or (library.resolve().name if library else "unknown")


def _devices(root: Path) -> tuple[str, ...]:
    models = set()
    for path in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        found = re.search(r"^Model:\s*(.+?)\s*$", host.read_text(path), re.MULTILINE)
        models.add(found[1] if found else "unknown")
    return tuple(sorted(models))


def _allocator(environment: Mapping[str, str]) -> tuple[str, ...]:
    for name in reversed(allocator.VARIABLES):
        if text := environment.get(name):
            return tuple(sorted(allocator.split_conf(text)))
    return ()


def _rank(environment: Mapping[str, str]) -> str:
    for rank, world in _RANKS:
        if rank in environment and world in environment:
            return f"{environment[rank]} of {environment[world]}"
    return "0 of 1"
