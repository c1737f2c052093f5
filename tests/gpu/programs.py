"""Run small programs without Transit and under it, and compare their results bit for bit.

    python3 tests/gpu/programs.py                                # all, on one GPU
    python3 tests/gpu/programs.py --only fork,nccl --hbm 2GiB --dram 6GiB
    python3 tests/gpu/programs.py --cpu                          # no GPU: are they no nonsense?

Each run is a fresh process. A program prints a digest of its tensors (`RESULT`), those of its
parts (`PART`, so that a difference has a name) and remarks (`NOTE`). What needs more than 2 GiB
has about 3 GiB of live memory. cudaMallocManaged has no program here.

Needs PyTorch, click and pynvml, and TRANSIT_SHIM_PATH or an installed shim. Exits with 1 if a
program failed or a bit differs.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().with_suffix("")
EXPANDABLE = "expandable_segments:True"
ASYNC = "backend:cudaMallocAsync"
ENVIRONMENT = {
    "one-connection": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    "expandable-env": {"PYTORCH_CUDA_ALLOC_CONF": EXPANDABLE, "PYTORCH_ALLOC_CONF": EXPANDABLE},
    "malloc-async": {"PYTORCH_CUDA_ALLOC_CONF": ASYNC, "PYTORCH_ALLOC_CONF": ASYNC},
}
# In the order of what is most worth knowing, should the time run out.
# fmt: off
NAMES = [
    "adamw-fused", "adamw-foreach", "adamw-forloop", "sgd-momentum", "cuda-graph", "nccl", "copies",
    "copies-2d", "fork", "threads", "streams", "data-loader", "batched", "out-of-memory",
    "expandable-env", "malloc-async", "checkpoint", "triton", "profiler", "ipc", "memory-info",
    "expandable-late", "empty-cache", "memory-fraction", "one-connection", "compile",
    "compile-reduce-overhead", "adamw-one-group", "two-ranks", "eight-processes", "killed",
]
# fmt: on
# These measure the device, or share what was compiled, so two at once would disturb each other.
ALONE = {"eight-processes", "killed", "memory-info", "compile", "compile-reduce-overhead", "triton"}
EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
NOISE = ("Warning", "warn", "transit: ", "frame #", "[W", "child: ")


@dataclass(slots=True)
class Outcome:
    """One run of one program."""

    exit_code: int
    wall_s: float
    result: str = ""
    body_s: float | None = None
    skipped: str = ""
    parts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def seconds(self) -> str:
        """Without the import of PyTorch, where the program got so far."""
        return f"{self.wall_s if self.body_s is None else self.body_s:.1f}"


class Run:
    """A program in a process of its own, started at once."""

    def __init__(self, name: str, args: argparse.Namespace, work: Path, with_transit: bool) -> None:
        self._stem = work / f"{name}-{'transit' if with_transit else 'without'}"
        self._timeout_s = args.timeout
        self.json = self._stem.with_suffix(".json")
        command = [sys.executable, str(Path(__file__).resolve()), "--child", name]
        if with_transit:
            budget = ["--hbm", args.hbm, "--dram", args.dram, "--json", str(self.json)]
            command = [sys.executable, "-m", "transit", "run", *budget, "--", *command]
        self._started = time.monotonic()
        out, err = (self._stem.with_suffix(suffix) for suffix in (".out", ".err"))
        with out.open("w") as stdout, err.open("w") as stderr:
            self._process = subprocess.Popen(
                command,
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT,
                env=environment(name, args, work),
                start_new_session=True,
            )

    def wait(self) -> Outcome:
        """Its outcome; a program that takes too long is ended with all its processes."""
        error = ""
        try:
            self._process.wait(self._timeout_s - (time.monotonic() - self._started))
        except subprocess.TimeoutExpired:
            error = f"no end after {self._timeout_s:.0f} s"
        wall_s = time.monotonic() - self._started
        if error:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        outcome = Outcome(self._process.returncode, wall_s)
        for line in self._stem.with_suffix(".out").read_text(errors="replace").splitlines():
            _read_line(outcome, line)
        if outcome.exit_code or not (outcome.result or outcome.skipped):
            lines = self._stem.with_suffix(".err").read_text(errors="replace").splitlines()
            outcome.error = error or _error_line(lines) or f"exit code {outcome.exit_code}"
        return outcome


def _read_line(outcome: Outcome, line: str) -> None:
    kind, _, rest = line.partition(" ")
    if kind == "RESULT":
        outcome.result = rest
    elif kind == "PART":
        name, _, digest = rest.rpartition(" ")
        outcome.parts[name] = digest
    elif kind == "NOTE" and rest:
        outcome.notes.append(rest)
    elif kind == "SECONDS":
        outcome.body_s = float(rest)
    elif kind == "SKIP":
        outcome.skipped = rest


def _error_line(lines: list[str]) -> str:
    """The first exception's line, or Transit's own error, or the last line that says something."""
    useful = [line for line in lines if line.strip() and not line.startswith(NOISE)]
    exceptions = [line for line in useful if EXCEPTION.match(line)]
    own = [line for line in lines if line.startswith("transit: error")]
    return next(iter([*exceptions, *own, *useful[::-1]]), "")


def environment(name: str, args: argparse.Namespace, work: Path) -> dict[str, str]:
    """What both runs of a program see. They share what was compiled, hence its choices."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TRITON_CACHE_DIR": str(work / "triton"),
        "PROGRAMS_CPU": "1" if args.cpu else "0",
        **ENVIRONMENT.get(name, {}),
    }


def moves_and_remarks(path: Path) -> tuple[str, list[str]]:
    """Offloads + prefetches of a `--json` file, and what else is worth a remark."""
    try:
        processes = json.loads(path.read_text())["processes"]
    except (OSError, ValueError, KeyError):
        return "–", []

    def total(name: str) -> int:
        return sum(each["counters"].get(name, 0) for each in processes)

    remarks = [f"{total(name)} {text}" for name, text in COUNTERS.items() if total(name)]
    for process in processes:
        for kind in ("pinned", "passed", "warning"):
            for each in process["named"].get(kind, []):
                remarks.append(f"{kind}: {each['name']} × {each['count']}")
    return f"{total('offloads')}+{total('prefetches')}", list(dict.fromkeys(remarks))


COUNTERS = {
    "in_place_launches": "launches in place",
    "pinned_extents": "extents pinned",
    "unknown_launches": "launches of unknown layout",
    "hidden_accesses": "HIDDEN ACCESSES",
}


def row(name: str, without: Outcome, under: Outcome, json_file: Path) -> tuple[bool, str]:
    """Whether all is well, and the table's line."""
    moves, remarks = moves_and_remarks(json_file)
    notes = [*under.notes, *remarks]
    if without.skipped and under.skipped:
        good, same, notes = True, "skipped", [without.skipped]
    elif without.error or under.error:
        good, same = False, "**failed**"
        both = ("without: ", without.error), ("with: ", under.error)
        notes = [f"{where}{error}" for where, error in both if error] + notes
    elif without.result and without.result == under.result:
        good, same = True, "yes"
    else:
        good, same = False, "**no**"
        names = dict.fromkeys([*without.parts, *under.parts])
        parts = [each for each in names if without.parts.get(each) != under.parts.get(each)]
        notes.insert(0, f"{len(parts)} of {len(names)} parts differ: {', '.join(parts[:3])}")
    text = "; ".join(notes).replace("|", "/")[:400]
    return good, f"| {name} | {same} | {without.seconds} | {under.seconds} | {moves} | {text} |"


def run_all(names: list[str], args: argparse.Namespace, work: Path) -> int:
    """Run, compare, print."""
    begin, failed = time.monotonic(), []
    print("| program | same bits | s without | s with | moves (out+in) | note |")
    print("|---|---|---|---|---|---|", flush=True)
    left = list(names)
    while left and (args.budget_s is None or time.monotonic() - begin < args.budget_s):
        name = left.pop(0)
        first = Run(name, args, work, with_transit=False)
        if args.together and name not in ALONE:
            second = Run(name, args, work, with_transit=True)
            without = first.wait()
        else:
            without = first.wait()
            second = Run(name, args, work, with_transit=True)
        good, line = row(name, without, second.wait(), second.json)
        if not good:
            failed.append(name)
        print(line, flush=True)
    print(f"\n{len(names) - len(left)} programs in {time.monotonic() - begin:.0f} s", end="")
    print(f" (HBM {args.hbm}, DRAM {args.dram}); times are those after PyTorch's import")
    if left:
        print(f"not run for want of time: {', '.join(left)}")
    if failed:
        print(f"FAILED: {', '.join(failed)}; output in {work}")
    return 1 if failed else 0


def child(name: str) -> int:
    """Be the program."""
    sys.path.insert(0, str(FOLDER))
    import kernels
    import kit
    import memory
    import processes
    import training

    started = time.monotonic()
    kit.make_deterministic()
    digest = kit.Digest()
    try:
        all_programs = training.PROGRAMS | memory.PROGRAMS | kernels.PROGRAMS | processes.PROGRAMS
        all_programs[name](digest)
        kit.synchronize()
    except kit.Unavailable as reason:
        print(f"SKIP {reason}")
        return 0
    print(f"SECONDS {time.monotonic() - started:.2f}")
    print(f"RESULT {digest.finish()}", flush=True)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--only", metavar="NAMES", help=f"with commas, of {', '.join(NAMES)}")
    add("--skip", metavar="NAMES", default="", help="with commas")
    add("--hbm", default="2GiB")
    add("--dram", default="6GiB")
    add("--budget-s", type=float, help="start no program after so many seconds")
    add("--timeout", type=float, default=60, metavar="S", help="of one run")
    add("--together", action="store_true", help="both runs of a program at once, where harmless")
    add("--out", type=Path, help="keep outputs and JSON files here")
    add("--cpu", action="store_true", help="tiny sizes on the CPU")
    add("--child", choices=NAMES, metavar="NAME", help="be this program")
    args = parser.parse_args()
    args.names = args.only.split(",") if args.only else NAMES
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    args.names = [name for name in args.names if name not in args.skip.split(",")]
    if args.cpu:  # for --child; the runner sets it for its programs
        os.environ["PROGRAMS_CPU"] = "1"
    return args


def main() -> int:
    """Run one program, or all."""
    args = parse_arguments()
    if args.child:
        return child(args.child)
    work = args.out or Path(tempfile.mkdtemp(prefix="transit-programs-"))
    work.mkdir(parents=True, exist_ok=True)
    return run_all(args.names, args, work.resolve())


if __name__ == "__main__":
    sys.exit(main())
