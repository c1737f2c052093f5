"""How the library is found and asked: symbols, cuGetProcAddress, devices, truth log, preloading."""

import os
import subprocess
import sys

QUERY = """
api.cuInit(0)
def ask(name, version=13000, flags=0):
    at, status = c_void_p(), c_int(-1)
    code = api.cuGetProcAddress_v2.code(
        name, byref(at), c_int(version), c_uint64(flags), byref(status))
    return code, status.value, at.value
def exported(name):
    from sim_cuda import lib
    return ctypes.cast(getattr(lib, name), c_void_p).value
"""


def test_get_proc_address_picks_the_abi(run):
    # GIVEN names, versions and flags WHEN asked THEN the matching ABI is returned and the
    # status written
    run(
        QUERY
        + """
assert ask(b"cuMemAlloc") == (0, 0, exported("cuMemAlloc_v2"))
assert ask(b"cuGetProcAddress", 11030)[2] == exported("cuGetProcAddress")
assert ask(b"cuGetProcAddress", 12000)[2] == exported("cuGetProcAddress_v2")
assert ask(b"cuStreamBeginCapture", 10000)[2] == exported("cuStreamBeginCapture")
assert ask(b"cuStreamBeginCapture", 10010)[2] == exported("cuStreamBeginCapture_v2")
assert ask(b"cuMemcpyBatchAsync", 12080)[2] == exported("cuMemcpyBatchAsync")
assert ask(b"cuMemcpyBatchAsync", 13000)[2] == exported("cuMemcpyBatchAsync_v2")
assert ask(b"cuMemcpyHtoD", 13000, 2)[2] == exported("cuMemcpyHtoD_v2_ptds")
assert ask(b"cuLaunchKernel", 13000, 2)[2] == exported("cuLaunchKernel_ptsz")
assert ask(b"cuMemAlloc", 13000, 2)[2] == exported("cuMemAlloc_v2")
assert ask(b"cuLaunchKernelEx", 11000) == (500, 2, None)
assert ask(b"") == (500, 1, None) and ask(b"cuNope") == (500, 1, None)
assert ask(b"cuMemAlloc_v2")[0] == 500
assert ask(b"cuMemAlloc", 13010)[0] == 1
assert api.cuGetProcAddress_v2.code(b"cuInit", None, 13000, c_uint64(0), None) == 1
table = c_void_p(); assert api.cuGetExportTable.code(byref(table), bytes(16)) == 500
"""
    )


def test_nothing_works_before_cuinit(run):
    # GIVEN a fresh process WHEN a call comes before cuInit THEN 3; before a context THEN 201
    run("""
at = c_uint64(); assert api.cuMemAlloc_v2.code(byref(at), 1) == 3
api.cuInit(0); assert api.cuMemAlloc_v2.code(byref(at), 1) == 201
""")


def test_devices_follow_the_environment(run):
    # GIVEN 4 devices of which 2 are visible WHEN counted THEN 2; peers can be enabled once
    run(
        """
a = open_device(); b = c_void_p()
n = c_int(); api.cuDeviceGetCount(byref(n)); assert n.value == 2
name = ctypes.create_string_buffer(64); api.cuDeviceGetName(name, 64, 1)
assert name.value == b"Transit simulated GPU"
api.cuDevicePrimaryCtxRetain(byref(b), 1)
api.cuCtxEnablePeerAccess(b, 0); assert api.cuCtxEnablePeerAccess.code(b, 0) == 704
d = c_int(); assert api.cuDeviceGet.code(byref(d), 2) == 101
""",
        TRANSIT_SIM_DEVICES=4,
        CUDA_VISIBLE_DEVICES="0,1",
    )


def test_truth_log_has_every_call(run, tmp_path):
    # GIVEN a truth folder WHEN a program runs THEN there is a line for each call and a summary
    # with the peaks
    run(
        "open_device(); a = malloc(4 * MB); api.cuMemFree_v2(a); launch('sim_spin', 0)",
        TRANSIT_SIM_TRUTH=tmp_path,
    )
    (log,) = tmp_path.glob("*.truth")
    lines = log.read_text().splitlines()
    names = [line.split()[2] for line in lines]
    assert names[:3] == ["cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]
    assert names.count("cuMemAlloc_v2") == names.count("cuMemFree_v2") == 1
    assert "name=sim_spin" in next(line for line in lines if "cuLaunchKernel" in line)
    assert f"peak_hbm_bytes={4 << 20} " in lines[-1] and "hbm_bytes=0 " in lines[-1]
    assert all(line.rsplit(" -> ", 1)[1] == "0" for line in lines)


def test_truth_log_survives_a_fault(run, tmp_path):
    # GIVEN a program that faults WHEN it dies THEN what it did is in the log, and it died of
    # the fault
    run("open_device(); a = malloc(MB); host_read(64)", expect=-11, TRANSIT_SIM_TRUTH=tmp_path)
    (log,) = tmp_path.glob("*.truth")
    assert "cuMemAlloc_v2" in log.read_text()


def test_preloaded_library_is_libcuda(sim_library):
    # GIVEN the library preloaded WHEN a program opens libcuda.so.1 THEN it gets the simulated
    # driver
    code = "import ctypes; ctypes.CDLL('libcuda.so.1').transit_sim_hbm_bytes"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "LD_PRELOAD": str(sim_library)}
    )
