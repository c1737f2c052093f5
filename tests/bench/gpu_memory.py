"""GPU memory of a process tree, sampled from outside through NVML."""

import threading
from dataclasses import dataclass
from pathlib import Path

PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Peak:
    """Most bytes seen on one GPU.

    `source` is "process" if NVML named the processes of the tree, else "device": what the whole
    GPU used beyond the start. In a container NVML may report pids of another namespace.
    """

    peak_bytes: int
    source: str


class MemorySampler:
    """Samples in a thread while the `with` block runs; `peak` is None where NVML is missing."""

    def __init__(self, pid: int):
        self.pid = pid
        self.peak: Peak | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "MemorySampler":
        nvml = open_nvml()
        if nvml is not None:
            self._thread = threading.Thread(target=self._sample, args=(nvml,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self, nvml) -> None:
        devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        start = [used(nvml, device) for device in devices]
        of_processes = of_device = 0
        while not self._stop.wait(PERIOD_S):
            pids = process_tree(self.pid)
            for device, before in zip(devices, start, strict=True):
                of_processes = max(of_processes, used_by(nvml, device, pids))
                of_device = max(of_device, used(nvml, device) - before)
        if of_processes:
            self.peak = Peak(of_processes, "process")
        else:
            self.peak = Peak(of_device, "device")


def open_nvml():
    """The NVML module, initialised, or None where there is no package or no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # the package's own error class cannot be named where it is missing
        return None
    return pynvml


def used(nvml, device) -> int:
    """Bytes in use on a GPU, whoever uses them."""
    return nvml.nvmlDeviceGetMemoryInfo(device).used


def used_by(nvml, device, pids: set[int]) -> int:
    """Bytes that some processes use on a GPU; NVML gives None where it may not tell."""
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    return sum(p.usedGpuMemory or 0 for p in processes if p.pid in pids)


def process_tree(root: int, proc: Path = Path("/proc")) -> set[int]:
    """A process and all its descendants, also those in sessions of their own."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            children.setdefault(parent(folder), []).append(int(folder.name))
    tree, todo = set(), [root]
    while todo:
        pid = todo.pop()
        tree.add(pid)
        todo += children.get(pid, [])
    return tree


def parent(folder: Path) -> int:
    """Parent of a process; 0 if it has ended in the meantime."""
    try:
        stat = (folder / "stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])  # the name before it may hold anything
