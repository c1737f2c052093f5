"""libtransit_pure_c.so (shim/tests/pure_c.cpp) for Python."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

NOTHING = 2**64 - 1

_U32S = ctypes.POINTER(c_uint32)
_SIGNATURES = {
    "space_new": (c_void_p, c_uint64, c_uint64, c_uint64),
    "space_delete": (None, c_void_p),
    "space_take": (c_uint64, c_void_p, c_uint64),
    "space_take_at": (c_int, c_void_p, c_uint64, c_uint64),
    "space_give": (None, c_void_p, c_uint64, c_uint64),
    "ledger_new": (c_void_p, c_uint64, c_uint32, c_uint64),
    "ledger_delete": (None, c_void_p),
    "ledger_add_block": (c_size_t, c_void_p, c_uint64, c_uint64, _U32S),
    "ledger_remove_block": (c_int, c_void_p, c_uint64, _U32S, ctypes.POINTER(c_size_t)),
    "ledger_remove_blocks": (c_size_t, c_void_p, c_uint64, c_uint64, _U32S),
    "ledger_find": (c_uint64, c_void_p, c_uint64),
    "ledger_touch": (c_int, c_void_p, c_uint64, _U32S, _U32S),
    "ledger_live": (c_int, c_void_p, c_uint32),
    "ledger_live_bytes": (c_uint64, c_void_p),
    "ledger_add_table": (None, c_void_p, c_uint64, c_uint64, c_uint32, c_uint32),
    "ledger_drop_tables": (c_size_t, c_void_p, c_uint64, c_uint64),
    "ledger_reach": (c_size_t, c_void_p, c_uint64, c_uint64, _U32S),
    "least_recently_touched": (
        *(c_size_t, _U32S, ctypes.POINTER(c_uint64)),
        *(c_size_t, c_size_t, _U32S),
    ),
    "must_leave": (c_uint32, c_uint32, c_uint32, c_uint32),
}


class Space:
    """An AddressSpace."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library, self._handle = library, handle

    def take(self, size: int) -> int | None:
        address = self._library.transit_space_take(self._handle, size)
        return None if address == NOTHING else address

    def take_at(self, address: int, size: int) -> bool:
        return bool(self._library.transit_space_take_at(self._handle, address, size))

    def give(self, address: int, size: int) -> None:
        self._library.transit_space_give(self._handle, address, size)


class Ledger:
    """A Ledger; extents come back as sorted lists."""

    def __init__(self, library: ctypes.CDLL, handle: int, extents: int) -> None:
        self._library, self._handle = library, handle
        self._out = (c_uint32 * extents)()

    def _extents(self, count: int) -> list[int]:
        return sorted(self._out[:count])

    def add_block(self, start: int, size: int) -> list[int]:
        return self._extents(
            self._library.transit_ledger_add_block(self._handle, start, size, self._out)
        )

    def remove_block(self, start: int) -> list[int] | None:
        count = c_size_t()
        removed = self._library.transit_ledger_remove_block(
            self._handle, start, self._out, ctypes.byref(count)
        )
        return self._extents(count.value) if removed else None

    def remove_blocks(self, address: int, size: int) -> list[int]:
        return self._extents(
            self._library.transit_ledger_remove_blocks(self._handle, address, size, self._out)
        )

    def find(self, address: int) -> int | None:
        start = self._library.transit_ledger_find(self._handle, address)
        return None if start == NOTHING else start

    def touch(self, address: int) -> tuple[range, bool] | None:
        """The extents of the block there, and whether they were recalled."""
        first, last = c_uint32(), c_uint32()
        how = self._library.transit_ledger_touch(
            self._handle, address, ctypes.byref(first), ctypes.byref(last)
        )
        return None if how == 0 else (range(first.value, last.value + 1), how == 2)

    def live(self, extent: int) -> bool:
        return bool(self._library.transit_ledger_live(self._handle, extent))

    def live_bytes(self) -> int:
        return int(self._library.transit_ledger_live_bytes(self._handle))

    def add_table(self, address: int, size: int, first: int, last: int) -> None:
        self._library.transit_ledger_add_table(self._handle, address, size, first, last)

    def drop_tables(self, address: int, size: int) -> int:
        return int(self._library.transit_ledger_drop_tables(self._handle, address, size))

    def reach(self, address: int, size: int) -> set[int]:
        count = self._library.transit_ledger_reach(self._handle, address, size, self._out)
        return set(self._out[:count])


class Pure:
    """The library."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(self._library, f"transit_{name}")
            function.restype, function.argtypes = result, arguments

    @contextmanager
    def space(self, base: int, size: int, granule: int) -> Iterator[Space]:
        handle = self._library.transit_space_new(base, size, granule)
        try:
            yield Space(self._library, handle)
        finally:
            self._library.transit_space_delete(handle)

    @contextmanager
    def ledger(self, base: int, extents: int, extent_bytes: int) -> Iterator[Ledger]:
        handle = self._library.transit_ledger_new(base, extents, extent_bytes)
        try:
            yield Ledger(self._library, handle, extents)
        finally:
            self._library.transit_ledger_delete(handle)

    def least_recently_touched(self, candidates: list[tuple[int, int]], count: int) -> list[int]:
        extents = (c_uint32 * len(candidates))(*(extent for extent, _ in candidates))
        touches = (c_uint64 * len(candidates))(*(touch for _, touch in candidates))
        out = (c_uint32 * len(candidates))()
        chosen = self._library.transit_least_recently_touched(
            extents, touches, len(candidates), count, out
        )
        return list(out[:chosen])

    def must_leave(self, live_in_hbm: int, wanted: int, limit: int) -> int:
        return int(self._library.transit_must_leave(live_in_hbm, wanted, limit))
