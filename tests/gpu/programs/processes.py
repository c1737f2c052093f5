"""Programs of several processes on one GPU: two ranks, eight jobs at once, one that is killed.

python3 processes.py rank|job|endless SEED      is one of those processes
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

from kit import CPU, Digest, Trainer, Unavailable, make_deterministic, random, synchronize

STEPS = 6
LAYERS = 2 if CPU else 12


def command(kind: str, seed: int = 0) -> list[str]:
    """The arguments after Python's own."""
    return [os.path.abspath(__file__), kind, str(seed)]


def collect(digest: Digest, name: str, process: "subprocess.Popen[str]") -> None:
    """What a process printed as parts of its result is part of ours."""
    out, err = process.communicate(timeout=50)
    if process.returncode != 0:
        raise RuntimeError(f"{name} ended with {process.returncode}: {err[-2000:]}")
    for line in sorted(out.splitlines()):
        if line.startswith("PART "):
            digest.add(f"{name}.{line.split()[1]}", line.split()[2])


def start(*arguments: str) -> "subprocess.Popen[str]":
    """A Python process whose output is kept."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *arguments], stdout=pipe, stderr=pipe, text=True)


def two_ranks(digest: Digest) -> None:
    """torchrun with two ranks on one GPU, gradients averaged by gloo (NCCL wants two GPUs)."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    collect(digest, "ranks", start(*torchrun, *command("rank")))


def eight_processes(digest: Digest) -> None:
    """Eight jobs at once, each with a budget of its own."""
    jobs = [start(*command("job", seed)) for seed in range(8)]
    for number, job in enumerate(jobs):
        collect(digest, f"job{number}", job)


def used_bytes() -> int:
    """Of the device, by all processes."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def killed(digest: Digest) -> None:
    """A job that is killed while it trains leaves nothing behind."""
    if CPU:
        raise Unavailable("needs CUDA")
    shared, before = set(os.listdir("/dev/shm")), used_bytes()
    job = start(*command("endless"))
    assert job.stdout is not None
    job.stdout.readline()  # after its third step
    held = used_bytes() - before
    job.kill()
    job.communicate()
    for _ in range(100):
        if used_bytes() <= before:
            break
        time.sleep(0.1)
    digest.add("held at least a GiB", held > 1 << 30)
    digest.add("all device memory back", used_bytes() <= before)
    digest.add("files left", sorted(set(os.listdir("/dev/shm")) - shared))


def job(seed: int) -> None:
    """Train alone."""
    trainer = Trainer(LAYERS, seed=100 * seed)
    for _ in range(STEPS):
        trainer.step()
    trainer.add_to(Digest())


def endless(seed: int) -> None:
    """Train until somebody ends it."""
    trainer = Trainer(LAYERS, seed=seed)
    for number in range(1_000_000):
        trainer.step()
        if number == 2:
            synchronize()
            print("training", flush=True)


def rank(_seed: int) -> None:
    """One of the ranks: the same weights, another batch each, gradients averaged."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    trainer = Trainer(LAYERS)
    weights = list(trainer.model.weights)
    for weight in weights:
        weight.register_post_accumulate_grad_hook(lambda w: dist.all_reduce(w.grad))
    for number in range(STEPS):
        width = weights[0].shape[0]
        trainer.step(random(128, width, seed=10 * number + dist.get_rank()))
    if dist.get_rank() == 0:
        trainer.add_to(Digest())
    dist.barrier()
    dist.destroy_process_group()


PROGRAMS: dict[str, Callable[[Digest], None]] = {
    "two-ranks": two_ranks,
    "eight-processes": eight_processes,
    "killed": killed,
}

if __name__ == "__main__":
    make_deterministic()
    {"job": job, "endless": endless, "rank": rank}[sys.argv[1]](int(sys.argv[2]))
    synchronize()
