"""Short names for driver calls, for the programs the tests run. Star-imported on purpose."""

import ctypes
import os
import threading
import time
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

__all__ = [
    "MB",
    "OK",
    "Access",
    "Location",
    "Prop",
    "api",
    "byref",
    "c_float",
    "c_int",
    "c_size_t",
    "c_uint",
    "c_uint64",
    "c_void_p",
    "context",
    "create",
    "ctypes",
    "event",
    "function",
    "handle",
    "hbm",
    "host_read",
    "launch",
    "malloc",
    "map_at",
    "open_device",
    "os",
    "read_words",
    "register",
    "release_on",
    "reserve",
    "rw",
    "stream",
    "threading",
    "time",
]

MB = 1 << 20
OK = 0
lib = ctypes.CDLL(os.environ["SIM"])
address, size, pointer = c_uint64, c_size_t, c_void_p


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Prop(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handles", c_int),
        ("location", Location),
        ("meta", pointer),
        ("flags", c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


ARGUMENTS = {
    "cuMemAlloc_v2": [pointer, size],
    "cuMemFree_v2": [address],
    "cuMemCreate": [pointer, size, pointer, c_uint64],
    "cuMemRelease": [c_uint64],
    "cuMemAddressReserve": [pointer, size, size, address, c_uint64],
    "cuMemAddressFree": [address, size],
    "cuMemMap": [address, size, size, c_uint64, c_uint64],
    "cuMemUnmap": [address, size],
    "cuMemSetAccess": [address, size, pointer, size],
    "cuMemGetAccess": [pointer, pointer, address],
    "cuMemRetainAllocationHandle": [pointer, address],
    "cuMemcpyHtoD_v2": [address, pointer, size],
    "cuMemcpyDtoH_v2": [pointer, address, size],
    "cuMemcpyHtoDAsync_v2": [address, pointer, size, pointer],
    "cuMemcpyDtoHAsync_v2": [pointer, address, size, pointer],
    "cuMemcpyDtoDAsync_v2": [address, address, size, pointer],
    "cuMemsetD32_v2": [address, c_uint, size],
    "cuMemsetD32Async": [address, c_uint, size, pointer],
    "cuMemsetD2D32_v2": [address, size, c_uint, size, size],
    "cuMemAllocAsync": [pointer, size, pointer],
    "cuMemFreeAsync": [address, pointer],
    "cuMemHostAlloc": [pointer, size, c_uint],
    "cuMemHostRegister_v2": [pointer, size, c_uint],
    "cuMemHostUnregister": [pointer],
    "cuMemGetAddressRange_v2": [pointer, pointer, address],
    "cuPointerGetAttribute": [pointer, c_int, address],
    "cuIpcGetMemHandle": [pointer, address],
    "cuStreamSynchronize": [pointer],
    "cuStreamQuery": [pointer],
    "cuStreamDestroy_v2": [pointer],
    "cuStreamWaitEvent": [pointer, pointer, c_uint],
    "cuStreamBeginCapture_v2": [pointer, c_int],
    "cuStreamEndCapture": [pointer, pointer],
    "cuStreamIsCapturing": [pointer, pointer],
    "cuEventRecord": [pointer, pointer],
    "cuEventQuery": [pointer],
    "cuEventSynchronize": [pointer],
    "cuEventDestroy_v2": [pointer],
    "cuGraphInstantiateWithFlags": [pointer, pointer, c_uint64],
    "cuGraphLaunch": [pointer, pointer],
    "cuGraphDestroy": [pointer],
    "cuLaunchKernel": [pointer, *[c_uint] * 7, pointer, pointer, pointer],
    "cuCtxSetCurrent": [pointer],
    "cuCtxEnablePeerAccess": [pointer, c_uint],
    "cuFuncGetParamInfo": [pointer, size, pointer, pointer],
    "cuKernelGetParamInfo": [pointer, size, pointer, pointer],
    "cuKernelGetFunction": [pointer, pointer],
    "cuLibraryGetKernel": [pointer, pointer, c_char_p],
    "cuMemPoolSetAttribute": [pointer, c_int, pointer],
    "cuMemPoolGetAttribute": [pointer, c_int, pointer],
    "cuMemPoolTrimTo": [pointer, size],
    "cuLaunchHostFunc": [pointer, pointer, pointer],
    "transit_sim_hide": [c_uint, c_uint64, c_uint64],
}
for _name, _arguments in ARGUMENTS.items():
    getattr(lib, _name).argtypes = _arguments


class Api:
    """``api.cuInit(0)`` must succeed; ``api.cuInit.code(0)`` is the result."""

    def __getattr__(self, name):
        plain = getattr(lib, name)

        def call(*arguments):
            code = plain(*arguments)
            assert code == OK, f"{name} returned {code}"

        call.code = plain
        return call


api = Api()


def context(ordinal=0):
    made = c_void_p()
    api.cuDevicePrimaryCtxRetain(byref(made), ordinal)
    api.cuCtxSetCurrent(made)
    return made


def open_device():
    api.cuInit(0)
    return context()


def handle(kind=c_void_p):
    return kind()


def malloc(bytes_):
    at = c_uint64()
    api.cuMemAlloc_v2(byref(at), bytes_)
    return at.value


def hbm():
    lib.transit_sim_hbm_bytes.restype = c_uint64
    return lib.transit_sim_hbm_bytes()


def create(bytes_, kind=1, ident=0):
    """A physical handle; kind 1 is the device, 3 a NUMA node of the host."""
    made = c_uint64()
    prop = Prop(type=1, location=Location(kind, ident))
    api.cuMemCreate(byref(made), bytes_, byref(prop), 0)
    return made.value


def reserve(bytes_):
    at = c_uint64()
    api.cuMemAddressReserve(byref(at), bytes_, 0, 0, 0)
    return at.value


def rw(at, bytes_, device=0, flags=3):
    return lib.cuMemSetAccess(at, bytes_, byref(Access(Location(1, device), flags)), 1)


def map_at(at, bytes_, frame):
    api.cuMemMap(at, bytes_, 0, frame, 0)
    assert rw(at, bytes_) == OK


def release_on(at, bytes_):
    api.cuMemUnmap(at, bytes_)


def stream(flags=1):
    made = c_void_p()
    api.cuStreamCreate(byref(made), flags)
    return made


def event(flags=0):
    made = c_void_p()
    api.cuEventCreate(byref(made), flags)
    return made


_module = c_void_p()
_functions = {}


def function(name):
    if not _module:
        api.cuModuleLoadData(byref(_module), b"image")
    if name not in _functions:
        _functions[name] = c_void_p()
        api.cuModuleGetFunction(byref(_functions[name]), _module, name.encode())
    return _functions[name]


def launch(name, *arguments, on=None, code=False):
    """Launches with arguments that carry their ctypes type; plain ints are 64 bits wide."""
    typed = [a if isinstance(a, ctypes._SimpleCData) else c_uint64(a) for a in arguments]
    pointers = (c_void_p * max(1, len(typed)))(*[ctypes.addressof(a) for a in typed])
    call = lib.cuLaunchKernel
    result = call(function(name), 1, 1, 1, 32, 1, 1, 0, on, pointers, None)
    if code:
        return result
    assert result == OK, f"{name}: {result}"
    return None


_bodies = []


def register(name, body, *sizes):
    """A kernel of our own; the body gets the address of its packed parameters."""
    kind = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, *[c_uint] * 6)
    callback = kind(lambda user, packed, *shape: body(packed))
    _bodies.append(callback)
    lib.transit_sim_register_kernel(
        name.encode(), callback, None, (c_uint * max(1, len(sizes)))(*sizes), len(sizes)
    )


def read_words(at, count=1):
    """Through the driver: a synchronous copy."""
    words = (c_uint * count)()
    api.cuMemcpyDtoH_v2(words, at, 4 * count)
    return list(words)


def host_read(at):
    """Directly: faults if the address has no access."""
    return ctypes.cast(at, ctypes.POINTER(c_uint))[0]
