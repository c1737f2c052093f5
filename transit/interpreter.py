"""Which Python a job's command will run, and which PyTorch that Python has.

PyTorch is never imported: that takes seconds and could initialise CUDA.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from transit.driver import clean_environment

_PYTHON_NAME: Final = re.compile(r"python(\d+(\.\d+)*)?t?", re.ASCII)
# Commands that start another command named later on their own line.
_WRAPPERS: Final = frozenset(
    {"env", "ionice", "mpiexec", "mpirun", "nice", "nohup", "numactl", "setsid", "srun"}
    | {"stdbuf", "taskset", "time", "timeout"}
)
_LOCATE_TORCH: Final = (
    "import importlib.util as u, sys; s = u.find_spec('torch');"
    "sys.stdout.write(s.origin if s and s.origin else '')"
)


@dataclass(frozen=True, slots=True)
class TorchInstall:
    """An installed PyTorch. `cuda` is None for a build without CUDA."""

    folder: Path
    version: str
    cuda: str | None
    cxx11_abi: bool

    @property
    def site(self) -> Path:
        """The folder that holds torch and its neighbours (nvidia, triton)."""
        return self.folder.parent


def find_interpreter(command: Sequence[str], path: str | None = None) -> Path | None:
    """The Python that `command` runs: itself, by its shebang, or behind a wrapper."""
    if not command:
        return None
    program = shutil.which(command[0], path=path)
    if program is None:
        return None
    if found := _interpreter_of(Path(program), path):
        return found
    if Path(program).name not in _WRAPPERS:
        return None
    for word in command[1:]:
        inner = shutil.which(word, path=path)
        if inner and (found := _interpreter_of(Path(inner), path)):
            return found
    return None


def _interpreter_of(program: Path, path: str | None) -> Path | None:
    if _PYTHON_NAME.fullmatch(program.name):
        return program
    try:
        with program.open("rb") as file:
            head = file.read(1024)
    except OSError:
        return None
    words = _shebang_words(head)
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not _PYTHON_NAME.fullmatch(Path(words[0]).name):
        return None
    found = shutil.which(words[0], path=path)
    return Path(found) if found else None


def _shebang_words(head: bytes) -> list[str]:
    """The words of a `#!` line, or of pip's two-line form for long paths."""
    if not head.startswith(b"#!"):
        return []
    lines = head.decode("utf-8", errors="replace").splitlines()
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and lines[1].startswith("'''exec'"):
        return [lines[1].removeprefix("'''exec'").split('"')[1]] if '"' in lines[1] else []
    return words


def find_torch(python: Path, environment: Mapping[str, str] = os.environ) -> TorchInstall | None:
    """The PyTorch that this interpreter would import."""
    try:
        done = subprocess.run(
            [python, "-c", _LOCATE_TORCH],
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    origin = done.stdout.strip()
    return read_torch(Path(origin).parent) if done.returncode == 0 and origin else None


def read_torch(folder: Path) -> TorchInstall | None:
    """What torch's own files say about it."""
    try:
        text = (folder / "version.py").read_text()
    except OSError:
        return None
    version, cuda = _assigned("__version__", text), _assigned("cuda", text)
    if version is None:
        return None
    return TorchInstall(folder, version, cuda, _has_cxx11_abi(folder))


def _assigned(name: str, text: str) -> str | None:
    found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _has_cxx11_abi(folder: Path) -> bool:
    try:
        text = (folder / "share/cmake/Torch/TorchConfig.cmake").read_text()
    except OSError:
        return True
    return "_GLIBCXX_USE_CXX11_ABI=0" not in text
