"""What PyTorch refused under `backend:cudaMallocAsync`, and what to run instead.

The shim notes a refusal where PyTorch throws it (shim/src/refusals.cpp): the job's standard error
is the user's and goes to the terminal without passing through us.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from transit import allocator

_FEATURES: Final = {
    "snapshot": "memory snapshots",
    "recordHistory": "memory snapshots",
    "attachOutOfMemoryObserver": "memory snapshots",
    "shareIpcHandle": "CUDA IPC",
    "getIpcDevPtr": "CUDA IPC",
    "getCheckpointState": "cudagraph trees",
    "setCheckpointPoolState": "cudagraph trees",
    "checkPoolLiveAllocations": "cudagraph trees",
}
_MAX_NAME: Final = 80


def read_folder(folder: Path) -> list[str]:
    """Names of PyTorch's functions that refused, each once. What cannot be read is left out."""
    found: set[str] = set()
    for path in folder.glob("*.refused"):
        try:
            with path.open(errors="replace") as file:
                text = file.read(_MAX_NAME)
        except OSError:
            continue
        if text.isidentifier():  # the job wrote it
            found.add(text)
    return sorted(found)


def describe(name: str) -> str:
    """`CUDA IPC (shareIpcHandle)`."""
    feature = _FEATURES.get(name)
    return f"{feature} ({name})" if feature else name


def instead(
    arguments: Sequence[str], job: Sequence[str], environment: Mapping[str, str]
) -> str | None:
    """What to do so that PyTorch has its native allocator; None if we do not know.

    Args:
        arguments: our own command line behind the program's name.
        job: the end of it, the job's command.
        environment: in which we were started.
    """
    for variable in allocator.VARIABLES:
        if "cudaMallocAsync" in environment.get(variable, ""):
            return f"take backend:cudaMallocAsync out of {variable}"
    ours = list(arguments[: len(arguments) - len(job)])
    if list(arguments[len(ours) :]) != list(job):
        return None
    for index, word in enumerate(ours):
        if word.lower() == "--allocator=async":
            ours[index] = "--allocator=native"
        elif word.lower() == "async" and index and ours[index - 1] == "--allocator":
            ours[index] = "native"
    return f"run: {shlex.join(['transit', *ours, *job])}"
