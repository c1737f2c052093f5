"""Where the shim's libraries and data files lie."""

import os
from importlib import resources
from pathlib import Path
from typing import Final

from transit.errors import TransitError, UsageError

SHIM: Final = "libtransit.so"
SIM_CUDA: Final = "libtransit_sim_cuda.so"
SIM_NCCL: Final = "libtransit_sim_nccl.so"
LIFETIMES_SOURCE: Final = "lifetimes.cpp"

_BUILD_HINT: Final = "in a checkout run './dev build'; else reinstall transit-gpu"


class NotInstalled(TransitError):
    """A library of ours is missing from the installation."""


def library_folder() -> Path:
    """The folder of the installed (or, in a checkout, built) libraries."""
    return Path(str(resources.files("transit") / "lib"))


def shim_path() -> Path:
    """The preload library: TRANSIT_SHIM_PATH if set, else the installed one."""
    if given := os.environ.get("TRANSIT_SHIM_PATH"):
        path = Path(given).absolute()
        if not path.is_file():
            raise UsageError(f"TRANSIT_SHIM_PATH names {given}, which is not a file")
    else:
        path = _installed(SHIM)
    if any(character in str(path) for character in ": \t"):
        raise TransitError(
            f"the shim's path '{path}' has a space or a colon, which LD_PRELOAD cannot hold",
            "install Transit in another folder",
        )
    return path


def sim_cuda_path() -> Path:
    """The simulated driver."""
    return _installed(SIM_CUDA)


def sim_nccl_path() -> Path:
    """The simulated NCCL."""
    return _installed(SIM_NCCL)


def lifetimes_source() -> Path | None:
    """The source of the allocator-trace observer: installed, or where it lies in a checkout."""
    checkout = Path(str(resources.files("transit"))).parent / "shim" / "lifetimes"
    for folder in (library_folder(), checkout):
        if (folder / LIFETIMES_SOURCE).is_file():
            return folder / LIFETIMES_SOURCE
    return None


def _installed(name: str) -> Path:
    path = library_folder() / name
    if not path.is_file():
        raise NotInstalled(f"{name} is not in {path.parent}", _BUILD_HINT)
    return path
