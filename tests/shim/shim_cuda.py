"""Short names for driver calls through the shim. Star-imported by the tests' programs on purpose.

Knows both sides: `lib` is what a job sees (libcuda.so.1), `sim` the simulated driver itself.
"""
# ruff: noqa: F401 (imported for the programs)

import ctypes
import os
import struct
import sys
import threading
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

MB = 1 << 20
lib = ctypes.CDLL("libcuda.so.1")
sim = ctypes.CDLL(os.environ["SIMULATOR"])
for _what in ("hbm", "peak_hbm", "dram", "peak_dram"):
    getattr(sim, f"transit_sim_{_what}_bytes").restype = c_uint64
sim.transit_sim_hide.argtypes = [c_uint, c_uint64, c_uint64]
address, size, pointer = c_uint64, c_size_t, c_void_p
ARGUMENTS = {
    "cuMemAlloc_v2": [pointer, size],
    "cuMemFree_v2": [address],
    "cuMemGetInfo_v2": [pointer, pointer],
    "cuDeviceTotalMem_v2": [pointer, c_int],
    "cuMemcpyHtoD_v2": [address, pointer, size],
    "cuMemcpyDtoH_v2": [pointer, address, size],
    "cuMemcpyHtoDAsync_v2": [address, pointer, size, pointer],
    "cuMemcpyDtoHAsync_v2": [pointer, address, size, pointer],
    "cuMemcpyDtoDAsync_v2": [address, address, size, pointer],
    "cuMemcpy2D_v2": [pointer],
    "cuMemcpyAsync": [address, address, size, pointer],
    "cuMemsetD8Async": [address, ctypes.c_ubyte, size, pointer],
    "cuMemsetD32_v2": [address, c_uint, size],
    "cuMemsetD32Async": [address, c_uint, size, pointer],
    "cuMemsetD2D8_v2": [address, size, ctypes.c_ubyte, size, size],
    "cuMemsetD2D16_v2": [address, size, ctypes.c_ushort, size, size],
    "cuMemsetD2D32_v2": [address, size, c_uint, size, size],
    "cuMemsetD2D8Async": [address, size, ctypes.c_ubyte, size, size, pointer],
    "cuMemsetD2D16Async": [address, size, ctypes.c_ushort, size, size, pointer],
    "cuMemsetD2D32Async": [address, size, c_uint, size, size, pointer],
    "cuMemAllocAsync": [pointer, size, pointer],
    "cuMemFreeAsync": [address, pointer],
    "cuMemGetAddressRange_v2": [pointer, pointer, address],
    "cuPointerGetAttribute": [pointer, c_int, address],
    "cuPointerGetAttributes": [c_uint, pointer, pointer, address],
    "cuMemRetainAllocationHandle": [pointer, pointer],
    "cuIpcGetMemHandle": [pointer, address],
    "cuStreamSynchronize": [pointer],
    "cuStreamQuery": [pointer],
    "cuStreamDestroy_v2": [pointer],
    "cuStreamBeginCapture_v2": [pointer, c_int],
    "cuStreamEndCapture": [pointer, pointer],
    "cuStreamIsCapturing": [pointer, pointer],
    "cuStreamWaitEvent": [pointer, pointer, c_uint],
    "cuEventCreate": [pointer, c_uint],
    "cuEventRecord": [pointer, pointer],
    "cuStreamWriteValue32_v2": [pointer, address, c_uint, c_uint],
    "cuGraphInstantiateWithFlags": [pointer, pointer, c_uint64],
    "cuGraphLaunch": [pointer, pointer],
    "cuLaunchKernel": [pointer, *[c_uint] * 7, pointer, pointer, pointer],
    "cuCtxSetCurrent": [pointer],
    "cuCtxCreate_v2": [pointer, c_uint, c_int],
    "cuCtxDestroy_v2": [pointer],
    "cuLibraryGetKernel": [pointer, pointer, c_char_p],
    "cuLibraryLoadData": [pointer, pointer, pointer, pointer, c_uint, pointer, pointer, c_uint],
    "cuModuleGetFunction": [pointer, pointer, c_char_p],
    "cuGetProcAddress_v2": [c_char_p, pointer, c_int, c_uint64, pointer],
    "cuGetProcAddress": [c_char_p, pointer, c_int, c_uint64],
}
for _plain, _arguments in ARGUMENTS.items():
    for _name in (_plain, f"{_plain}_ptsz", f"{_plain}_ptds"):
        for _library in (lib, sim):
            if hasattr(_library, _name):
                getattr(_library, _name).argtypes = _arguments


class Api:
    """``api.cuInit(0)`` must succeed; ``api.cuInit.code(0)`` is the result."""

    def __getattr__(self, name):
        plain = getattr(lib, name)

        def call(*arguments):
            code = plain(*arguments)
            assert code == 0, f"{name} returned {code}"

        call.code = plain
        return call


api = Api()


def open_device():
    api.cuInit(0)
    made = c_void_p()
    api.cuDevicePrimaryCtxRetain(byref(made), 0)
    api.cuCtxSetCurrent(made)
    return made


def malloc_code(bytes_):
    at = c_uint64()
    return lib.cuMemAlloc_v2(byref(at), bytes_), at.value


def malloc(bytes_):
    """As a caching allocator: out of memory is asked twice."""
    code, at = malloc_code(bytes_)
    if code == 2:
        code, at = malloc_code(bytes_)
    assert code == 0, f"cuMemAlloc of {bytes_} returned {code}"
    return at


def malloc_async(bytes_, on=None):
    at = c_uint64()
    api.cuMemAllocAsync(byref(at), bytes_, on)
    return at.value


def stream(flags=1):
    made = c_void_p()
    api.cuStreamCreate(byref(made), flags)
    return made


def order(before, after):
    """What `after` gets from now on waits for what `before` has; this also joins a capture."""
    made = c_void_p()
    api.cuEventCreate(byref(made), 2)
    api.cuEventRecord(made, before)
    api.cuStreamWaitEvent(after, made, 0)


_module = c_void_p()
_functions = {}


def function(name):
    if not _module:
        api.cuModuleLoadData(byref(_module), b"image")
    if name not in _functions:
        found = c_void_p()
        api.cuModuleGetFunction(byref(found), _module, name.encode())
        _functions[name] = found
    return _functions[name]


def packed(*arguments):
    typed = [a if isinstance(a, ctypes._SimpleCData) else c_uint64(a) for a in arguments]
    return typed, (c_void_p * max(1, len(typed)))(*[ctypes.addressof(a) for a in typed])


def launch(name, *arguments, on=None, handle=None):
    """Plain ints are 64 bits wide."""
    keep, pointers = packed(*arguments)
    chosen = handle or function(name)
    code = lib.cuLaunchKernel(chosen, 1, 1, 1, 32, 1, 1, 0, on, pointers, None)
    assert code == 0, f"{name}: {code}"
    return keep


def launch_extra(name, buffer, on=None):
    """With the parameters in one buffer."""
    raw = ctypes.create_string_buffer(buffer, len(buffer))
    count = c_size_t(len(buffer))
    extra = (c_void_p * 5)(1, ctypes.addressof(raw), 2, ctypes.addressof(count), 0)
    code = lib.cuLaunchKernel(function(name), 1, 1, 1, 32, 1, 1, 0, on, None, extra)
    assert code == 0, f"{name}: {code}"


def fill(at, value, words, on=None):
    launch("sim_fill", at, c_uint(value), words, on=on)


def sync():
    api.cuCtxSynchronize()


_bodies = []


def register(name, body, *sizes):
    """A kernel of our own; the body gets the address of its packed parameters."""
    kind = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, *[c_uint] * 6)
    callback = kind(lambda user, at, *shape: body(at))
    _bodies.append(callback)
    sim.transit_sim_register_kernel(
        name.encode(), callback, None, (c_uint * max(1, len(sizes)))(*sizes), len(sizes)
    )


def end_setup():
    """The first compute kernel: what was allocated before is persistent."""
    launch("sim_spin", 1)


def next_step():
    """An optimizer's kernel, then a compute kernel: a step boundary."""
    if "sim_fused_adamw" not in _functions:
        nothing = c_void_p(ctypes.cast(ctypes.CDLL(None).getpid, c_void_p).value)
        sizes = (c_uint * 1)(8)
        sim.transit_sim_register_kernel(b"sim_fused_adamw", nothing, None, sizes, 1)
    launch("sim_fused_adamw", 0)
    launch("sim_spin", 1)


def read(at, words):
    out = (c_uint * words)()
    api.cuMemcpyDtoH_v2(out, at, 4 * words)
    return out


def expect_words(at, words, value, what=""):
    got = read(at, words)
    if bytes(got) != struct.pack("I", value) * words:
        wrong = [(i, got[i]) for i in range(words) if got[i] != value]
        raise AssertionError(f"{what}: {len(wrong)} of {words} words wrong, first {wrong[:3]}")


def upload(at, words):
    data = (c_uint64 * len(words))(*words)
    api.cuMemcpyHtoD_v2(at, data, 8 * len(words))


def counters():
    """This process's statistics, now."""
    with open(f"{os.environ['TRANSIT_RUN_DIR']}/{os.getpid()}.stats", "rb") as file:
        data = file.read()
    count = struct.unpack_from("<I", data, 20)[0]
    rows = (struct.unpack_from("<56sQ", data, 32 + 64 * i) for i in range(count))
    return {name.rstrip(b"\0").decode(): value for name, value in rows}


def moves():
    now = counters()
    return now["offloads"] + now["prefetches"]


def pass_markers(on=None):
    """Operations that touch nothing, enough for the shim to see that the stream has passed."""
    for _ in range(33):
        launch("sim_spin", 1, on=on)


def wait_moves(more, seconds=10.0, on=None):
    """Until `more` moves happened from now on, with nothing running but empty kernels."""
    start, deadline = moves(), time.monotonic() + seconds
    while moves() - start < more:
        assert time.monotonic() < deadline, f"only {moves() - start} moves: {counters()}"
        pass_markers(on)
        time.sleep(0.001)
