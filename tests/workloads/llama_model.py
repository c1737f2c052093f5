"""A Llama-shaped decoder, dense or mixture of experts, in plain PyTorch.

Pre-norm blocks, rotary positions, grouped-query attention, SwiGLU, untied embedding and head.
Keys and values come from one fused projection. Weights are fp32 when created; the precision of
the arithmetic is the trainer's business (FSDP2's mixed precision casts them to bf16).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ROPE_BASE = 500_000
NORM_EPS = 1e-5


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int  # hidden width of the feed-forward network, of each expert if there are several
    vocab: int = 128_256
    experts: int = 1
    top_k: int = 2  # experts that see a token

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


SIZES = {
    "tiny": ModelConfig(dim=64, layers=2, heads=4, kv_heads=2, ffn=128, vocab=512),
    "tiny-moe": ModelConfig(dim=64, layers=2, heads=4, kv_heads=2, ffn=64, vocab=512, experts=4),
    "1b": ModelConfig(dim=2048, layers=16, heads=32, kv_heads=8, ffn=8192),
    "3b": ModelConfig(dim=3072, layers=28, heads=24, kv_heads=8, ffn=8192),
    "8b": ModelConfig(dim=4096, layers=32, heads=32, kv_heads=8, ffn=14336),
    "moe": ModelConfig(dim=2048, layers=16, heads=16, kv_heads=8, ffn=4096, experts=8),
}


class RMSNorm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), NORM_EPS)


class Attention(nn.Module):
    """Causal self-attention with grouped queries."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        kv_dim = config.kv_heads * config.head_dim
        self.key_value = nn.Linear(config.dim, 2 * kv_dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query = rotate(self.split_heads(self.query(x)), cos, sin)
        key, value = self.key_value(x).chunk(2, -1)
        key, value = rotate(self.split_heads(key), cos, sin), self.split_heads(value)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def split_heads(self, x: Tensor) -> Tensor:
        """(batch, time, width) to (batch, heads, time, head_dim)."""
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate = nn.Linear(config.dim, config.ffn, bias=False)
        self.up = nn.Linear(config.dim, config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    """Every token goes to its top_k experts, none is dropped.

    Tokens are sorted by expert and each expert runs densely on its group, an empty one too. Only
    permutations move tokens (no scattered adds), so that results repeat bit for bit. Group sizes
    are read on the host and change from step to step: so do the shapes and allocations.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.top_k = config.top_k
        self.router = nn.Linear(config.dim, config.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(config.experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        shares, chosen = self.router(tokens).float().softmax(-1).topk(self.top_k)
        shares = (shares / shares.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        sizes = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        groups = tokens[order // self.top_k].split(sizes)
        pairs = zip(self.experts, groups, strict=True)
        y = torch.cat([expert(group) for expert, group in pairs])
        y = y[order.argsort()].unflatten(0, (-1, self.top_k))
        return (y * shares.unsqueeze(-1)).sum(1).view_as(x)


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(config.dim), RMSNorm(config.dim)
        self.attention = Attention(config)
        self.ffn = MixtureOfExperts(config) if config.experts > 1 else FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    """The whole model: token ids in, logits out.

    Args:
        config: The shape.
        recompute: Keep only the input of each block and compute the rest again in backward.
    """

    def __init__(self, config: ModelConfig, recompute: bool):
        super().__init__()
        self.config, self.recompute = config, recompute
        self.embedding = nn.Embedding(config.vocab, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocab, bias=False)

    def init_weights(self) -> None:
        """Fill the weights; separate from construction, which may happen on the meta device."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, RMSNorm):
                nn.init.ones_(module.weight)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        cos, sin = rope_table(ids.shape[1], self.config.head_dim, x)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, cos, sin, use_reentrant=False)
            else:
                x = block(x, cos, sin)
        return self.head(self.norm(x))


def rope_table(length: int, head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, (length, head_dim / 2), in `like`'s dtype."""
    position = torch.arange(length, device=like.device, dtype=torch.float32)
    exponent = torch.arange(0, head_dim, 2, device=like.device, dtype=torch.float32) / head_dim
    angle = position[:, None] / ROPE_BASE**exponent
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions to the two halves of the last dimension."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
