"""Programs with kernels of their own kinds, and one that watches kernels."""

import socket

import torch
from kit import (
    CPU,
    DEVICE,
    MIB,
    WIDTH,
    Ballast,
    Digest,
    Trainer,
    Unavailable,
    first_line,
    loss_of,
    note,
    pattern,
    random,
    synchronize,
)
from training import STEPS


def batched(digest: Digest) -> None:
    """Matrices by the batch, by pointer arrays and by groups whose table the GPU makes."""
    side = 16 if CPU else 1024
    ballast = Ballast(2048)
    left, right = random(32, side, side, seed=1), random(32, side, side, seed=2)
    bias = random(32, side, side, seed=3)
    half = side // 2
    groups = random(8, side, side, seed=4, dtype=torch.bfloat16)
    rows = random(8 * half, side, seed=5, dtype=torch.bfloat16)
    ends = torch.arange(1, 9, dtype=torch.int32, device=DEVICE) * half
    triangle = left[:, :half, :half].tril().abs() + half * torch.eye(half, device=DEVICE)
    for number in range(3):
        ballast.touch()
        digest.add(f"bmm{number}", torch.bmm(left, right))
        ballast.touch()
        digest.add(f"baddbmm{number}", torch.baddbmm(bias, left, right))
        ballast.touch()
        solved = torch.linalg.solve_triangular(triangle, bias[:, :half, :half], upper=False)
        digest.add(f"triangular{number}", solved)
        ballast.touch()
        if hasattr(torch, "_grouped_mm"):
            try:
                product = torch._grouped_mm(rows, groups, offs=ends)
            except RuntimeError as error:  # NotImplementedError too
                digest.add(f"grouped_mm{number}", type(error).__name__)
                note(f"grouped_mm: {first_line(error)[:80]}")
                break
            digest.add(f"grouped_mm{number}", product)
    ballast.add_to(digest)


def triton(digest: Digest) -> None:
    """A kernel of one's own."""
    if CPU:
        raise Unavailable("needs CUDA")
    from triton_kernel import scaled_sum

    ballast = Ballast(1792)
    left, right = random(64 * MIB, seed=1), random(64 * MIB, seed=2)
    for number in range(4):
        ballast.touch()
        left = scaled_sum(left, right, 0.5 + number)
    digest.add("sum", left)
    ballast.add_to(digest)


def profiler(digest: Digest) -> None:
    """The profiler sees the program's kernels, all of them."""
    if CPU:
        raise Unavailable("needs CUDA")
    from torch.profiler import ProfilerActivity, profile

    trainer = Trainer()
    block = pattern(128)
    for _ in range(2):
        trainer.step()
    synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(2):
            trainer.step()
            block.bitwise_xor_(5)
        synchronize()
    names = [each.name for each in recorded.events() if each.device_type.name == "CUDA"]
    ours = [name for name in names if "xor" in name.lower() and "::" in name and "aten" not in name]
    if not names:
        raise RuntimeError("the profiler saw nothing of the GPU")
    digest.add("kernels", len(ours))
    note(f"{len(names)} GPU events, {len(ours)} of the marked kernel")
    trainer.add_to(digest)


def nccl(digest: Digest) -> None:
    """Collectives of a single rank on memory that moves."""
    if CPU or not torch.distributed.is_nccl_available():
        raise Unavailable("needs NCCL")
    import torch.distributed as dist

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=address, rank=0, world_size=1, device_id=device)
    trainer = Trainer()
    gathered = torch.empty(2 * WIDTH, WIDTH, device=DEVICE)
    for number in range(STEPS):
        batch = torch.randn(128, WIDTH, device=DEVICE)
        loss = loss_of(trainer.model, batch)
        loss.backward()
        for weight in trainer.model.weights:
            dist.all_reduce(weight.grad)
        half = gathered[number % 2 * WIDTH :][:WIDTH]
        dist.all_gather_into_tensor(half, trainer.model.weights[number].grad)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        trainer.losses.append(loss.detach())
    trainer.add_to(digest)
    digest.add("gathered", gathered)
    dist.destroy_process_group()


PROGRAMS = {"batched": batched, "triton": triton, "profiler": profiler, "nccl": nccl}
