"""The system's BCC, whatever Python we run in.

BCC is no package of an index (PyPI's `bcc` is something else): it comes with the distribution, for
its own Python, as pure Python over libbcc.so. Only its folder is taken from there: the rest of the
distribution's packages must not get into our virtual environment.
"""

import importlib.util
import os
import sys
from glob import glob
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from transit import host
from transit.errors import PermissionDenied, TransitError, Unsupported

_PLACES: Final = (
    "/usr/lib/python3/dist-packages/bcc",
    "/usr/lib/python3*/site-packages/bcc",
    "/usr/lib64/python3*/site-packages/bcc",
)
INSTALL: Final = "apt-get install python3-bpfcc (Fedora, RHEL: dnf install python3-bcc)"
UPROBE_MULTI: Final = 48  # BPF_TRACE_UPROBE_MULTI, the attach type


def load_bcc() -> ModuleType:
    """The module.

    Raises:
        Unsupported: this system has none that works.
    """
    if "bcc" in sys.modules and hasattr(sys.modules["bcc"], "BPF"):
        return sys.modules["bcc"]
    folder = find_bcc()
    if folder is None:
        raise Unsupported("BCC is not installed", INSTALL)
    return _load_from(folder / "__init__.py")


def find_bcc() -> Path | None:
    """The folder of the package; TRANSIT_BCC names one elsewhere."""
    extra = os.environ.get("TRANSIT_BCC")
    standard = [path for place in _PLACES for path in glob(place)]
    for folder in [extra, *standard] if extra else standard:
        if (Path(folder) / "__init__.py").is_file():
            return Path(folder)
    return None


def _load_from(start: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "bcc", start, submodule_search_locations=[str(start.parent)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError, AttributeError) as error:
        del sys.modules["bcc"]
        raise Unsupported(f"BCC in {start.parent} does not load: {error}", INSTALL) from error
    return module


def refused(what: str, error: Exception) -> TransitError:
    """What BCC's plain exception comes to: a lack of permission, or of support."""
    if host.has_capability(host.CAP_BPF) or host.has_capability(host.CAP_SYS_ADMIN):
        return Unsupported(f"{what}: {error}")
    return PermissionDenied(
        "this user may not load BPF programs", "run it with sudo, or with CAP_BPF and CAP_PERFMON"
    )


def compile_calls(ring_bytes: int, threads: int) -> Any:
    """`bpf/calls.bpf.c`, compiled: a bcc.BPF, with its programs not yet loaded.

    Args:
        ring_bytes: of the ring of records, a power of two of at least a page.
        threads: of traced processes that can be told apart at once.

    Raises:
        Unsupported: BCC is missing, or cannot compile it.
        PermissionDenied: this user may not have BPF programs.
    """
    module = load_bcc()
    here = Path(str(resources.files("transit.probes")))
    os.environ["BCC_KERNEL_SOURCE"] = str(here / "headers")
    flags = ["-w", f"-I{here / 'bpf'}", f"-DRING_PAGES={ring_bytes // 4096}"]
    flags.append(f"-DMAX_THREADS={threads}")
    try:
        return module.BPF(text=(here / "bpf/calls.bpf.c").read_bytes(), cflags=flags)
    except Exception as error:  # BCC raises plain ones
        raise refused("BCC cannot compile the probes", error) from error
