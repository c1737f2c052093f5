"""The kernels that dram_kernels.py compares: one of each class that training uses.

A case makes its operands, results included, and a kernel that works on them in place. Data for
atomics are small whole numbers, so that sums are exact and do not depend on their order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16, FP32, FP64 = torch.bfloat16, torch.float32, torch.float64
INT32, INT64 = torch.int32, torch.int64
ROWS, WIDTH = 4096, 2048
SOURCES, TARGETS = 1 << 20, 1 << 17  # of atomics: eight writers for each target


@dataclass(frozen=True)
class Case:
    """A class of kernels: `operands` makes tensors, `kernel` works on them."""

    name: str
    operands: Callable[[], list[Tensor]]
    kernel: Callable[..., object]


def noise(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    """Normally distributed numbers."""
    return torch.randn(*shape).to(dtype)


def whole(*shape: int, dtype: torch.dtype, bound: int = 4) -> Tensor:
    """Whole numbers from -bound to bound."""
    return torch.randint(-bound, bound + 1, shape).to(dtype)


def index(count: int, bound: int) -> Tensor:
    """Indices, with repeats."""
    return torch.randint(bound, (count,))


def matrices(dtype: torch.dtype) -> Callable[[], list[Tensor]]:
    """Two factors and their product's place."""
    return lambda: [noise(ROWS, ROWS, dtype=dtype) for _ in range(3)]


def heads() -> list[Tensor]:
    """Query, key, value and result of attention."""
    return [noise(2, 16, 1024, 128) for _ in range(4)]


def attention(backend: SDPBackend) -> Callable[..., object]:
    """Causal attention by one backend."""

    def kernel(query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> None:
        with sdpa_kernel(backend):
            out.copy_(F.scaled_dot_product_attention(query, key, value, is_causal=True))

    return kernel


def adam_states() -> list[Tensor]:
    """Parameter, gradient, two moments, step."""
    size = ROWS * WIDTH
    moments = [noise(size, dtype=FP32), noise(size, dtype=FP32).square()]
    return [noise(size, dtype=FP32), noise(size, dtype=FP32), *moments, torch.ones(())]


def fused_adam(weight: Tensor, grad: Tensor, first: Tensor, second: Tensor, step: Tensor) -> None:
    """One call of PyTorch's fused AdamW."""
    torch._fused_adamw_(
        [weight], [grad], [first], [second], [], [step],
        lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False,
        maximize=False,
    )  # fmt: skip


def atomic(dtype: torch.dtype) -> Case:
    """index_add: one atomic addition per element."""
    return Case(
        f"atomic add {str(dtype).removeprefix('torch.')}",
        lambda: [
            whole(TARGETS, 4, dtype=dtype),
            index(SOURCES, TARGETS),
            whole(SOURCES, 4, dtype=dtype),
        ],
        lambda out, where, values: out.index_add_(0, where, values),
    )


def scatter(name: str, reduce: str, dtype: torch.dtype) -> Case:
    """scatter_reduce; CUDA does it by compare-and-swap. Odd numbers: products never become 0."""
    return Case(
        name,
        lambda: [
            2 * whole(TARGETS, dtype=dtype) + 1,
            index(SOURCES, TARGETS),
            2 * whole(SOURCES, dtype=dtype) + 1,
        ],
        lambda out, where, values: out.scatter_reduce_(0, where, values, reduce),
    )


CASES = [
    Case(
        "copy",
        lambda: [noise(ROWS, WIDTH) for _ in range(2)],
        lambda a, out: out.copy_(a),
    ),
    Case(
        "elementwise bf16",
        lambda: [noise(ROWS, WIDTH) for _ in range(3)],
        lambda a, b, out: torch.add(F.silu(a), b, out=out),
    ),
    Case("fused AdamW", adam_states, fused_adam),
    Case(
        "foreach",
        lambda: [noise(ROWS, WIDTH, dtype=FP32) for _ in range(4)],
        lambda a, b, c, d: torch._foreach_add_([a, b], [c, d], alpha=0.5),
    ),
    Case(
        "sum, norm",
        lambda: [noise(ROWS, WIDTH), noise(ROWS), noise(1).squeeze()],
        lambda a, rows, norm: (torch.sum(a, 1, out=rows), torch.linalg.vector_norm(a, out=norm)),
    ),
    Case(
        "softmax",
        lambda: [noise(ROWS, WIDTH) for _ in range(2)],
        lambda a, out: out.copy_(torch.softmax(a, -1)),
    ),
    Case(
        "layer norm",
        lambda: [noise(ROWS, WIDTH), noise(WIDTH), noise(ROWS, WIDTH)],
        lambda a, weight, out: out.copy_(F.layer_norm(a, (WIDTH,), weight)),
    ),
    Case(
        "cumsum int64",
        lambda: [whole(SOURCES, dtype=INT64), whole(SOURCES, dtype=INT64)],
        lambda a, out: torch.cumsum(a, 0, out=out),
    ),
    atomic(INT32),
    atomic(INT64),
    atomic(FP32),
    atomic(BF16),
    atomic(FP64),
    scatter("atomic max fp32", "amax", FP32),
    scatter("compare-and-swap int32", "prod", INT32),
    Case(
        "random gather",
        lambda: [noise(TARGETS, 8), index(SOURCES, TARGETS), noise(SOURCES, 8)],
        lambda table, where, out: torch.index_select(table, 0, where, out=out),
    ),
    Case(
        "sort",
        lambda: [whole(SOURCES, dtype=INT32, bound=1 << 30) for _ in range(2)],
        lambda a, out: out.copy_(torch.sort(a).values),
    ),
    Case(
        "embedding backward",
        lambda: [noise(8192, 256), index(8192, 1024), noise(1024, 256)],
        lambda grad, ids, out: out.copy_(
            torch.ops.aten.embedding_dense_backward(grad, ids, 1024, -1, False)
        ),
    ),
    Case(
        "cross entropy",
        lambda: [noise(256, 32_768, dtype=FP32), index(256, 32_768), noise(256, dtype=FP32)],
        lambda logits, ids, out: out.copy_(F.cross_entropy(logits, ids, reduction="none")),
    ),
    Case("matmul bf16 (TMA)", matrices(BF16), lambda a, b, out: torch.matmul(a, b, out=out)),
    Case("matmul fp32", matrices(FP32), lambda a, b, out: torch.matmul(a, b, out=out)),
    Case("attention, flash", heads, attention(SDPBackend.FLASH_ATTENTION)),
    Case("attention, cuDNN", heads, attention(SDPBackend.CUDNN_ATTENTION)),
    Case("attention, memory-efficient", heads, attention(SDPBackend.EFFICIENT_ATTENTION)),
]
