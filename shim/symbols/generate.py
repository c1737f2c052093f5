"""List the C functions that libcuda.so.1 exports, read from NVIDIA's own headers.

    python3 generate.py 12.4=DIR 13.0=DIR ... > cuda.txt     # union over the include folders
    python3 generate.py --check cuda.txt libcuda.so.1        # what a real driver exports beyond it

DIR is an include folder of a CUDA toolkit or of a nvidia-cuda-runtime wheel. cuda.h renames its
functions by macros (cuMemAlloc is cuMemAlloc_v2 today) and declares old ABIs and per-thread
variants (_ptds, _ptsz) only under internal macros, so each header is preprocessed three times and
the declarations that remain are collected; a few names that no header has are added. Needs gcc
(or CC), and nm for --check.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h")

# Newest names; oldest ABIs with all variants; variants of the newest names.
DEFINES = ((), ("__CUDA_API_VERSION_INTERNAL",), ("CUDA_API_PER_THREAD_DEFAULT_STREAM",))

# Exported by every driver since 12.x (dynsym of 570) yet declared in no header.
UNDECLARED = frozenset(
    (
        *("cuEGLApiInit", "cuMemGetAttribute", "cuMemGetAttribute_v2"),
        *("cudbgApiAttach", "cudbgApiDetach", "cudbgApiInit", "cudbgGetAPI", "cudbgGetAPIVersion"),
        *("cudbgMain", "cudbgReportDriverApiError", "cudbgReportDriverInternalError"),
    )
)

# Included by the interoperability headers. Only names matter here, so empty files will do.
FOREIGN_HEADERS = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")

DECLARATION = re.compile(r"(static\s+inline\s+)?\bCUresult\s+(cu[A-Z]\w*)\s*\(")

# Wheels leave out cudaProfiler.h but keep the typedefs of what it declares.
PROFILER_TYPEDEF = re.compile(r"\*PFN_(cuProfiler\w+)_v\d+\)")


def main() -> int:
    """Print the list, or compare it with a driver."""
    args = parse_arguments()
    if args.check:
        listed, driver = args.check
        return report_missing(read_list(Path(listed)), exported(Path(driver)))
    folders = dict(parse_folder(text) for text in args.folders)
    names = UNDECLARED.union(*(declared(folder) for folder in folders.values()))
    print("# C functions exported by libcuda.so.1, one a line, made by generate.py.")
    print(f"# Union over the headers of CUDA {', '.join(folders)}: {len(names)} names.")
    print(*sorted(names), sep="\n")
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line; exactly one of the two forms above is allowed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", metavar="VERSION=DIR")
    parser.add_argument("--check", nargs=2, metavar=("LIST", "LIBRARY"))
    args = parser.parse_args()
    if bool(args.folders) == bool(args.check):
        parser.error("give include folders, or --check LIST LIBRARY")
    return args


def parse_folder(text: str) -> tuple[str, Path]:
    """Split VERSION=DIR."""
    version, _, folder = text.partition("=")
    if not (Path(folder) / "cuda.h").is_file():
        sys.exit(f"generate.py: no cuda.h in {folder or text}")
    return version, Path(folder)


def declared(include: Path) -> set[str]:
    """Names of all functions that the headers in one folder declare."""
    names: set[str] = set()
    for header in HEADERS:
        if (include / header).is_file():
            for defines in DEFINES:
                names.update(functions(preprocess(include, header, defines)))
    typedefs = include / "cudaProfilerTypedefs.h"
    if typedefs.is_file():
        names.update(PROFILER_TYPEDEF.findall(typedefs.read_text()))
    return names


def preprocess(include: Path, header: str, defines: tuple[str, ...]) -> str:
    """The header after macro expansion, without line markers."""
    with tempfile.TemporaryDirectory() as scratch:
        for foreign in FOREIGN_HEADERS:
            path = Path(scratch, foreign)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        command = [os.environ.get("CC", "gcc"), "-E", "-P", "-I", str(include), "-I", scratch]
        command += ["-include", "cuda.h"]  # cudaVDPAU.h leaves CUDAAPI to its includer
        command += [f"-D{name}" for name in defines] + [str(include / header)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def functions(source: str) -> Iterator[str]:
    """Names declared in preprocessed C; inline ones live in the header, not in the library."""
    for inline, name in DECLARATION.findall(source):
        if not inline:
            yield name


def read_list(path: Path) -> set[str]:
    """Names in a list file."""
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


def exported(library: Path) -> set[str]:
    """Names of the functions that a shared library exports."""
    command = ["nm", "-D", "--defined-only", str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = (line.split()[-2:] for line in lines)
    return {
        name.split("@")[0] for kind, name in symbols if kind in "TtWi" and name.startswith("cu")
    }


def report_missing(listed: set[str], driver: set[str]) -> int:
    """Say what the list lacks: the shim would hide those functions."""
    missing = sorted(driver - listed)
    print(f"driver exports {len(driver)}, list has {len(listed)}, missing in it {len(missing)}")
    print(*missing, sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
