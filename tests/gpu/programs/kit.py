"""What the programs share: sizes, digests, a training job and memory that keeps HBM under pressure.

Each of the real sizes has a small one, for `--cpu`, which only shows that a program is no nonsense.
"""

import hashlib
import os

import torch
from torch import Tensor, nn

CPU = os.environ.get("PROGRAMS_CPU") == "1"
UNDER_TRANSIT = "TRANSIT_RUN_DIR" in os.environ and not CPU
DEVICE = "cpu" if CPU else "cuda"
WIDTH = 64 if CPU else 4096  # a weight: 64 MiB
MIB = 1024 if CPU else 1 << 20  # what the programs call a MiB
WHOLE_BYTES = 16 << 20  # tensors up to this size are hashed whole
ROW_WORDS = 1024
PIECE_ROWS = 1 << 15  # 128 MiB: no launch of ours needs much of HBM

OPTIMIZERS = {
    "fused": lambda groups: torch.optim.AdamW(groups, lr=1e-3, fused=True),
    "foreach": lambda groups: torch.optim.AdamW(groups, lr=1e-3, foreach=True),
    "forloop": lambda groups: torch.optim.AdamW(groups, lr=1e-3, foreach=False, fused=False),
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-2, momentum=0.9),
}


class Unavailable(Exception):
    """The program cannot run here, with or without Transit."""


class Digest:
    """The program's result. Each part is printed, so that a difference has a name."""

    def __init__(self) -> None:
        self._all = hashlib.sha256()

    def add(self, name: str, value: object) -> None:
        """Add a tensor, or anything whose repr says all there is to say."""
        data = _tensor_bytes(value) if isinstance(value, Tensor) else repr(value).encode()
        part = hashlib.sha256(data).hexdigest()[:16]
        print(f"PART {name} {part}", flush=True)
        self._all.update(f"{name} {part}\n".encode())

    def finish(self) -> str:
        """The digest of all parts."""
        return self._all.hexdigest()[:32]


def _tensor_bytes(tensor: Tensor) -> bytes:
    """All bytes of a small tensor; of a large one the sums of its 4 KiB rows, as int64."""
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    if raw.numel() <= WHOLE_BYTES or raw.numel() % (4 * ROW_WORDS):
        return raw.cpu().numpy().tobytes()
    rows = raw.view(torch.int32).view(-1, ROW_WORDS)
    sums = [piece.sum(1, dtype=torch.int64).cpu() for piece in rows.split(PIECE_ROWS)]
    return torch.cat(sums).numpy().tobytes()


def note(text: str) -> None:
    """Something for the table's last column that is no part of the result."""
    print(f"NOTE {text}", flush=True)


def first_line(error: BaseException) -> str:
    """The start of an error's text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def make_deterministic() -> None:
    """Take only algorithms that give the same bits in every run."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(0)


def synchronize() -> None:
    """Wait until the device has done all it was given."""
    if not CPU:
        torch.cuda.synchronize()


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers on the device, the same in each run."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(*shape, device=DEVICE, generator=generator).to(dtype)


def pattern(mib: int, seed: int = 1) -> Tensor:
    """Integers that tell their own place, `mib` MiB of them."""
    numbers = torch.empty(mib * MIB // 4, dtype=torch.int32, device=DEVICE)
    piece = 128 * MIB // 4
    for at in range(0, numbers.numel(), piece):
        part = numbers[at : at + piece]
        torch.arange(at, at + part.numel(), dtype=torch.int32, device=DEVICE, out=part)
        part.mul_(2654435761 % (1 << 31)).add_(seed)
    return numbers


class Ballast:
    """Other memory of the job, in blocks that have an extent of their own at least.

    Touching all of it pushes out what the program does not use at the moment.
    """

    def __init__(self, mib: int = 2560, block_mib: int = 128) -> None:
        self.blocks = [pattern(block_mib, seed) for seed in range(mib // block_mib)]
        self._touches = 0

    def touch(self) -> None:
        """Change all blocks."""
        self._touches += 1
        for block in self.blocks:
            block.add_(self._touches)

    def add_to(self, digest: Digest) -> None:
        """All blocks are a part of the result."""
        for number, block in enumerate(self.blocks):
            digest.add(f"ballast{number}", block)


class Mlp(nn.Module):
    """Residual layers of one square weight each."""

    def __init__(self, layers: int, width: int = WIDTH, seed: int = 0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            random(width, width, seed=seed + number) * width**-0.5 for number in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x + torch.relu(x @ weight) * 0.1
        return x


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Something to learn: each number's left neighbour."""
    return (model(batch) - batch.roll(1, dims=-1)).pow(2).mean()


class Trainer:
    """An MLP that trains. With Adam, 12 layers make 3 GiB of weights, gradients and states.

    Two weights a parameter group, so that no launch of a fused optimizer has more than
    2 × 4 × 64 MiB of operands.
    """

    def __init__(self, layers: int = 12, kind: str = "fused", seed: int = 0, group: int = 2):
        self.model = Mlp(layers, seed=seed)
        weights = list(self.model.weights)
        groups = [{"params": weights[at : at + group]} for at in range(0, layers, group)]
        self.optimizer = OPTIMIZERS[kind](groups)
        self.losses: list[Tensor] = []
        self._generator = torch.Generator(DEVICE).manual_seed(1000 + seed)

    def step(self, batch: Tensor | None = None) -> None:
        """Forward, backward, update."""
        if batch is None:
            batch = torch.randn(128, WIDTH, device=DEVICE, generator=self._generator)
        loss = loss_of(self.model, batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach())

    def add_to(self, digest: Digest, name: str = "") -> None:
        """Losses, weights and states are a part of the result."""
        losses = [loss.item().hex() for loss in self.losses]
        digest.add(f"{name}losses", losses)
        for number, weight in enumerate(self.model.weights):
            digest.add(f"{name}weight{number}", weight)
            for key, state in sorted(self.optimizer.state[weight].items()):
                digest.add(f"{name}{key}{number}", state)
