"""Checks of Transit's own libraries and of what the jobs bring."""

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from transit import interpreter, libraries, lifetimes
from transit.doctor.base import Check, ok, problem, warning
from transit.errors import TransitError
from transit.interpreter import TorchInstall
from transit.probes import bcc


def check_software() -> list[Check]:
    """Shim, simulated GPU, PyTorch, NCCL, compiler, and clashing packages."""
    python = shutil.which("python3") or shutil.which("python")
    torch = interpreter.find_torch(Path(python)) if python else None
    return [
        check_shim(),
        check_simulated(),
        check_torch(python, torch),
        check_nccl(torch),
        check_compiler(),
        check_bcc(),
        *check_clashes(),
    ]


def check_bcc() -> Check:
    """BCC, with which the observer compiles its probes."""
    folder = bcc.find_bcc()
    if folder is None:
        return warning("bcc", "not installed, so the observer cannot watch jobs", bcc.INSTALL)
    return ok("bcc", str(folder))


def check_shim() -> Check:
    """The preload library."""
    try:
        return ok("shim", str(libraries.shim_path()))
    except TransitError as error:
        return problem("shim", str(error), error.hint or "set TRANSIT_SHIM_PATH to libtransit.so")


def check_simulated() -> Check:
    """The simulated driver and NCCL."""
    try:
        libraries.sim_nccl_path()
        return ok("simulated gpu", str(libraries.sim_cuda_path()))
    except TransitError as error:
        return warning("simulated gpu", str(error), error.hint or "")


def check_torch(python: str | None, torch: TorchInstall | None) -> Check:
    """The PyTorch of the Python that is first in PATH, which need not be the job's."""
    if python is None:
        return warning("pytorch", "no python3 in PATH", "activate the job's environment first")
    if torch is None:
        return warning("pytorch", f"{python} has none", "activate the job's environment first")
    if torch.cuda is None:
        fix = "jobs of this environment do not use the GPU; install PyTorch's CUDA build"
        return warning("pytorch", f"{torch.version} without CUDA, {torch.folder}", fix)
    return ok("pytorch", f"{torch.version}, CUDA {torch.cuda}, {torch.folder}")


def check_nccl(torch: TorchInstall | None) -> Check:
    """The NCCL that PyTorch's wheel brings, or the system's."""
    for library in sorted(torch.site.glob("nvidia/nccl/lib/libnccl.so.*")) if torch else []:
        version = next((p.name.split("-")[1] for p in _nccl_wheels(library)), "version n/a")
        return ok("nccl", f"{version}, {library}")
    if system := _system_library("libnccl.so.2"):
        return ok("nccl", f"version n/a, {system}")
    return warning("nccl", "none found", "only jobs of several GPUs need it")


def _nccl_wheels(library: Path) -> list[Path]:
    return sorted(library.parents[3].glob("nvidia_nccl_cu*-*.dist-info"))


def _system_library(name: str) -> str | None:
    try:
        cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in cache.stdout.splitlines():
        if line.strip().startswith(name):
            return line.rsplit("=> ", 1)[-1].strip()
    return None


def check_compiler() -> Check:
    """The compiler that builds the lifetimes observer."""
    if compiler := lifetimes.find_compiler(os.environ):
        return ok("c++ compiler", compiler)
    fix = "jobs run, but more has to be moved; install g++"
    return warning("c++ compiler", "none, so PyTorch's block lifetimes are not visible", fix)


def check_clashes() -> list[Check]:
    """Other distributions whose import name is `transit` too."""
    found = []
    for name in ("transit", "transit-python"):
        try:
            metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        text = f"'{name}' is installed and is imported as transit too"
        found.append(problem("packages", text, f"pip uninstall {name}, reinstall transit-gpu"))
    return found
