"""The real CUDA driver, asked in clean child processes: nothing of it is loaded into ours."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Runs in a child. Prints the path under which the loader found the driver.
_FIND: Final = """
import ctypes, os
ctypes.CDLL("libcuda.so.1", mode=os.RTLD_LAZY)
for line in open("/proc/self/maps"):
    fields = line.rstrip("\\n").split(None, 5)
    if len(fields) == 6 and os.path.basename(fields[5]).startswith("libcuda.so"):
        print(fields[5])
        break
"""

# Runs in a child. 102 and 141 are VIRTUAL_MEMORY_MANAGEMENT and HOST_NUMA_VIRTUAL_MEMORY...
_ASK: Final = """
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
number = ctypes.c_int()
answer = {"init": cuda.cuInit(0)}
if answer["init"] == 0:
    cuda.cuDriverGetVersion(ctypes.byref(number))
    answer["cuda"] = number.value
    cuda.cuDeviceGetCount(ctypes.byref(number))
    answer["devices"] = []
    for device in range(number.value):
        row = {}
        for name, attribute in (("vmm", 102), ("host_numa_vmm", 141), ("host_numa_id", 134)):
            rc = cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            row[name] = number.value if rc == 0 else None
        answer["devices"].append(row)
print(json.dumps(answer))
"""


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """What Transit needs of a device; None where the driver does not know the question."""

    vmm: bool | None
    host_numa_vmm: bool | None
    host_numa_id: int | None


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The driver's answer; `init_error` is cuInit's code, 0 for success."""

    init_error: int
    cuda_version: str | None = None
    devices: tuple[DeviceFeatures, ...] = ()


def clean_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without preloads and without what an outer `transit run` set."""
    return {
        name: value
        for name, value in environment.items()
        if name not in ("LD_PRELOAD", "LD_AUDIT") and not name.startswith("TRANSIT_")
    }


def run_python(code: str, *arguments: str, timeout_s: float = 20) -> str | None:
    """The output of a Python program run apart from us; None when it failed."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, *arguments],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_driver(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The absolute path of the real libcuda.so.1, or None on a machine without one.

    TRANSIT_REAL_LIBCUDA, set by the user or by an outer `transit run`, wins.
    """
    if given := environment.get("TRANSIT_REAL_LIBCUDA"):
        return Path(given) if Path(given).is_file() else None
    found = run_python(_FIND)
    return Path(found) if found else None


def ask_driver(driver: Path) -> DriverFacts | None:
    """Version and features by the driver itself; None when it crashed or cannot be loaded."""
    output = run_python(_ASK, str(driver))
    if output is None:
        return None
    try:
        answer = json.loads(output)
    except ValueError:
        return None
    if answer["init"] != 0:
        return DriverFacts(answer["init"])
    version = answer["cuda"]
    return DriverFacts(
        0, f"{version // 1000}.{version % 1000 // 10}", tuple(map(_features, answer["devices"]))
    )


def _features(row: dict[str, int | None]) -> DeviceFeatures:
    return DeviceFeatures(
        None if row["vmm"] is None else bool(row["vmm"]),
        None if row["host_numa_vmm"] is None else bool(row["host_numa_vmm"]),
        row["host_numa_id"],
    )
