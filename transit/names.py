"""Kernel names for people: demangled, without template arguments and parameters, and short.

The statistics file cuts names at 231 bytes, so what a demangler refuses is still read as far as
its plain words go. A name that is neither is shown as it is.
"""

import ctypes
import re
from functools import cache
from typing import Final

MAX_COLUMNS: Final = 60
_ANONYMOUS: Final = "(anonymous namespace)"
_CALL: Final = "operator()"
_PART: Final = re.compile(r"(\d+)")


def short(name: str) -> str:
    """`at::native::reduce_kernel` for a mangled kernel's name."""
    plain = _strip(_demangle(name) or _leading_words(name) or name) if is_mangled(name) else name
    if len(plain) > MAX_COLUMNS:
        plain = plain.rsplit("::", 1)[-1]  # the end tells more than the namespaces
    return plain if len(plain) <= MAX_COLUMNS else plain[: MAX_COLUMNS - 1] + "…"


def is_mangled(name: str) -> bool:
    """True for names of C++ functions as the linker sees them."""
    return name.startswith("_Z")


@cache
def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL] | None:
    try:
        cxx, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
        cxx.__cxa_demangle.restype = ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None  # not every machine with Python has the C++ library
    return cxx, libc


def _demangle(name: str) -> str | None:
    libraries = _libraries()
    if libraries is None:
        return None
    cxx, libc = libraries
    status = ctypes.c_int()
    found = cxx.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return None
    text = ctypes.string_at(found).decode("utf-8", errors="replace")
    libc.free(found)
    return text


def _strip(text: str) -> str:
    """Without return type, template arguments, parameters and what follows them."""
    text = text.replace(_ANONYMOUS + "::", "").replace(_CALL, "operator\0")
    kept: list[str] = []
    depth = 0
    for character in text:
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(character)
    words = "".join(kept).split(" ")
    # `void at::f`, and behind parameters `const` or `[clone .kd]`.
    named = [word for word in words if word and word != "const" and not word.startswith("[")]
    head = named[: next((i for i, word in enumerate(named) if word == "clone"), len(named))]
    return head[-1].replace("\0", "()") if head else text


def _leading_words(name: str) -> str | None:
    """`at::native::f` of `_ZN2at6native1fILi4E...`, up to the first thing that is not a word."""
    rest = name[2:].removeprefix("N")
    words: list[str] = []
    while match := _PART.match(rest):
        word = rest[match.end() : match.end() + int(match[1])]
        rest = rest[match.end() + len(word) :]
        if not word.startswith("_GLOBAL__N_"):
            words.append(word)
    return "::".join(words) or None
