"""The memory ledger: which allocations lived when.

An allocation lives from the return of its call to the call of its free. That is the only order
that holds between threads: an address can be given out again as soon as its free has begun, and
can be freed only when its allocation has returned.
"""

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from transit.probes.recipes import Kind, Symbol

NEVER: Final = np.iinfo(np.uint64).max


class Space(enum.IntEnum):
    """What an allocation is of; the number is the `other` field of its call (probes/tables)."""

    DEVICE = 0
    STREAM_ORDERED = 1
    MANAGED = 2
    HOST = 3
    REGISTERED = 4
    PHYSICAL = 5  # cuMemCreate: its address is a handle


LIFETIME: Final = np.dtype(
    [
        ("pid", "<u4"),
        ("space", "u1"),
        ("address", "<u8"),
        ("bytes", "<u8"),
        ("born_ns", "<u8"),
        ("died_ns", "<u8"),  # NEVER: it lives
        ("born_row", "<i8"),  # of the records
    ]
)


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """Allocations in the order of their birth, and what did not fit together.

    `older` frees are of allocations from before the first record; `unseen` allocations must have
    been freed without a record, since their address was given out again.
    """

    lifetimes: npt.NDArray[np.void]
    older: int = 0
    unseen: int = 0

    def live_bytes(self, *spaces: Space) -> int:
        """At the end of the records, in these spaces (all if none is named)."""
        chosen = self._of(spaces)
        return int(chosen["bytes"][chosen["died_ns"] == NEVER].sum())

    def peak(self, *spaces: Space) -> tuple[int, int]:
        """Most bytes that lived at once, and since when (0, 0 if there was nothing)."""
        times_ns, live_bytes = usage(self._of(spaces))
        if not times_ns.size:
            return 0, 0
        highest = int(live_bytes.argmax())
        return int(live_bytes[highest]), int(times_ns[highest])

    def _of(self, spaces: tuple[Space, ...]) -> npt.NDArray[np.void]:
        if not spaces:
            return self.lifetimes
        chosen: npt.NDArray[np.void] = self.lifetimes[np.isin(self.lifetimes["space"], spaces)]
        return chosen


def usage(
    lifetimes: npt.NDArray[np.void],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Live bytes as steps: at each time, and until the next. Deaths count before births."""
    ended = lifetimes[lifetimes["died_ns"] != NEVER]
    times = np.concatenate([ended["died_ns"], lifetimes["born_ns"]])
    changes = np.concatenate(
        [-ended["bytes"].astype(np.int64), lifetimes["bytes"].astype(np.int64)]
    )
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(changes[order])


def memory_ledger(records: npt.NDArray[np.void], rows: tuple[Symbol, ...]) -> MemoryLedger:
    """Pair allocations with their frees.

    Args:
        records: RECORD arrays of one or more processes, in any order.
        rows: the symbol table that their `symbol` counts in.
    """
    plain = _paired(_events(records, rows))
    physical = physical_lifetimes(records, rows)
    together = np.concatenate([plain.lifetimes, physical])
    order = np.argsort(together["born_ns"], kind="stable")
    return MemoryLedger(together[order], plain.older, plain.unseen)


_EVENT: Final = np.dtype(
    [("pid", "<u4"), ("space", "u1"), ("freed_by", "u1"), ("address", "<u8"), ("bytes", "<u8"),
     ("time_ns", "<u8"), ("born", "?"), ("row", "<i8")]
)  # fmt: skip


def _events(records: npt.NDArray[np.void], rows: tuple[Symbol, ...]) -> npt.NDArray[np.void]:
    """Births and deaths."""
    births = np.array([row.kind is Kind.ALLOCATE for row in rows], dtype=bool)[records["symbol"]]
    deaths = np.array([row.kind is Kind.FREE for row in rows], dtype=bool)[records["symbol"]]
    pitched = np.array(["Pitch" in row.name for row in rows], dtype=bool)[records["symbol"]]
    wanted = (births | deaths) & (records["result"] == 0) & (records["address"] != 0)
    events = np.zeros(int(wanted.sum()), _EVENT)
    chosen, born = records[wanted], births[wanted]
    events["pid"] = chosen["pid"]
    events["space"] = chosen["other"]
    # cudaFree and cuMemFree take managed and stream-ordered memory as well.
    events["freed_by"] = np.where(chosen["other"] < Space.HOST, Space.DEVICE, chosen["other"])
    events["address"] = chosen["address"]
    events["bytes"] = np.where(pitched[wanted], chosen["source"] * chosen["peer"], chosen["bytes"])
    events["time_ns"] = np.where(born, chosen["end_ns"], chosen["start_ns"])
    events["born"] = born
    events["row"] = np.flatnonzero(wanted)
    return events


def _paired(events: npt.NDArray[np.void]) -> MemoryLedger:
    # A death and a birth at one time: the death was first, as the address was given out again.
    order = np.lexsort(
        (events["born"], events["time_ns"], events["address"], events["freed_by"], events["pid"])
    )
    sorted_ = events[order]
    same = np.zeros(sorted_.size, dtype=bool)  # as the one before it
    same[1:] = (
        (sorted_["pid"][1:] == sorted_["pid"][:-1])
        & (sorted_["freed_by"][1:] == sorted_["freed_by"][:-1])
        & (sorted_["address"][1:] == sorted_["address"][:-1])
    )
    born = sorted_["born"]
    followed = np.append(same[1:], False) if sorted_.size else same
    after = np.append(born[1:], False) if sorted_.size else born
    times = np.append(sorted_["time_ns"][1:], NEVER) if sorted_.size else sorted_["time_ns"]
    died_ns = np.where(followed, times, NEVER)
    preceded_by_birth = same & np.append(False, born[:-1]) if sorted_.size else same
    lifetimes = np.zeros(int(born.sum()), LIFETIME)
    for name in ("pid", "space", "address", "bytes"):
        lifetimes[name] = sorted_[name][born]
    lifetimes["born_ns"] = sorted_["time_ns"][born]
    lifetimes["died_ns"] = died_ns[born]
    lifetimes["born_row"] = sorted_["row"][born]
    return MemoryLedger(
        lifetimes,
        older=int((~born & ~preceded_by_birth).sum()),
        unseen=int((born & followed & after).sum()),
    )


@dataclass(slots=True)
class _Physical:
    """Memory made by cuMemCreate: it lives as long as its handle or a mapping of it."""

    bytes: int
    born_ns: int
    row: int
    references: int = 1
    died_ns: int = NEVER


def physical_lifetimes(
    records: npt.NDArray[np.void], rows: tuple[Symbol, ...]
) -> npt.NDArray[np.void]:
    """Lifetimes of what cuMemCreate made. A loop: such calls are few."""
    names = [row.name for row in rows]
    maps = np.array([row.kind is Kind.MAP for row in rows], dtype=bool)[records["symbol"]]
    chosen = np.flatnonzero(maps & (records["result"] == 0))
    by_handle: dict[tuple[int, int], _Physical] = {}
    by_address: dict[tuple[int, int], tuple[int, _Physical]] = {}
    made: list[tuple[int, int, _Physical]] = []
    for row in chosen[np.argsort(records["end_ns"][chosen], kind="stable")].tolist():
        record = records[row]
        name, pid, now_ns = names[record["symbol"]], int(record["pid"]), int(record["end_ns"])
        handle, address = int(record["object"]), int(record["address"])
        if name == "cuMemCreate":
            by_handle[pid, handle] = _Physical(int(record["bytes"]), now_ns, row)
            made.append((pid, handle, by_handle[pid, handle]))
        elif name == "cuMemRelease" and (pid, handle) in by_handle:
            _drop(by_handle.pop((pid, handle)), now_ns)
        elif name == "cuMemMap" and (pid, handle) in by_handle:
            by_handle[pid, handle].references += 1
            by_address[pid, address] = int(record["bytes"]), by_handle[pid, handle]
        elif name == "cuMemUnmap":
            end = address + int(record["bytes"])
            for key in [key for key in by_address if key[0] == pid and address <= key[1] < end]:
                _drop(by_address.pop(key)[1], now_ns)
    lifetimes = np.zeros(len(made), LIFETIME)
    for index, (pid, handle, each) in enumerate(made):
        lifetimes[index] = (
            pid, Space.PHYSICAL, handle, each.bytes, each.born_ns, each.died_ns, each.row,
        )  # fmt: skip
    return lifetimes


def _drop(physical: _Physical, now_ns: int) -> None:
    physical.references -= 1
    if physical.references == 0:
        physical.died_ns = now_ns
