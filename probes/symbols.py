"""The symbol table: which functions of which library are probed, and how they are read."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from transit.probes.recipes import Symbol, parse_table

# Library by the start of its file name, and the table of its functions.
LIBRARIES: Final = {"libcudart.so": "cudart", "libcuda.so": "cuda", "libnccl.so": "nccl"}


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """All symbols; a record's `symbol` is a row of it."""

    rows: tuple[Symbol, ...]
    libraries: tuple[str, ...]  # of each row: cudart, cuda or nccl

    def of_library(self, library: str) -> dict[str, int]:
        """Row by function name."""
        return {
            row.name: index
            for index, row in enumerate(self.rows)
            if self.libraries[index] == library
        }


@cache
def symbol_table() -> SymbolTable:
    """The table that comes with this version."""
    folder = resources.files("transit.probes") / "tables"
    rows: list[Symbol] = []
    libraries: list[str] = []
    for library in LIBRARIES.values():
        symbols = parse_table((folder / f"{library}.txt").read_text())
        rows += symbols
        libraries += [library] * len(symbols)
    return SymbolTable(tuple(rows), tuple(libraries))
