"""Uprobes by one system call for a whole library: uprobe_multi links, kernel 6.6 and later.

Closing a link's descriptor detaches its probes, and so does our end, however it comes. (libbpf's
Python does not exist and BCC's predates these links, so the call is made here.)
"""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SYS_BPF: Final = 321
_LINK_CREATE: Final = 28
_UPROBE_MULTI: Final = 48
_RETURN: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _LinkCreate(ctypes.Structure):
    """`union bpf_attr` for BPF_LINK_CREATE with uprobe_multi."""

    _fields_ = (
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("ref_ctr_offsets", ctypes.c_uint64),
        ("cookies", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("uprobe_flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a probe goes, and the cookie that its hits bring."""

    offset: int
    cookie: int


def attach(program: int, path: Path, places: Sequence[Place], pid: int, at_return: bool) -> int:
    """Attach a program to all `places` of a file, for one process; the link's descriptor.

    Args:
        program: descriptor of a program loaded for uprobe_multi.
        path: of the library or executable.
        places: offsets in the file.
        pid: in our own pid namespace; all its threads, not its children.
        at_return: when the functions return, instead of when they are called.

    Raises:
        OSError: the kernel refuses.
    """
    count = len(places)
    offsets = (ctypes.c_uint64 * count)(*[place.offset for place in places])
    cookies = (ctypes.c_uint64 * count)(*[place.cookie for place in places])
    name = ctypes.create_string_buffer(os.fsencode(path))
    request = _LinkCreate(
        prog_fd=program,
        attach_type=_UPROBE_MULTI,
        path=ctypes.addressof(name),
        offsets=ctypes.addressof(offsets),
        cookies=ctypes.addressof(cookies),
        count=count,
        uprobe_flags=_RETURN if at_return else 0,
        pid=pid,
    )
    # The padding is ours: the kernel refuses bytes behind the fields that it knows.
    size = ctypes.sizeof(_LinkCreate) - 4
    link = _libc.syscall(_SYS_BPF, _LINK_CREATE, ctypes.byref(request), size)
    if link < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))
    return int(link)
