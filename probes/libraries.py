"""Which files with CUDA or NCCL functions a process has mapped, and where the functions lie."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from transit.errors import PermissionDenied, TargetGone
from transit.probes.symbols import LIBRARIES

_DELETED: Final = " (deleted)"


@dataclass(frozen=True, slots=True)
class Mapped:
    """A mapped file. `path` is as the process sees it, `opened` is where we open it."""

    library: str
    path: str
    opened: Path
    device: int
    inode: int


def mapped_libraries(pid: int) -> list[Mapped]:
    """The files of `pid` whose names say that they are ours to probe, each inode once.

    Raises:
        TargetGone: there is no such process.
        PermissionDenied: it is somebody else's.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise TargetGone(f"process {pid} does not exist") from error
    except PermissionError as error:
        raise PermissionDenied(f"process {pid} belongs to somebody else", "sudo") from error
    found: dict[tuple[int, int], Mapped] = {}
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or not fields[5].startswith("/"):
            continue
        library = _library_of(fields[5])
        if library is None:
            continue
        major, _, minor = fields[3].partition(":")
        key = (os.makedev(int(major, 16), int(minor, 16)), int(fields[4]))
        if key not in found and (opened := _openable(pid, fields[0], fields[5], key)):
            found[key] = Mapped(library, fields[5].removesuffix(_DELETED), opened, *key)
    return list(found.values())


def _library_of(path: str) -> str | None:
    name = path.removesuffix(_DELETED).rpartition("/")[2]
    for start, library in LIBRARIES.items():
        if name.startswith(start):
            return library
    return None


def _openable(pid: int, addresses: str, path: str, key: tuple[int, int]) -> Path | None:
    """Through the process's own root, if that is the file it mapped; else through the mapping."""
    begin, _, end = addresses.partition("-")
    # map_files has no leading zeroes, maps may.
    mapping = Path(f"/proc/{pid}/map_files/{int(begin, 16):x}-{int(end, 16):x}")
    for candidate in (Path(f"/proc/{pid}/root{path}"), mapping):
        try:
            status = candidate.stat()
        except OSError:
            continue
        if status.st_ino == key[1]:
            return candidate
    return None


def function_offsets(path: Path, names: Mapping[str, int]) -> dict[str, int]:
    """File offset of each of `names` that the file defines.

    Functions that are one function under several names (`ncclX` and `pncclX`) are told once.

    Raises:
        ELFError, OSError: it cannot be read as a library.
    """
    with path.open("rb") as file:
        elf = ELFFile(file)
        loads = [each.header for each in elf.iter_segments("PT_LOAD")]
        offsets: dict[str, int] = {}
        for section in elf.iter_sections():
            if not isinstance(section, SymbolTableSection):
                continue
            for symbol in section.iter_symbols():
                if symbol.name not in names or symbol["st_shndx"] == "SHN_UNDEF":
                    continue
                for load in loads:
                    within = symbol["st_value"] - load["p_vaddr"]
                    if 0 <= within < load["p_filesz"]:
                        offsets.setdefault(symbol.name, load["p_offset"] + within)
        return offsets


__all__ = ["ELFError", "Mapped", "function_offsets", "mapped_libraries"]
