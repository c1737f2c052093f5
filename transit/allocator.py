"""PyTorch's allocator setting: merge ours into the user's without losing any of theirs."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# PyTorch 2.10 and later read the second name; older ones, and other tools, the first.
VARIABLES: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class Allocator(enum.StrEnum):
    """Where the job's blocks come from."""

    NATIVE = "native"
    EXPANDABLE = "expandable"
    ASYNC = "async"


_WANTED: Final = {
    Allocator.NATIVE: {"backend": "native", "expandable_segments": "False"},
    Allocator.EXPANDABLE: {"backend": "native", "expandable_segments": "True"},
    Allocator.ASYNC: {"backend": "cudaMallocAsync"},
}
_DEFAULTS: Final = {"backend": "native", "expandable_segments": "False"}


@dataclass(frozen=True, slots=True)
class AllocatorSetting:
    """Variables to set, and a sentence for each of the user's settings that we let win."""

    variables: dict[str, str] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()


def split_conf(text: str) -> list[str]:
    """The `key:value` items of a setting; commas inside of brackets do not separate."""
    items, depth, item = [], 0, ""
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth <= 0:
            items.append(item)
            item = ""
        else:
            item += character
    return [stripped for each in [*items, item] if (stripped := each.strip())]


def merge(allocator: Allocator, environment: Mapping[str, str]) -> AllocatorSetting:
    """What to set for `allocator`; the user's own contradicting setting wins and is named.

    Both variables are set, the one that the user left out as a copy of the other.
    """
    users = [environment.get(name, "") for name in VARIABLES]
    variables: dict[str, str] = {}
    conflicts: dict[str, None] = {}
    for name, own, other in zip(VARIABLES, users, reversed(users), strict=True):
        items = split_conf(own or other)
        conflicts |= dict.fromkeys(_add_wanted(allocator, items))
        if items:
            variables[name] = ",".join(items)
    return AllocatorSetting(variables, tuple(conflicts))


def _add_wanted(allocator: Allocator, items: list[str]) -> list[str]:
    """Append what is missing to `items`; the sentences for what the user has otherwise."""
    conflicts: list[str] = []
    theirs = {key.strip(): value.strip() for key, _, value in (i.partition(":") for i in items)}
    for key, value in _WANTED[allocator].items():
        if key not in theirs:
            if value != _DEFAULTS[key]:
                items.append(f"{key}:{value}")
        elif theirs[key].lower() != value.lower():
            conflicts.append(
                f"--allocator {allocator} wants {key}:{value}, but the environment says"
                f" {key}:{theirs[key]}, which is kept"
            )
    return conflicts
