"""Do kernels give the same bits on DRAM frames, across a move, and in a moved CUDA graph?

    python dram_kernels.py                  # a Markdown table; exits with 1 at any difference
    python dram_kernels.py --case softmax   # one row, in this process

Every kernel runs twice on the same operands. In the reference they stay in HBM. Then all operands
are in DRAM; or they move between the two launches, address unchanged; or the two launches are
replays of a graph captured in HBM, with the move between them. The bytes of all operands at the
end are compared with the reference's. A row has a process of its own: a fault ends only that.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from kernel_cases import CASES, Case
from torch import Tensor
from vmm import DRAM, HBM, Driver, DriverError, Movable

CASE_TIMEOUT_S = 120
EQUAL, DIFFERENT, VARIES = "equal", "DIFFERENT", "varies"


@dataclass(frozen=True)
class Mode:
    """Where the operands are in the two launches, and whether these are replays of a graph."""

    name: str
    first: str
    second: str
    graph: bool = False


MODES = [
    Mode("in DRAM", DRAM, DRAM),
    Mode("moved out", HBM, DRAM),
    Mode("moved in", DRAM, HBM),
    Mode("graph, moved out", HBM, DRAM, graph=True),
    Mode("graph, moved in", DRAM, HBM, graph=True),
]
REFERENCE = Mode("reference", HBM, HBM)


@dataclass(frozen=True)
class Outcome:
    """Bytes of all operands at the end, and the time of the second launch."""

    operands: list[Tensor]
    second_ms: float


class ArrayInterface:
    """Bytes at an address, in the form that torch.as_tensor takes."""

    def __init__(self, address: int, size: int):
        self.__cuda_array_interface__ = {
            "version": 2,
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
        }


class Operands:
    """Copies of tensors in memory that can move; a context manager that frees it."""

    def __init__(self, driver: Driver, tensors: list[Tensor]):
        self.memory = [Movable(driver, tensor.nbytes) for tensor in tensors]
        # Wrapped while in HBM: PyTorch reads the device from the pointer, DRAM may have none.
        self.tensors = [wrap(memory, like) for memory, like in zip(self.memory, tensors)]

    def __enter__(self) -> "Operands":
        return self

    def __exit__(self, *_: object) -> None:
        torch.cuda.synchronize()
        self.tensors.clear()
        for memory in self.memory:
            memory.close()

    def move(self, where: str) -> None:
        """Move all of them, once the device is idle."""
        torch.cuda.synchronize()
        for memory in self.memory:
            memory.move(where)

    def contents(self) -> list[Tensor]:
        """Copies of the bytes, on the host."""
        torch.cuda.synchronize()
        return [tensor.cpu() for tensor in self.tensors]


def wrap(memory: Movable, like: Tensor) -> Tensor:
    """A tensor in movable memory with another one's type, shape and contents."""
    flat = torch.as_tensor(ArrayInterface(memory.mapping.address, like.nbytes), device="cuda")
    tensor = flat.view(like.dtype).view(like.shape)
    tensor.copy_(like)
    return tensor


def execute(driver: Driver, case: Case, tensors: list[Tensor], mode: Mode) -> Outcome:
    """Run a case once in one mode."""
    with Operands(driver, tensors) as operands:
        launch = capture(case, operands.tensors) if mode.graph else direct(case, operands.tensors)
        operands.move(mode.first)
        launch()
        operands.move(mode.second)
        second_ms = timed(launch)
        return Outcome(operands.contents(), second_ms)


def direct(case: Case, tensors: list[Tensor]) -> Callable[[], object]:
    """Plain launches."""
    return lambda: case.kernel(*tensors)


def capture(case: Case, tensors: list[Tensor]) -> Callable[[], object]:
    """Replays of a graph; the warm-up that PyTorch asks for works on copies."""
    copies = [tensor.clone() for tensor in tensors]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        case.kernel(*copies)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.kernel(*tensors)
    return graph.replay


def timed(launch: Callable[[], object]) -> float:
    """Milliseconds of a launch on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    launch()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def same(a: Outcome, b: Outcome) -> bool:
    """Whether all bytes are equal; NaNs count by their bits."""
    return all(
        torch.equal(x.reshape(-1).view(torch.uint8), y.reshape(-1).view(torch.uint8))
        for x, y in zip(a.operands, b.operands)
    )


def run_case(case: Case) -> None:
    """Run all modes of one case here and print a line of JSON after each."""
    torch.zeros(1, device="cuda")  # makes the primary context current
    driver = Driver(torch.cuda.current_device())
    torch.manual_seed(0)
    tensors = case.operands()
    execute(driver, case, tensors, REFERENCE)  # warm-up: loads modules, picks algorithms
    reference = execute(driver, case, tensors, REFERENCE)
    repeats = same(reference, execute(driver, case, tensors, REFERENCE))
    for mode in MODES:
        try:
            outcome = execute(driver, case, tensors, mode)
        except (RuntimeError, DriverError) as error:
            say(mode, f"error: {str(error).splitlines()[0][:60]}")
            continue
        verdict = EQUAL if same(outcome, reference) else DIFFERENT if repeats else VARIES
        say(mode, verdict, outcome.second_ms / reference.second_ms)


def say(mode: Mode, verdict: str, slowdown: float | None = None) -> None:
    """Tell the parent process."""
    print(json.dumps([mode.name, verdict, slowdown]), flush=True)


def row(case: Case) -> list[str]:
    """Run one case in a process of its own; cells of its row."""
    command = [sys.executable, __file__, "--case", case.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_TIMEOUT_S)
        output, ending = done.stdout, f"died: {last_line(done.stderr)}"
    except subprocess.TimeoutExpired as expired:
        # Bytes in spite of text=True.
        output, ending = bytes(expired.stdout or b"").decode(), "timed out"
    answers = [json.loads(line) for line in output.splitlines() if line.startswith("[")]
    verdicts = {name: verdict for name, verdict, _ in answers}
    slowdown = next((f"{times:.0f}" for name, _, times in answers if times), "n/a")
    return [case.name, *(verdicts.get(mode.name, ending) for mode in MODES), slowdown]


def last_line(text: str) -> str:
    """The line of a traceback that tells most."""
    return (text.strip().splitlines() or ["no message"])[-1][:60]


def main() -> int:
    """Print the table, or one case's lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=[case.name for case in CASES])
    only = parser.parse_args().case
    if only:
        run_case(next(case for case in CASES if case.name == only))
        return 0
    print(f"| kernel | {' | '.join(mode.name for mode in MODES)} | × time in DRAM |")
    print(f"|{'---|' * (len(MODES) + 2)}")
    rows = []
    for case in CASES:
        rows.append(row(case))
        print(f"| {' | '.join(rows[-1])} |", flush=True)
    verdicts = itertools.chain.from_iterable(cells[1:-1] for cells in rows)
    return 0 if all(verdict in (EQUAL, VARIES) for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
