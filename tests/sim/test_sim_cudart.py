"""The simulated runtime over the simulated driver."""

import os
import subprocess
import sys

PROGRAM = """
import ctypes, os
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
rt = ctypes.CDLL(os.environ["SIM_CUDART"])
class Dim3(ctypes.Structure): _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]
rt.cudaLaunchKernel.argtypes = [c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p]
rt.transit_sim_cudart_function.restype = c_void_p
a, s, out = c_void_p(), c_void_p(), (c_uint * 2)()
assert rt.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0
assert rt.cudaStreamCreateWithFlags(byref(s), 1) == 0
assert rt.cudaMemsetAsync(a, 0, c_size_t(8), s) == 0
fill = rt.transit_sim_cudart_function(b"sim_fill")
args = [c_uint64(a.value), c_uint(7), c_uint64(1)]
pointers = (c_void_p * 3)(*[ctypes.addressof(x) for x in args])
assert rt.cudaLaunchKernel(fill, Dim3(1, 1, 1), Dim3(32, 1, 1), pointers, 0, s) == 0
assert rt.cudaStreamSynchronize(s) == 0 and rt.cudaDeviceSynchronize() == 0
assert rt.cudaMemcpy(out, a, c_size_t(8), 2) == 0 and list(out) == [7, 0]
assert rt.cudaFree(c_void_p(4096)) == 1 and rt.cudaGetLastError() == 1
assert rt.cudaGetLastError() == 0 and rt.cudaFree(a) == 0
"""


def test_runtime_reaches_the_driver_through_its_doors(sim_library, tmp_path):
    # GIVEN the driver preloaded WHEN a program uses the runtime THEN its calls arrive there
    runtime = sim_library.with_name("libtransit_sim_cudart.so")
    settings = {"LD_PRELOAD": str(sim_library), "SIM_CUDART": str(runtime)}
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        env={**os.environ, **settings, "TRANSIT_SIM_TRUTH": str(tmp_path)},
    )
    (log,) = tmp_path.glob("*.truth")
    assert "cuGetProcAddress_v2 symbol=cuMemAlloc" in log.read_text()
