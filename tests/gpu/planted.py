"""Plant an access that no launch parameter shows, for `transit run --verify` to catch.

    python3 -m transit run --verify --hbm 8GiB --dram 8GiB -- python3 tests/gpu/planted.py

The kernel gets its target's address with the bits flipped. Alone it runs fine; under verification
the target is unmapped while nothing names it, so the launch must end in an illegal access and the
summary must name the kernel.
Needs PyTorch and CuPy on a GPU. Exits with 0 if the access went through, 3 if it was caught.
"""

import sys

import cupy
import torch

SOURCE = r"""
extern "C" __global__ void planted_hidden_write(unsigned long long flipped, unsigned long long n) {
    float* target = reinterpret_cast<float*>(~flipped);
    for (unsigned long long i = threadIdx.x; i < n; i += blockDim.x) target[i] = 7.0f;
}
"""


def main() -> int:
    """Write through the flipped address and see whether it was let through."""
    target = torch.zeros(64 << 20, device="cuda")  # 256 MiB: extents of its own
    operand = torch.randn(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    kernel = cupy.RawKernel(SOURCE, "planted_hidden_write")
    (operand @ operand).sum().item()
    flipped = ~target.data_ptr() & 0xFFFFFFFFFFFFFFFF
    try:
        kernel((1,), (256,), (cupy.uint64(flipped), cupy.uint64(1024)))
        cupy.cuda.runtime.deviceSynchronize()
        print("written:", float(target[:1024].sum().item()))
    except Exception as error:
        print("caught:", str(error).splitlines()[0])
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
