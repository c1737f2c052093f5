"""A trace record as NumPy sees it: bpf/events.h in other words. A test compares the two."""

from typing import Final

import numpy as np

FIELDS: Final = (
    "address",  # of the memory, or of the destination
    "bytes",  # or elements, for what counts in elements
    "source",  # address: of a copy, of what a collective sends
    "stream",
    "object",  # communicator, event, graph, pool or handle
    "detail",  # kind of a copy, type of an element
    "peer",  # root, peer, rank or device
    "other",
)

RECORD: Final = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("symbol", "<u2"),
        ("depth", "u1"),
        ("flags", "u1"),
        ("result", "<i4"),
        *[(name, "<u8") for name in FIELDS],
        ("launches_hash", "<u8"),
        ("launches", "<u4"),
        ("unused", "<u4"),
    ]
)

NESTED: Final = 1
