"""Copies and fills over memory that lies partly in HBM and partly in DRAM, checked against the CPU.

    python3 -m transit run --hbm 4GiB --dram 12GiB -- python3 tests/gpu/copies.py

Six tensors of 1 GiB do not fit in 4 GiB: some of their extents are on the CPU when the copies
run. Exits with 1 on any difference.
"""

import sys

import torch

COUNT = 6
WORDS = (1 << 30) // 8  # int64


def expected(index: int) -> torch.Tensor:
    """What tensor `index` holds."""
    return torch.arange(WORDS, dtype=torch.int64) * (index + 3) + index


def main() -> int:
    """Fill, press, copy, compare."""
    operand = torch.randn(2048, 2048, device="cuda")
    tensors = [(torch.arange(WORDS, device="cuda") * (i + 3) + i) for i in range(3)]
    (operand @ operand).sum().item()  # what was made before the first compute kernel may move
    tensors += [(torch.arange(WORDS, device="cuda") * (i + 3) + i) for i in range(3, COUNT)]
    failed = 0
    pinned = torch.empty(WORDS, dtype=torch.int64, pin_memory=True)
    for index, tensor in enumerate(tensors):
        truth = expected(index)
        pinned.copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()
        checks = {
            "pageable": torch.equal(tensor.cpu(), truth),
            "pinned": torch.equal(pinned, truth),
            "strided": torch.equal(
                tensor.view(-1, 4096)[:, 1:9].cpu(), truth.view(-1, 4096)[:, 1:9]
            ),
            "sum": int(tensor.sum()) == int(truth.sum()),
        }
        tensor.copy_(pinned, non_blocking=True)
        checks["back"] = int(tensor.sum()) == int(truth.sum())
        half = tensor[: WORDS // 2]
        half.copy_(tensor[WORDS // 2 :])
        checks["within the device"] = torch.equal(half.cpu(), truth[WORDS // 2 :])
        tensor.zero_()
        checks["zero"] = not bool(tensor.any())
        bad = [name for name, good in checks.items() if not good]
        failed += len(bad)
        print(f"tensor {index}: {'ok' if not bad else 'WRONG: ' + ', '.join(bad)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
