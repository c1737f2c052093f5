"""Programs that train: optimizers, allocators, graphs, compilation, threads, workers."""

import os
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from kit import CPU, DEVICE, WIDTH, Ballast, Digest, Mlp, Trainer, Unavailable, loss_of, note
from torch.utils.data import DataLoader, Dataset

STEPS = 6


def train(
    digest: Digest,
    kind: str = "fused",
    layers: int = 12,
    group: int = 2,
    after_step: Callable[[], None] | None = None,
) -> None:
    """Train for a few steps."""
    trainer = Trainer(layers, kind, group=group)
    for _ in range(STEPS):
        trainer.step()
        if after_step:
            after_step()
    trainer.add_to(digest)


def memory_fraction(digest: Digest) -> None:
    """A limit of PyTorch's own on the device's memory."""
    if not CPU:
        torch.cuda.set_per_process_memory_fraction(0.9)
    train(digest)


def expandable_env(digest: Digest) -> None:
    """Expandable segments from the start, by the environment."""
    train(digest)
    if not CPU:
        snapshot = torch.cuda.memory_snapshot()
        note(f"{sum(segment['is_expandable'] for segment in snapshot)} expandable segments")


def set_allocator(text: str) -> None:
    """Change the allocator's settings. The function has moved between PyTorch's versions."""
    change = getattr(torch.cuda.memory, "_set_allocator_settings", None)
    (change or torch._C._accelerator_setAllocatorSettings)(text)


def expandable_late(digest: Digest) -> None:
    """Expandable segments switched on while the job runs."""
    first = Trainer(4)
    first.step()
    if not CPU:
        set_allocator("expandable_segments:True")
    second = Trainer(8, seed=50)
    for _ in range(STEPS):
        first.step()
        second.step()
    first.add_to(digest, "first.")
    second.add_to(digest, "second.")
    if not CPU:
        snapshot = torch.cuda.memory_snapshot()
        note(f"{sum(segment['is_expandable'] for segment in snapshot)} expandable segments")


def malloc_async(digest: Digest) -> None:
    """backend:cudaMallocAsync by the environment."""
    train(digest)
    note("" if CPU else f"backend {torch.cuda.get_allocator_backend()}")


def empty_cache(digest: Digest) -> None:
    """The cache is given back after each step."""
    train(digest, after_step=None if CPU else torch.cuda.empty_cache)


def out_of_memory(digest: Digest) -> None:
    """Errors for want of memory are caught, and training goes on."""
    trainer = Trainer()
    for number in range(STEPS):
        trainer.step()
        if number == 2 and not CPU:
            digest.add("far too much", _raises_oom(lambda: torch.empty(1 << 40, device=DEVICE)))
            _exhaust()
    trainer.add_to(digest)


def _exhaust() -> None:
    """Take blocks of 256 MiB until there are no more. Where it stops depends on the device."""
    blocks: list[torch.Tensor] = []
    try:
        while len(blocks) < 40:
            blocks.append(torch.empty(1 << 26, device=DEVICE))
            blocks[-1][:: 1 << 19].fill_(len(blocks))
        end = "that was enough"
    except torch.cuda.OutOfMemoryError:
        end = "then out of memory"
    note(f"{len(blocks) / 4} GiB on top, {end}")


def _raises_oom(action: Callable[[], object]) -> bool:
    try:
        action()
    except torch.cuda.OutOfMemoryError:
        return True
    return False


def cuda_graph(digest: Digest) -> None:
    """A captured forward and backward pass, replayed while other memory comes and goes."""
    if CPU:
        raise Unavailable("needs CUDA")
    model, ballast = Mlp(4), Ballast()
    batch = torch.randn(128, WIDTH, device=DEVICE)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            loss_of(model, batch).backward()
            model.zero_grad()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = loss_of(model, batch)
        loss.backward()
    losses = []
    for _ in range(STEPS):
        batch.normal_()
        ballast.touch()
        graph.replay()
        with torch.no_grad():
            for weight in model.weights:
                weight.sub_(weight.grad)
        losses.append(loss.clone())
    digest.add("losses", torch.stack(losses))
    for number, weight in enumerate(model.weights):
        digest.add(f"weight{number}", weight)
        digest.add(f"gradient{number}", weight.grad)
    ballast.add_to(digest)


def compiled(digest: Digest, mode: str = "default") -> None:
    """torch.compile, on memory that is moved between the steps."""
    if CPU:
        raise Unavailable("needs CUDA")
    import torch._inductor.config as inductor

    if hasattr(inductor, "deterministic"):
        inductor.deterministic = True  # no choice of kernels by their times
    trainer, ballast = Trainer(2), Ballast()
    trainer.model.compile(mode=mode)
    for _ in range(STEPS):
        torch.compiler.cudagraph_mark_step_begin()
        batch = torch.randn(128, WIDTH, device=DEVICE)
        loss = loss_of(trainer.model, batch)
        loss.backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        trainer.losses.append(loss.detach().clone())
        ballast.touch()
    trainer.add_to(digest)
    ballast.add_to(digest)


def threads(digest: Digest) -> None:
    """Two threads train a model each, on streams of their own."""
    trainers: dict[int, Trainer] = {}
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            if CPU:
                trainers[number] = _train_six(number)
                return
            with torch.cuda.stream(torch.cuda.Stream()):
                trainers[number] = _train_six(number)
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    for number in range(2):
        trainers[number].add_to(digest, f"thread{number}.")


def _train_six(number: int) -> Trainer:
    trainer = Trainer(6, seed=100 * number)
    for _ in range(STEPS):
        trainer.step()
    return trainer


class Numbers(Dataset):
    """Samples that a worker makes from their number."""

    def __len__(self) -> int:
        return 32 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))


def data_loader(digest: Digest) -> None:
    """Two forked workers and pinned memory. The context is there before the fork."""
    trainer = Trainer()
    trainer.step()
    loader = DataLoader(
        Numbers(), batch_size=32, num_workers=2, pin_memory=not CPU, multiprocessing_context="fork"
    )
    for batch in loader:
        trainer.step(batch.to(DEVICE, non_blocking=True))
    trainer.add_to(digest)


def checkpoint(digest: Digest) -> None:
    """States to the CPU and to a file, back into a new job, and on."""
    trainer, ballast = Trainer(6), Ballast(1536)
    for _ in range(3):
        trainer.step()
        ballast.touch()
    states = trainer.optimizer.state_dict()
    for state in states["state"].values():
        state.update({key: value.cpu() for key, value in state.items()})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.pt")
        torch.save(trainer.model.state_dict(), file)
        del trainer
        second = Trainer(6, seed=7)
        second.model.load_state_dict(torch.load(file, map_location="cpu"))
    second.optimizer.load_state_dict(states)
    for _ in range(3):
        second.step()
        ballast.touch()
    second.add_to(digest)
    ballast.add_to(digest)


def one_connection(digest: Digest) -> None:
    """All streams share a hardware queue."""
    if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") != "1":
        raise RuntimeError("CUDA_DEVICE_MAX_CONNECTIONS is not 1")
    threads(digest)


PROGRAMS = {
    "adamw-fused": train,
    "adamw-foreach": partial(train, kind="foreach"),
    "adamw-forloop": partial(train, kind="forloop"),
    "sgd-momentum": partial(train, kind="sgd", layers=16),
    "adamw-one-group": partial(train, group=12),
    "cuda-graph": cuda_graph,
    "compile": compiled,
    "compile-reduce-overhead": partial(compiled, mode="reduce-overhead"),
    "threads": threads,
    "data-loader": data_loader,
    "one-connection": one_connection,
    "memory-fraction": memory_fraction,
    "expandable-env": expandable_env,
    "expandable-late": expandable_late,
    "malloc-async": malloc_async,
    "empty-cache": empty_cache,
    "out-of-memory": out_of_memory,
    "checkpoint": checkpoint,
}
