"""Make records by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from transit.probes.records import RECORD
from transit.probes.symbols import symbol_table

ROWS = symbol_table().rows
_ROW = {row.name: index for index, row in enumerate(ROWS)}


def call(name: str, start_ns: int, end_ns: int | None = None, **fields: int) -> dict[str, Any]:
    """One call; what its recipe always gives is there already."""
    constants = {
        field: source.offset
        for field, source in ROWS[_ROW[name]].fields.items()
        if source.source == 4
    }
    end_ns = start_ns if end_ns is None else end_ns
    return {"symbol": _ROW[name], "pid": 1, "tid": 1, "start_ns": start_ns, "end_ns": end_ns,
            **constants, **fields}  # fmt: skip


def records(calls: Sequence[dict[str, Any]]) -> npt.NDArray[np.void]:
    made = np.zeros(len(calls), RECORD)
    for index, each in enumerate(calls):
        for name, value in each.items():
            made[name][index] = value
    return made
