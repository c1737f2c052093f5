"""Trains a small GPT in NumPy on simulated device memory; forward and backward written out.

An ordinary training job for tests and the demo: parameters, activations, gradients and optimizer
states live in memory from ``cuMemAlloc``, and every computation is a kernel launched on a stream.
Figures are those of the simulated GPU. The same arguments give the same losses bit for bit.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy: sums must always be split alike

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from simdriver import Communicator, Driver, Kernel, Pool, Tensor, view

TEXT = b"the quick brown fox jumps over the lazy dog while the gpu copies what it will need next. "
EPSILON = 1e-5
GELU = np.float32(np.sqrt(2 / np.pi))


# Kernels: functions over device addresses, run on the stream's thread.


def gemm(transpose_a: bool, transpose_b: bool):
    def body(c: int, a: int, b: int, m: int, n: int, k: int) -> None:
        left = view(a, (k, m)).T if transpose_a else view(a, (m, k))
        right = view(b, (n, k)).T if transpose_b else view(b, (k, n))
        np.matmul(left, right, out=view(c, (m, n)))

    return body


def embed(
    out: int,
    tokens: int,
    token_table: int,
    place_table: int,
    rows: int,
    seq: int,
    vocab: int,
    dim: int,
):
    words = view(token_table, (vocab, dim))[view(tokens, (rows,), np.int32)]
    places = view(place_table, (seq, dim))
    np.add(words.reshape(-1, seq, dim), places, out=view(out, (rows // seq, seq, dim)))


def embed_backward(
    d_token: int, d_place: int, tokens: int, d_out: int, rows: int, seq: int, vocab: int, dim: int
):
    gradient = view(d_out, (rows, dim))
    table = view(d_token, (vocab, dim))
    table[...] = 0
    np.add.at(table, view(tokens, (rows,), np.int32), gradient)
    np.sum(gradient.reshape(-1, seq, dim), axis=0, out=view(d_place, (seq, dim)))


def rmsnorm(out: int, x: int, weight: int, rows: int, dim: int) -> None:
    values = view(x, (rows, dim))
    scale = 1 / np.sqrt(np.mean(values * values, axis=1, keepdims=True) + np.float32(EPSILON))
    np.multiply(values * scale, view(weight, (dim,)), out=view(out, (rows, dim)))


def rmsnorm_backward(dx: int, dw: int, dy: int, x: int, weight: int, rows: int, dim: int) -> None:
    """Adds to dx, which holds the gradient that bypasses the norm."""
    values, gradient = view(x, (rows, dim)), view(dy, (rows, dim))
    scale = 1 / np.sqrt(np.mean(values * values, axis=1, keepdims=True) + np.float32(EPSILON))
    np.sum(gradient * values * scale, axis=0, out=view(dw, (dim,)))
    inner = gradient * view(weight, (dim,))
    shared = np.mean(inner * values, axis=1, keepdims=True) * scale**3
    total = view(dx, (rows, dim))
    total += inner * scale - values * shared


def gelu(out: int, x: int, count: int) -> None:
    v = view(x, (count,))
    np.multiply(
        v * np.float32(0.5),
        1 + np.tanh(GELU * (v + np.float32(0.044715) * v**3)),
        out=view(out, (count,)),
    )


def gelu_backward(dx: int, dy: int, x: int, count: int) -> None:
    v = view(x, (count,))
    t = np.tanh(GELU * (v + np.float32(0.044715) * v**3))
    slope = (1 + t) / 2 + v / 2 * (1 - t * t) * GELU * (1 + np.float32(3 * 0.044715) * v * v)
    np.multiply(view(dy, (count,)), slope, out=view(dx, (count,)))


def add(out: int, a: int, b: int, count: int) -> None:
    np.add(view(a, (count,)), view(b, (count,)), out=view(out, (count,)))


def heads_of(qkv: int, batch: int, seq: int, heads: int, width: int):
    """Queries, keys and values as (batch, head, time, width)."""
    return view(qkv, (batch, seq, 3, heads, width)).transpose(2, 0, 3, 1, 4)


def attention(out: int, odds: int, qkv: int, batch: int, seq: int, heads: int, width: int) -> None:
    q, k, v = heads_of(qkv, batch, seq, heads, width)
    scores = q @ k.swapaxes(-1, -2) * np.float32(width**-0.5)
    scores[..., np.triu(np.ones((seq, seq), bool), 1)] = -np.inf
    np.exp(scores - scores.max(-1, keepdims=True), out=scores)
    p = view(odds, (batch, heads, seq, seq))
    np.divide(scores, scores.sum(-1, keepdims=True), out=p)
    view(out, (batch, seq, heads, width))[...] = (p @ v).transpose(0, 2, 1, 3)


def attention_backward(
    d_qkv: int, d_out: int, odds: int, qkv: int, batch: int, seq: int, heads: int, width: int
):
    q, k, v = heads_of(qkv, batch, seq, heads, width)
    p = view(odds, (batch, heads, seq, seq))
    gradient = view(d_out, (batch, seq, heads, width)).transpose(0, 2, 1, 3)
    d_p = gradient @ v.swapaxes(-1, -2)
    d_scores = p * (d_p - np.sum(d_p * p, axis=-1, keepdims=True)) * np.float32(width**-0.5)
    result = heads_of(d_qkv, batch, seq, heads, width)
    result[0] = d_scores @ k
    result[1] = d_scores.swapaxes(-1, -2) @ q
    result[2] = p.swapaxes(-1, -2) @ gradient


def cross_entropy(
    loss: int, d_logits: int, logits: int, targets: int, rows: int, vocab: int
) -> None:
    scores, wanted = view(logits, (rows, vocab)), view(targets, (rows,), np.int32)
    odds = np.exp(scores - scores.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    at = (np.arange(rows), wanted)
    view(loss, (1,))[0] = -np.mean(np.log(odds[at]))
    odds[at] -= 1
    np.divide(odds, np.float32(rows), out=view(d_logits, (rows, vocab)))


def adamw(w: int, g: int, m: int, v: int, count: int, step: int, rate: float, decay: float) -> None:
    weights, gradient = view(w, (count,)), view(g, (count,))
    first, second = view(m, (count,)), view(v, (count,))
    beta1, beta2 = np.float32(0.9), np.float32(0.95)
    first *= beta1
    first += (1 - beta1) * gradient
    second *= beta2
    second += (1 - beta2) * gradient * gradient
    update = first / (1 - beta1**step) / (np.sqrt(second / (1 - beta2**step)) + np.float32(1e-8))
    weights -= np.float32(rate) * (update + np.float32(decay) * weights)


class Kernels:
    """Names tell the policy what a kernel does: matrices, elementwise, optimizer."""

    def __init__(self, driver: Driver) -> None:
        make = driver.kernel
        # Codes: P an address, Q a 64-bit count, f a float; as in the struct module.
        self.nn: Kernel = make("sim_gemm_nn", "PPPQQQ", gemm(False, False))
        self.nt: Kernel = make("sim_gemm_nt", "PPPQQQ", gemm(False, True))
        self.tn: Kernel = make("sim_gemm_tn", "PPPQQQ", gemm(True, False))
        self.attention = make("sim_gemm_attention_forward", "PPPQQQQ", attention)
        self.attention_backward = make(
            "sim_gemm_attention_backward", "PPPPQQQQ", attention_backward
        )
        self.embed = make("sim_elementwise_embed", "PPPPQQQQ", embed)
        self.embed_backward = make("sim_elementwise_embed_backward", "PPPPQQQQ", embed_backward)
        self.rmsnorm = make("sim_elementwise_rmsnorm", "PPPQQ", rmsnorm)
        self.rmsnorm_backward = make(
            "sim_elementwise_rmsnorm_backward", "PPPPPQQ", rmsnorm_backward
        )
        self.gelu = make("sim_elementwise_gelu", "PPQ", gelu)
        self.gelu_backward = make("sim_elementwise_gelu_backward", "PPPQ", gelu_backward)
        self.add = make("sim_elementwise_add", "PPPQ", add)
        self.cross_entropy = make("sim_elementwise_cross_entropy", "PPPPQQ", cross_entropy)
        self.adamw = make("sim_fused_adamw", "PPPPQQff", adamw)


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    dim: int
    seq: int
    batch: int
    vocab: int

    @property
    def rows(self) -> int:
        return self.batch * self.seq

    @property
    def heads(self) -> int:
        return max(1, self.dim // 64)


class Gpt:
    """Parameters with their optimizer states, and one training step."""

    def __init__(self, driver: Driver, shape: Shape, seed: int) -> None:
        self.driver, self.shape = driver, shape
        self.pool = Pool(driver)
        self.run = Kernels(driver)
        self.steps = 0
        random = np.random.default_rng(seed)
        self.weights: dict[str, Tensor] = {}
        self.states: dict[str, tuple[Tensor, Tensor]] = {}
        for name, size in self._sizes().items():
            start = np.ones(size) if len(size) == 1 else random.standard_normal(size) * 0.02
            self.weights[name] = self._upload(start)
            self.states[name] = (self._upload(np.zeros(size)), self._upload(np.zeros(size)))
        self.tokens = self.pool.empty(shape.rows, dtype=np.int32)
        self.targets = self.pool.empty(shape.rows, dtype=np.int32)
        self.loss = self.pool.empty(1)

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        dim, vocab = self.shape.dim, self.shape.vocab
        sizes: dict[str, tuple[int, ...]] = {"token": (vocab, dim), "place": (self.shape.seq, dim)}
        for i in range(self.shape.layers):
            sizes |= {f"{i}.norm1": (dim,), f"{i}.qkv": (dim, 3 * dim), f"{i}.out": (dim, dim)}
            sizes |= {f"{i}.norm2": (dim,), f"{i}.up": (dim, 4 * dim), f"{i}.down": (4 * dim, dim)}
        return sizes | {"norm": (dim,), "head": (dim, vocab)}

    def _upload(self, values: np.ndarray) -> Tensor:
        tensor = self.pool.empty(*values.shape)
        self.driver.upload(tensor, values)
        return tensor

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        (rows, inner), outer = x.shape, weight.shape[1]
        y = self.pool.empty(rows, outer)
        self.run.nn(y, x, weight, rows, outer, inner)
        return y

    def _linear_backward(
        self, dy: Tensor, x: Tensor, name: str, grads: dict[str, Tensor]
    ) -> Tensor:
        weight = self.weights[name]
        inner, outer = weight.shape
        rows = x.shape[0]
        grads[name] = self.pool.empty(inner, outer)
        self.run.tn(grads[name], x, dy, inner, outer, rows)
        dx = self.pool.empty(rows, inner)
        self.run.nt(dx, dy, weight, rows, inner, outer)
        return dx

    def _norm(self, x: Tensor, name: str) -> Tensor:
        y = self.pool.empty(*x.shape)
        self.run.rmsnorm(y, x, self.weights[name], *x.shape)
        return y

    def _norm_backward(
        self, dx: Tensor, dy: Tensor, x: Tensor, name: str, grads: dict[str, Tensor]
    ) -> None:
        grads[name] = self.pool.empty(self.shape.dim)
        self.run.rmsnorm_backward(dx, grads[name], dy, x, self.weights[name], *x.shape)

    def _block(self, i: int, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        s, run, w = self.shape, self.run, self.weights
        kept = {"x": x, "normed1": self._norm(x, f"{i}.norm1")}
        kept["qkv"] = self._linear(kept["normed1"], w[f"{i}.qkv"])
        kept["mixed"] = self.pool.empty(s.rows, s.dim)
        kept["odds"] = self.pool.empty(s.batch, s.heads, s.seq, s.seq)
        run.attention(
            kept["mixed"], kept["odds"], kept["qkv"], s.batch, s.seq, s.heads, s.dim // s.heads
        )
        kept["middle"] = self._linear(kept["mixed"], w[f"{i}.out"])
        run.add(kept["middle"], kept["middle"], x, x.size)
        kept["normed2"] = self._norm(kept["middle"], f"{i}.norm2")
        kept["up"] = self._linear(kept["normed2"], w[f"{i}.up"])
        kept["active"] = self.pool.empty(*kept["up"].shape)
        run.gelu(kept["active"], kept["up"], kept["up"].size)
        y = self._linear(kept["active"], w[f"{i}.down"])
        run.add(y, y, kept["middle"], y.size)
        return y, kept

    def _block_backward(
        self, i: int, d: Tensor, kept: dict[str, Tensor], grads: dict[str, Tensor]
    ) -> None:
        """Turns the gradient of the block's output into that of its input, in place."""
        s, run, free = self.shape, self.run, self.pool.release
        d_active = self._linear_backward(d, kept["active"], f"{i}.down", grads)
        run.gelu_backward(d_active, d_active, kept["up"], d_active.size)
        d_normed = self._linear_backward(d_active, kept["normed2"], f"{i}.up", grads)
        self._norm_backward(d, d_normed, kept["middle"], f"{i}.norm2", grads)
        free(d_active, d_normed)
        d_mixed = self._linear_backward(d, kept["mixed"], f"{i}.out", grads)
        d_qkv = self.pool.empty(s.rows, 3 * s.dim)
        run.attention_backward(
            d_qkv, d_mixed, kept["odds"], kept["qkv"], s.batch, s.seq, s.heads, s.dim // s.heads
        )
        d_normed = self._linear_backward(d_qkv, kept["normed1"], f"{i}.qkv", grads)
        self._norm_backward(d, d_normed, kept["x"], f"{i}.norm1", grads)
        free(d_mixed, d_qkv, d_normed, *kept.values())

    def _gradients(self) -> dict[str, Tensor]:
        s, run, w, free = self.shape, self.run, self.weights, self.pool.release
        tables = (s.rows, s.seq, s.vocab, s.dim)
        x = self.pool.empty(s.rows, s.dim)
        run.embed(x, self.tokens, w["token"], w["place"], *tables)
        blocks = []
        for i in range(s.layers):
            x, kept = self._block(i, x)
            blocks.append(kept)
        normed = self._norm(x, "norm")
        logits = self._linear(normed, w["head"])
        run.cross_entropy(self.loss, logits, logits, self.targets, s.rows, s.vocab)
        grads: dict[str, Tensor] = {}
        d_normed = self._linear_backward(logits, normed, "head", grads)
        d = self.pool.empty(s.rows, s.dim)
        self.driver.call("cuMemsetD8Async", d.address, 0, d.nbytes, self.driver.stream)
        self._norm_backward(d, d_normed, x, "norm", grads)
        free(x, normed, logits, d_normed)
        for i in reversed(range(s.layers)):
            self._block_backward(i, d, blocks[i], grads)
        grads["token"], grads["place"] = (
            self.pool.empty(s.vocab, s.dim),
            self.pool.empty(s.seq, s.dim),
        )
        run.embed_backward(grads["token"], grads["place"], self.tokens, d, *tables)
        free(d)
        return grads

    def step(self, tokens: np.ndarray, targets: np.ndarray, ranks: Communicator | None) -> float:
        """Forward, backward, all-reduce, AdamW; the loss before the update."""
        self.steps += 1
        self.driver.upload(self.tokens, tokens.reshape(-1))
        self.driver.upload(self.targets, targets.reshape(-1))
        grads = self._gradients()
        if ranks is not None:
            for gradient in grads.values():
                ranks.average(gradient)
        for name, weight in self.weights.items():
            m, v = self.states[name]
            decay = 0.0 if len(weight.shape) == 1 else 0.1
            self.run.adamw(weight, grads[name], m, v, weight.size, self.steps, 1e-3, decay)
        self.pool.release(*grads.values())
        return float(self.driver.download(self.loss)[0])


def batches(shape: Shape, seed: int, rank: int):
    """Windows of a repeating text, another share of them for each rank."""
    text = (
        np.frombuffer(TEXT * (2 + (shape.seq + 1) // len(TEXT)), np.uint8).astype(np.int32)
        % shape.vocab
    )
    random = np.random.default_rng([seed, rank])
    while True:
        starts = random.integers(0, len(TEXT), shape.batch)
        windows = np.stack([text[s : s + shape.seq + 1] for s in starts])
        yield windows[:, :-1], windows[:, 1:]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {
        "steps": 8,
        "layers": 3,
        "dim": 512,
        "seq": 128,
        "batch": 2,
        "vocab": 512,
        "seed": 0,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument(
        "--rendezvous", type=Path, default=Path("."), help="folder where ranks find each other"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    shape = Shape(options.layers, options.dim, options.seq, options.batch, options.vocab)
    driver = Driver(int(os.environ.get("LOCAL_RANK", rank)))
    others = Communicator(driver, rank, ranks, options.rendezvous) if ranks > 1 else None
    model = Gpt(driver, shape, options.seed)
    losses = []
    data = batches(shape, options.seed, rank)
    for step in range(options.steps):
        losses.append(model.step(*next(data), others))
        if not options.json:
            print(f"step {step}  loss {losses[-1]:.4f}  (simulated GPU)", flush=True)
    driver.synchronize()
    if others is not None:
        others.close()
    if options.json:
        report = {
            "losses": losses,
            "losses_hex": [loss.hex() for loss in losses],
            "peak_bytes": model.pool.peak_bytes,
            "simulated": True,
        }
        print(json.dumps(report), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
