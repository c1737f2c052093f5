"""Train a Llama-shaped model with FSDP2 on made-up text: a job like any other.

    python llama.py --size 3b                                   # one GPU
    torchrun --nproc-per-node 2 llama.py --size 8b --accum 2    # two
    python llama.py --size tiny --seq 64 --cpu                  # no GPU: a test

fp32 parameters, gradients and Adam states; bf16 arithmetic; gradients reduced in fp32. The text
is a function of (--seed, step, micro-batch, rank), so that a resumed run sees what the
uninterrupted one would have seen.

--deterministic makes two runs equal bit for bit: PyTorch's deterministic algorithms, a fixed
cuBLAS workspace, and attention by flash (deterministic backward) or plain matmuls, since the
memory-efficient and cuDNN backends have no deterministic backward everywhere.

--json writes what was measured: losses as decimals and as exact hexadecimal floats per rank,
a checksum of parameters and optimizer states per rank, step times, tokens per second and memory.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from llama_model import SIZES, Llama, ModelConfig

LEARNING_RATE = 1e-4
MAX_GRAD_NORM = 1.0
WARMUP_STEPS = 2  # not counted in tokens per second
SUCCESSORS = 8  # tokens that can follow a token


def main() -> None:
    """Set up, train, report."""
    args = parse_arguments()
    device = start_distributed(args.cpu)
    if args.deterministic:
        make_deterministic()
    torch.manual_seed(args.seed)
    config = SIZES[args.size]
    model = build_model(config, args, device)
    optimizer = build_optimizer(model, args.optimizer)
    first = load(args.resume, model, optimizer) if args.resume else 0
    losses, step_s = train(model, optimizer, config, args, device, first)
    if args.save:
        save(args.save, model, optimizer, first + args.steps)
    report(args, config, device, first, losses, step_s, checksum(model, optimizer))
    dist.barrier()  # else gloo's threads may drop Python objects while the interpreter ends
    dist.destroy_process_group()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--size", choices=SIZES, default="3b")
    add("--steps", type=int, default=8)
    add("--batch", type=int, default=4, help="sequences per micro-batch and rank")
    add("--seq", type=int, default=4096, help="tokens per sequence")
    add("--accum", type=int, default=1, help="micro-batches per step")
    add("--checkpointing", choices=("full", "none"), default="full")
    add("--optimizer", choices=("fused", "foreach", "forloop"), default="fused")
    add("--compile", action="store_true", help="compile each block")
    add("--deterministic", action="store_true", help="same bits in every run")
    add("--seed", type=int, default=0)
    add("--save", metavar="DIR", help="write a checkpoint after the last step")
    add("--resume", metavar="DIR", help="start from a checkpoint; --steps more are run")
    add("--json", metavar="FILE", help="write the measurements here")
    add("--cpu", action="store_true", help="run on the CPU, with gloo")
    return parser.parse_args()


def start_distributed(cpu: bool) -> torch.device:
    """Join the job, or be a job of one, and return this rank's device."""
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(free_port()))
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")):
        os.environ.setdefault(name, value)
    if cpu:
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def make_deterministic() -> None:
    """Take only algorithms that give the same bits in every run."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Fresh memory is always written before it is read here; filling it would only cost time.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


def build_model(config: ModelConfig, args: argparse.Namespace, device: torch.device) -> Llama:
    """Create the model on the meta device, shard each block and the rest, fill the weights."""
    with torch.device("meta"):
        model = Llama(config, recompute=args.checkpointing == "full")
    # Without a mesh FSDP would take a GPU where there is one, under --cpu too.
    mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if args.compile:
            # Not block.compile(): FSDP's hooks are to stay outside of the compiled code.
            block.forward = torch.compile(block.forward)
        fully_shard(block, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    model.to_empty(device=device)
    model.init_weights()
    return model


def build_optimizer(model: nn.Module, kind: str) -> torch.optim.AdamW:
    """AdamW in one of PyTorch's three implementations."""
    return torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, fused=kind == "fused", foreach=kind == "foreach"
    )


def train(
    model: Llama,
    optimizer: torch.optim.Optimizer,
    config: ModelConfig,
    args: argparse.Namespace,
    device: torch.device,
    first: int,
) -> tuple[list[float], list[float]]:
    """Run the steps and return this rank's loss and the seconds of each."""
    losses, step_s = [], []
    for step in range(first, first + args.steps):
        synchronize(device)
        begin = time.perf_counter()
        loss = train_step(model, optimizer, config, args, device, step)
        synchronize(device)
        step_s.append(time.perf_counter() - begin)
        losses.append(loss.item())
        if dist.get_rank() == 0:
            print(f"step {step}  loss {losses[-1]:.6f}  {step_s[-1]:.3f} s", flush=True)
    return losses, step_s


def train_step(
    model: Llama,
    optimizer: torch.optim.Optimizer,
    config: ModelConfig,
    args: argparse.Namespace,
    device: torch.device,
    step: int,
) -> Tensor:
    """Forward and backward over all micro-batches, then one update."""
    total = torch.zeros((), device=device)
    for micro in range(args.accum):
        if dist.get_world_size() > 1:
            model.set_requires_gradient_sync(micro == args.accum - 1)
        batch = make_batch(config.vocab, args, step, micro).to(device, non_blocking=True)
        loss = loss_of(model, batch) / args.accum
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return total


def loss_of(model: Llama, batch: Tensor) -> Tensor:
    """Cross entropy of the next token, over fp32 logits."""
    logits = model(batch[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def make_batch(vocab: int, args: argparse.Namespace, step: int, micro: int) -> Tensor:
    """Made-up text that can be learned: after token t comes one of t+1 … t+8.

    Numbered over micro-batches and ranks alike, so that one rank with --accum 2 and two ranks
    with --accum 1 train on the same global batches.
    """
    number = (step * args.accum + micro) * dist.get_world_size() + dist.get_rank()
    generator = torch.Generator().manual_seed((args.seed << 32) + number)
    start = torch.randint(vocab, (args.batch, 1), generator=generator)
    shape = (args.batch, args.seq)
    strides = torch.randint(1, SUCCESSORS + 1, shape, generator=generator)
    return torch.cat((start, start + strides.cumsum(1)), 1) % vocab


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def save(folder: str, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Write a sharded checkpoint."""
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states, "steps": steps}, checkpoint_id=folder)


def load(folder: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Read a checkpoint into the model and the optimizer; return the steps done so far."""
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states, "steps": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    return state["steps"]


def checksum(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A number over the bits of this rank's parameters and optimizer states."""
    total = 0
    for parameter in model.parameters():
        for tensor in (parameter, *optimizer.state[parameter].values()):
            local = getattr(tensor, "_local_tensor", tensor).detach()
            words = local.view(torch.int32).sum(dtype=torch.int64).item()
            total = (total * 1_000_003 + words) % 2**64
    return f"{total:016x}"


def report(
    args: argparse.Namespace,
    config: ModelConfig,
    device: torch.device,
    first: int,
    losses: list[float],
    step_s: list[float],
    state: str,
) -> None:
    """Print a summary on rank 0 and write it to --json."""
    mine = {"losses": losses, "checksum": state, **memory(device)}
    ranks: list[dict] = [{}] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    if dist.get_rank() != 0:
        return
    median_s = statistics.median(step_s[WARMUP_STEPS:] or step_s)
    summary = {
        "arguments": vars(args),
        "model": asdict(config),
        "world_size": len(ranks),
        "versions": versions(device),
        "first_step": first,
        "losses": [
            statistics.fmean(step) for step in zip(*(r["losses"] for r in ranks), strict=True)
        ],
        "losses_hex": [[loss.hex() for loss in rank["losses"]] for rank in ranks],
        "checksums": [rank["checksum"] for rank in ranks],
        "step_s": step_s,
        "median_step_s": median_s,
        "tokens_per_s_per_gpu": args.batch * args.seq * args.accum / median_s,
        "max_allocated_bytes": max(rank["allocated"] for rank in ranks),
        "max_reserved_bytes": max(rank["reserved"] for rank in ranks),
    }
    peak_gib = (summary["max_allocated_bytes"] / 2**30, summary["max_reserved_bytes"] / 2**30)
    print(f"{summary['tokens_per_s_per_gpu']:.1f} tokens/s per GPU, peak", end=" ")
    print(f"{peak_gib[0]:.1f} GiB allocated, {peak_gib[1]:.1f} GiB reserved")
    if args.json:
        Path(args.json).write_text(json.dumps(summary, indent=1) + "\n")


def memory(device: torch.device) -> dict[str, int]:
    """What PyTorch's allocator handed out and held at most, in bytes; zero on the CPU."""
    if device.type == "cpu":
        return {"allocated": 0, "reserved": 0}
    return {
        "allocated": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.max_memory_reserved(device),
    }


def versions(device: torch.device) -> dict[str, str | None]:
    """What the figures depend on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device),
    }


if __name__ == "__main__":
    main()
