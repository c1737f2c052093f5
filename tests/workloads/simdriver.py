"""The CUDA driver through ctypes, and kernels that are Python functions over device memory.

Knows nothing of Transit: it opens ``libcuda.so.1`` as any program does. Only the registration of
kernels goes to the simulated driver itself, since no real driver offers that.
"""

import atexit
import ctypes
import os
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

OUT_OF_MEMORY = 2
NOT_READY = 600
EXIT_WAIT_S = 5.0
SEGMENT_BYTES = 2 << 20  # small blocks share segments of this size, as in PyTorch's allocator
SMALL_BYTES = 1 << 20  # from here on a tensor has a segment of its own
ALIGNMENT_BYTES = 512
BLOCK_THREADS = 256

KernelBody = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_uint] * 6)


class CudaError(RuntimeError):
    """A driver call failed."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"{function} returned {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Tensor:
    """A piece of device memory with a shape."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def view(address: int, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray:
    """Device memory as an array; only kernels may use it."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind, count).reshape(shape)


class Kernel:
    """A launchable function; parameters are packed as a C compiler would."""

    def __init__(self, driver: "Driver", name: str, layout: str) -> None:
        self._driver = driver
        self._layout = layout
        self._offsets = offsets(layout)
        self.handle = ctypes.c_void_p()
        driver.call("cuModuleGetFunction", ctypes.byref(self.handle), driver.module, name.encode())

    def __call__(self, *arguments: float | Tensor, stream: ctypes.c_void_p | None = None) -> None:
        plain = [a.address if isinstance(a, Tensor) else a for a in arguments]
        packed = ctypes.create_string_buffer(struct.pack("@" + self._layout, *plain))
        base = ctypes.addressof(packed)
        pointers = (ctypes.c_void_p * len(self._offsets))(*[base + o for o in self._offsets])
        where = self._driver.stream if stream is None else stream
        shape = (1, 1, 1, BLOCK_THREADS, 1, 1)
        self._driver.call("cuLaunchKernel", self.handle, *shape, 0, where, pointers, None)


def offsets(layout: str) -> list[int]:
    """Where each parameter of a struct layout starts."""
    starts = []
    for i, code in enumerate(layout):
        end = struct.calcsize("@" + layout[: i + 1])
        starts.append(end - struct.calcsize(code))
    return starts


class Driver:
    """One device, one context, one stream."""

    def __init__(self, ordinal: int = 0) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        real = os.environ.get("TRANSIT_REAL_LIBCUDA")
        self.simulator = ctypes.CDLL(real) if real else self.library
        self._bodies: list[object] = []  # callbacks must outlive their registration
        self._functions: dict[str, ctypes._NamedFuncPointer] = {}
        self._declare()
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), ordinal % count.value)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(self.module), b"simulated image")
        atexit.register(self._let_kernels_end)

    def _let_kernels_end(self) -> None:
        # A kernel is Python code in the simulator's thread. Should the interpreter end meanwhile
        # (Ctrl-C), it ends that thread by force, which aborts the process. Not for ever: a
        # collective may wait for a rank that is gone.
        end_s = time.monotonic() + EXIT_WAIT_S
        while self.try_call("cuStreamQuery", self.stream) == NOT_READY:
            if time.monotonic() > end_s:
                break
            time.sleep(0.001)

    def _declare(self) -> None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        u32, address = ctypes.c_uint, ctypes.c_uint64
        self._arguments = {
            "cuMemAlloc_v2": [pointer, size],
            "cuMemFree_v2": [address],
            "cuMemcpyHtoDAsync_v2": [address, pointer, size, pointer],
            "cuMemcpyDtoHAsync_v2": [pointer, address, size, pointer],
            "cuMemsetD8Async": [address, ctypes.c_ubyte, size, pointer],
            "cuStreamSynchronize": [pointer],
            "cuStreamQuery": [pointer],
            "cuLaunchKernel": [pointer, *[u32] * 7, pointer, pointer, pointer],
        }

    def try_call(self, name: str, *arguments: object) -> int:
        """Calls a driver function; its result."""
        function = self._functions.get(name)
        if function is None:
            function = getattr(self.library, name)
            function.argtypes = self._arguments.get(name)
            self._functions[name] = function
        return function(*arguments)

    def call(self, name: str, *arguments: object) -> None:
        """Calls a driver function that must succeed."""
        code = self.try_call(name, *arguments)
        if code != 0:
            raise CudaError(name, code)

    def kernel(self, name: str, layout: str, body: Callable[..., None] | None = None) -> Kernel:
        """A kernel by name; with a body it is made first. Layout: codes of the struct module."""
        if body is not None:

            def run(_user: int, packed: int, *_shape: int) -> None:
                body(
                    *struct.unpack(
                        "@" + layout, ctypes.string_at(packed, struct.calcsize("@" + layout))
                    )
                )

            callback = KernelBody(run)
            self._bodies.append(callback)
            sizes = (ctypes.c_uint * len(layout))(*[struct.calcsize(code) for code in layout])
            self.simulator.transit_sim_register_kernel(
                name.encode(), callback, None, sizes, len(layout)
            )
        return Kernel(self, name, layout)

    def upload(self, tensor: Tensor, values: NDArray) -> None:
        """Copies to the device; the driver has read the values when this returns."""
        data = np.ascontiguousarray(values, tensor.dtype)
        self.call(
            "cuMemcpyHtoDAsync_v2", tensor.address, data.ctypes.data, data.nbytes, self.stream
        )

    def download(self, tensor: Tensor) -> NDArray:
        """Copies from the device, after everything queued before."""
        values = np.empty(tensor.shape, tensor.dtype)
        self.call(
            "cuMemcpyDtoHAsync_v2", values.ctypes.data, tensor.address, values.nbytes, self.stream
        )
        self.synchronize()
        return values

    def synchronize(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def simulated_bytes(self, what: str) -> int:
        """A figure of the simulator: hbm, peak_hbm, dram or peak_dram."""
        function = getattr(self.simulator, f"transit_sim_{what}_bytes")
        function.restype = ctypes.c_ulonglong
        return int(function())


class Pool:
    """A caching allocator after PyTorch's: freed blocks are kept by size and used again.

    Everything runs on one stream, so a block may be used again as soon as it is freed.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._free: dict[int, list[int]] = defaultdict(list)
        self.reserved_bytes = 0
        self.peak_bytes = 0

    def empty(self, *shape: int, dtype: DTypeLike = np.float32) -> Tensor:
        kind = np.dtype(dtype)
        return Tensor(self._take(self._block_bytes(shape, kind)), shape, kind)

    def release(self, *tensors: Tensor) -> None:
        for tensor in tensors:
            self._free[self._block_bytes(tensor.shape, tensor.dtype)].append(tensor.address)

    @staticmethod
    def _block_bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
        exact = max(1, int(np.prod(shape))) * dtype.itemsize
        if exact >= SMALL_BYTES:
            return -(-exact // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return max(ALIGNMENT_BYTES, 1 << (exact - 1).bit_length())

    def _take(self, block_bytes: int) -> int:
        free = self._free[block_bytes]
        if not free:
            if block_bytes >= SMALL_BYTES:
                return self._segment(block_bytes)
            segment = self._segment(SEGMENT_BYTES)
            free.extend(range(segment + SEGMENT_BYTES - block_bytes, segment - 1, -block_bytes))
        return free.pop()

    def _segment(self, segment_bytes: int) -> int:
        address = ctypes.c_uint64()
        code = self._driver.try_call("cuMemAlloc_v2", ctypes.byref(address), segment_bytes)
        if code == OUT_OF_MEMORY:
            self._drop_cache()
            code = self._driver.try_call("cuMemAlloc_v2", ctypes.byref(address), segment_bytes)
        if code != 0:
            raise CudaError("cuMemAlloc_v2", code)
        self.reserved_bytes += segment_bytes
        self.peak_bytes = max(self.peak_bytes, self.reserved_bytes)
        return address.value

    def _drop_cache(self) -> None:
        for block_bytes, blocks in self._free.items():
            if block_bytes < SMALL_BYTES:
                continue  # parts of shared segments
            for address in blocks:
                self._driver.call("cuMemFree_v2", address)
                self.reserved_bytes -= block_bytes
            blocks.clear()


class Communicator:
    """NCCL for data parallelism; the unique id travels through a file."""

    AVERAGE, FLOAT32 = 4, 7

    class UniqueId(ctypes.Structure):
        _fields_ = [("internal", ctypes.c_char * 128)]

    def __init__(self, driver: Driver, rank: int, ranks: int, rendezvous: Path) -> None:
        self._driver = driver
        self._library = ctypes.CDLL("libnccl.so.2")
        self._handle = ctypes.c_void_p()
        unique = self._share_id(rank, rendezvous / "nccl_id")
        self._library.ncclCommInitRank.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            self.UniqueId,
            ctypes.c_int,
        ]
        self._check(self._library.ncclCommInitRank(ctypes.byref(self._handle), ranks, unique, rank))
        address = ctypes.c_uint64
        self._library.ncclAllReduce.argtypes = [
            address,
            address,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]

    def _share_id(self, rank: int, path: Path) -> "Communicator.UniqueId":
        unique = self.UniqueId()
        if rank == 0:
            self._check(self._library.ncclGetUniqueId(ctypes.byref(unique)))
            partial = path.with_suffix(".partial")
            partial.write_bytes(bytes(unique))
            partial.rename(path)
            return unique
        deadline = time.monotonic() + 60
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no rank 0 at {path}")
            time.sleep(0.01)
        ctypes.memmove(ctypes.byref(unique), path.read_bytes(), ctypes.sizeof(unique))
        return unique

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"NCCL error {code}")

    def average(self, tensor: Tensor) -> None:
        """Replaces a tensor by its mean over the ranks, in place and in stream order."""
        self._check(
            self._library.ncclAllReduce(
                tensor.address,
                tensor.address,
                tensor.size,
                self.FLOAT32,
                self.AVERAGE,
                self._handle,
                self._driver.stream,
            )
        )

    def close(self) -> None:
        self._check(self._library.ncclCommDestroy(self._handle))
