"""Streams, events, copies and launches: asynchronous, ordered, bounded."""


def test_launches_are_asynchronous(run):
    # GIVEN a slow kernel WHEN it is launched THEN the host goes on and the stream is not ready
    run("""
open_device()
s = stream(); start = time.monotonic()
launch("sim_spin", 200_000_000, on=s)
assert time.monotonic() - start < 0.1 and api.cuStreamQuery.code(s) == 600
api.cuStreamSynchronize(s)
assert time.monotonic() - start >= 0.2 and api.cuStreamQuery.code(s) == OK
""")


def test_queue_blocks_at_1024(run):
    # GIVEN a stream that is held up WHEN 1,024 operations are queued THEN the next one blocks
    # the caller
    run(
        """
open_device()
s, gate, count = stream(), threading.Event(), [0]
register("hold", lambda packed: gate.wait(30))
launch("hold", on=s)
def fill():
    context()
    for _ in range(1100):
        launch("sim_spin", 0, on=s); count[0] += 1
t = threading.Thread(target=fill); t.start()
time.sleep(1)
stuck = count[0]
gate.set(); t.join(); api.cuStreamSynchronize(s)
assert stuck == 1023, stuck
assert count[0] == 1100
""",
        TRANSIT_SIM_LATENCY_US=0,
    )


def test_legacy_stream_orders_blocking_streams(run):
    # GIVEN slow work on a blocking stream WHEN the legacy stream is used THEN each waits for
    # the other
    run("""
open_device()
a, s = malloc(MB), stream(0)
launch("sim_spin", 50_000_000, on=s); launch("sim_fill", a, c_uint(1), 1, on=s)
launch("sim_increment", a, 1)               # legacy: after s
launch("sim_increment", a, 1, on=s)         # s: after legacy
api.cuStreamSynchronize(s)
assert read_words(a) == [3]
launch("sim_spin", 100_000_000, on=s)
api.cuStreamSynchronize(None)               # waits for s too
assert api.cuStreamQuery.code(s) == OK
""")


def test_non_blocking_stream_ignores_the_legacy_stream(run):
    # GIVEN slow work on a non-blocking stream WHEN the legacy stream syncs THEN it does not wait
    run("""
open_device()
s = stream(1); start = time.monotonic()
launch("sim_spin", 300_000_000, on=s)
launch("sim_spin", 0); api.cuStreamSynchronize(None)
assert time.monotonic() - start < 0.25 and api.cuStreamQuery.code(s) == 600
api.cuCtxSynchronize(); assert api.cuStreamQuery.code(s) == OK
""")


def test_events(run):
    # GIVEN events WHEN recorded, waited for and measured THEN they order streams and outlive them
    run("""
open_device()
a, one, two, e, f = malloc(MB), stream(), stream(), event(), event()
assert api.cuEventQuery.code(e) == OK       # never recorded
api.cuEventRecord(e, one)
launch("sim_spin", 50_000_000, on=one); launch("sim_fill", a, c_uint(9), 1, on=one)
api.cuEventRecord(f, one)
assert api.cuEventQuery.code(f) == 600
api.cuStreamWaitEvent(two, f, 0)
launch("sim_increment", a, 1, on=two)
api.cuStreamDestroy_v2(one)
assert api.cuStreamDestroy_v2.code(one) == 400
api.cuEventDestroy_v2(e)
api.cuStreamSynchronize(two)
assert read_words(a) == [10]
api.cuEventSynchronize(f)
g, ms = event(), c_float(); api.cuEventRecord(g, two); api.cuEventSynchronize(g)
api.cuEventElapsedTime(byref(ms), f, g); assert ms.value >= 0
api.cuEventDestroy_v2(f)
""")


def test_pageable_source_is_staged_pinned_is_not(run):
    # GIVEN a busy stream WHEN the source is overwritten after an async copy THEN only pinned
    # memory shows it
    run("""
open_device()
a, s, pinned = malloc(MB), stream(), c_void_p()
api.cuMemHostAlloc(byref(pinned), 4096, 0)
page = (c_uint * 1)(5); lock = ctypes.cast(pinned, ctypes.POINTER(c_uint)); lock[0] = 5
launch("sim_spin", 50_000_000, on=s)
api.cuMemcpyHtoDAsync_v2(a, page, 4, s); api.cuMemcpyHtoDAsync_v2(a + 4, pinned, 4, s)
page[0] = 6; lock[0] = 6
api.cuStreamSynchronize(s)
assert read_words(a, 2) == [5, 6]
""")


def test_fills_and_2d(run):
    # GIVEN memory WHEN filled in rows THEN only the rows change; bad ranges are refused
    run("""
open_device()
a = malloc(MB)
api.cuMemsetD32_v2(a, 1, 64)
api.cuMemsetD2D32_v2(a, 32, 2, 4, 2)
api.cuCtxSynchronize()
assert read_words(a, 17) == [2] * 4 + [1] * 4 + [2] * 4 + [1] * 5
assert api.cuMemsetD32_v2.code(a + MB - 4, 1, 64) == 1
assert api.cuMemcpyHtoD_v2.code(4096, (c_uint * 1)(), 4) == 1
""")


def test_parameters_are_copied_at_launch(run):
    # GIVEN a queued launch WHEN the parameters change afterwards THEN the kernel sees the old ones
    run("""
open_device()
a, s, f = malloc(MB), stream(), function("sim_fill")
launch("sim_spin", 30_000_000, on=s)
at, value, count = c_uint64(a), c_uint(3), c_uint64(1)
p = (c_void_p * 3)(*[ctypes.addressof(x) for x in (at, value, count)])
api.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, p, None)
value.value = 4
api.cuStreamSynchronize(s); assert read_words(a) == [3]
""")


def test_extra_buffer_and_kernel_handles(run):
    # GIVEN a CUkernel WHEN launched with an extra buffer THEN it runs; the cuFunc query refuses it
    run("""
open_device()
import struct
a, library, k, f = malloc(MB), c_void_p(), c_void_p(), c_void_p()
api.cuLibraryLoadData(byref(library), b"image", None, None, 0, None, None, 0)
api.cuLibraryGetKernel(byref(k), library, b"sim_fill")
packed = struct.pack("@PIQ", a, 8, 2); n = c_size_t(len(packed))
buffer = ctypes.create_string_buffer(packed)
extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(n), 0)
api.cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, None, None, extra)
assert read_words(a, 3) == [8, 8, 0]
off, size = c_size_t(), c_size_t()
assert api.cuFuncGetParamInfo.code(k, 0, byref(off), byref(size)) == 400
api.cuKernelGetParamInfo(k, 2, byref(off), byref(size)); assert (off.value, size.value) == (16, 8)
api.cuKernelGetFunction(byref(f), k)
api.cuFuncGetParamInfo(f, 1, byref(off), byref(size)); assert (off.value, size.value) == (8, 4)
assert api.cuFuncGetParamInfo.code(f, 3, byref(off), byref(size)) == 1
assert api.cuLaunchKernel.code(k, 0, 1, 1, 1, 1, 1, 0, None, None, extra) == 1
assert api.cuLaunchKernel.code(a, 1, 1, 1, 1, 1, 1, 0, None, None, extra) == 400
assert api.cuLibraryGetKernel.code(byref(k), library, b"no_such_kernel") == 500
""")


def test_tables_and_hidden_writers(run):
    # GIVEN kernels that use addresses no parameter shows WHEN they run THEN they reach that memory
    run("""
open_device()
data, table, out, total = malloc(MB), malloc(MB), malloc(MB), malloc(MB)
launch("sim_fill", data, c_uint(0x3F800000), 64)
launch("sim_build_table", table, data, 128, 2)
launch("sim_gather_by_table", out, table, 2, 32)
assert read_words(out, 64) == [0x3F800000] * 64
api.transit_sim_hide(3, data, 8)
launch("sim_hidden_writer", c_uint(3), c_uint(77))
assert read_words(data, 3) == [77, 77, 0x3F800000]
launch("sim_checksum", data, 8, total); launch("sim_axpy", out, out, c_float(1.0), 1)
launch("sim_copy", out, data, 4)
assert read_words(out) == [77]
""")


def test_device_work_may_not_call_the_driver(run):
    # GIVEN a host function WHEN it calls CUDA THEN it gets NOT_PERMITTED
    run("""
open_device()
seen = []
fn = ctypes.CFUNCTYPE(None, c_void_p)(lambda user: seen.append(api.cuCtxSynchronize.code()))
api.cuLaunchHostFunc(None, fn, None); api.cuCtxSynchronize()
assert seen == [800]
""")


def test_injected_failures_and_sticky_errors(run):
    # GIVEN failures for the Nth calls WHEN reached THEN plain ones pass and sticky ones stay
    run(
        """
open_device()
at = c_uint64()
assert [api.cuMemAlloc_v2.code(byref(at), 1024) for _ in range(4)] == [0, 2, 0, 0]
launch("sim_spin", 0)
assert launch("sim_spin", 0, code=True) == 719
assert launch("sim_spin", 0, code=True) == 719 and api.cuCtxSynchronize.code() == 719
assert api.cuMemAlloc_v2.code(byref(at), 1024) == 719
""",
        TRANSIT_SIM_FAIL="cuMemAlloc:2:2,cuLaunchKernel:2:719",
    )
