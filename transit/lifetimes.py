"""Build the allocator-trace observer against the job's PyTorch, once, and keep it.

It lets the shim see which bytes of PyTorch's segments are alive. Without it segments count as
alive, which is right but moves more, so that every failure here ends in one line and no more.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from transit.interpreter import TorchInstall

_COMPILE_TIMEOUT_S: Final = 60
_FLAGS: Final = ("-std=c++20", "-O1", "-fPIC", "-shared", "-w")


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The built library, or a sentence why there is none."""

    path: Path | None
    problem: str | None = None


def obtain(torch: TorchInstall, source: Path | None, environment: Mapping[str, str]) -> Lifetimes:
    """The observer from the cache, or freshly built."""
    if torch.cuda is None:
        return Lifetimes(None)
    if source is None:
        return Lifetimes(None, "its source is not installed")
    try:
        library = cache_folder(environment) / f"lifetimes-{cache_key(torch, source)}.so"
    except RuntimeError:  # pathlib's, in containers whose user is only a number
        return Lifetimes(None, "this user has no home; XDG_CACHE_HOME can name a folder")
    if library.is_file():
        return Lifetimes(library)
    compiler = find_compiler(environment)
    if compiler is None:
        return Lifetimes(None, "no C++ compiler (g++) is installed")
    try:
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _build(compiler, torch, source, library)
    except OSError as error:
        return Lifetimes(None, f"{library.parent}: {error.strerror}")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """$XDG_CACHE_HOME/transit, or ~/.cache/transit."""
    base = environment.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "transit"


def cache_key(torch: TorchInstall, source: Path) -> str:
    """Names the library by all that it was built from."""
    parts = (torch.version, str(torch.folder.resolve()), str(torch.cxx11_abi), *_FLAGS)
    digest = hashlib.sha256("\0".join(parts).encode())
    digest.update(source.read_bytes())
    return digest.hexdigest()[:24]


def find_compiler(environment: Mapping[str, str]) -> str | None:
    """$CXX, else g++, c++ or clang++."""
    for name in (environment.get("CXX", ""), "g++", "c++", "clang++"):
        if name and (found := shutil.which(name, path=environment.get("PATH"))):
            return found
    return None


def include_folders(torch: TorchInstall, environment: Mapping[str, str]) -> list[Path]:
    """torch's headers, then CUDA's: a toolkit, the job's nvidia wheels, those inside Triton."""
    homes = [environment.get("CUDA_HOME", ""), environment.get("CUDA_PATH", ""), "/usr/local/cuda"]
    nvidia = torch.site / "nvidia"
    candidates = [
        torch.folder / "include",
        torch.folder / "include/torch/csrc/api/include",
        *sorted(nvidia.glob("cu[0-9]*/include"), reverse=True),
        *sorted(nvidia.glob("cuda_*/include")),
        *(Path(home) / "include" for home in homes if home),
        torch.site / "triton/backends/nvidia/include",
    ]
    return [folder for folder in candidates if folder.is_dir()]


def compile_command(
    compiler: str, torch: TorchInstall, source: Path, output: Path, includes: list[Path]
) -> list[str]:
    """The compiler's command line. libc10_cuda is named so that the loader finds torch's."""
    return [
        compiler,
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        *(f"-isystem{folder}" for folder in includes),
        str(source),
        "-o",
        str(output),
        f"-L{torch.folder / 'lib'}",
        "-lc10_cuda",
        "-lc10",
    ]


def _build(compiler: str, torch: TorchInstall, source: Path, library: Path) -> Lifetimes:
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_AUDIT")}
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".build-") as folder:
        output = Path(folder) / "lifetimes.so"
        includes = include_folders(torch, environment)
        command = compile_command(compiler, torch, source, output, includes)
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMPILE_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return Lifetimes(None, f"{compiler} took longer than {_COMPILE_TIMEOUT_S} s")
        if done.returncode != 0:
            return Lifetimes(None, f"{compiler} failed: {_first_error(done.stderr)}")
        output.replace(library)  # atomic: other ranks may be building the same
    return Lifetimes(library)


def _first_error(output: str) -> str:
    lines = output.splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "no output")
