"""Stream capture and graphs."""


def test_capture_records_and_replays(run):
    # GIVEN a captured kernel, copy and fill WHEN the graph is launched THEN they run each time,
    # not before
    run("""
open_device()
a, s, g, x = malloc(MB), stream(), c_void_p(), c_void_p()
api.cuMemsetD32_v2(a, 0, 64); api.cuCtxSynchronize()
api.cuStreamBeginCapture_v2(s, 0)
value = c_uint(); api.cuStreamIsCapturing(s, byref(value)); assert value.value == 1
launch("sim_increment", a, 4, on=s)
api.cuMemcpyDtoDAsync_v2(a + 64, a, 16, s)
api.cuMemsetD32Async(a + 128, 9, 1, s)
api.cuStreamEndCapture(s, byref(g))
assert read_words(a, 1) == [0]
api.cuGraphInstantiateWithFlags(byref(x), g, 0); api.cuGraphDestroy(g)
for _ in range(3):
    api.cuGraphLaunch(x, s)
api.cuStreamSynchronize(s)
assert read_words(a, 33)[::16] == [3, 3, 9]
api.cuGraphExecDestroy(x); assert api.cuGraphLaunch.code(x, s) == 1
""")


def test_unsafe_calls_invalidate(run):
    # GIVEN an open global capture WHEN VMM, allocation or sync happens THEN it is refused and
    # the capture lost
    run("""
open_device()
s, other, g, h = stream(), stream(), c_void_p(), c_uint64()
prop = Prop(type=1, location=Location(1, 0))
at = reserve(2 * MB)
calls = [lambda: api.cuMemCreate.code(byref(h), 2 * MB, byref(prop), 0),
         lambda: api.cuMemAlloc_v2.code(byref(h), 4),
         lambda: api.cuStreamSynchronize.code(other), lambda: api.cuCtxSynchronize.code(),
         lambda: api.cuMemUnmap.code(at, 2 * MB), lambda: api.cuStreamSynchronize.code(s)]
for call in calls:
    api.cuStreamBeginCapture_v2(s, 0)
    assert call() == 900
    assert launch("sim_spin", 0, on=s, code=True) == 901
    assert api.cuStreamEndCapture.code(s, byref(g)) == 901 and g.value is None
""")


def test_modes_of_threads(run):
    # GIVEN captures of each mode WHEN another thread allocates THEN only a global one is
    # disturbed, and not by RELAXED
    run("""
open_device()
s, g = stream(), c_void_p()
def elsewhere(mode):
    out = []
    def body():
        context(); m = c_int(mode); api.cuThreadExchangeStreamCaptureMode(byref(m)); at = c_uint64()
        out.append(api.cuMemAlloc_v2.code(byref(at), 1024))
    t = threading.Thread(target=body); t.start(); t.join(); return out[0]
for capture, thread, expected in [(0, 0, 900), (0, 1, 0), (0, 2, 0), (1, 0, 0), (2, 0, 0)]:
    api.cuStreamBeginCapture_v2(s, capture)
    assert elsewhere(thread) == expected, (capture, thread)
    assert api.cuStreamEndCapture.code(s, byref(g)) == (901 if expected else 0)
at = c_uint64()
api.cuStreamBeginCapture_v2(s, 2); api.cuMemAlloc_v2(byref(at), 1024)
api.cuStreamEndCapture(s, byref(g))
""")


def test_legacy_stream_is_implicit(run):
    # GIVEN an open capture WHEN an event is recorded on the legacy stream THEN error 906,
    # capture invalid
    run("""
open_device()
s, b, e, g = stream(), stream(0), event(), c_void_p()
api.cuStreamBeginCapture_v2(s, 2)
assert api.cuEventRecord.code(e, None) == 906
assert api.cuStreamEndCapture.code(s, byref(g)) == 901
api.cuStreamBeginCapture_v2(b, 2)
assert launch("sim_spin", 0, code=True) == 906
assert api.cuStreamEndCapture.code(b, byref(g)) == 901
assert api.cuStreamBeginCapture_v2.code(None, 0) == 900
""")


def test_fork_and_join(run):
    # GIVEN a second stream that joins by an event WHEN it is not joined back THEN 904; else one
    # graph has both
    run("""
open_device()
a, s, t, e, f, g, x = malloc(MB), stream(), stream(), event(), event(), c_void_p(), c_void_p()
def fork():
    api.cuStreamBeginCapture_v2(s, 1)
    api.cuEventRecord(e, s); api.cuStreamWaitEvent(t, e, 0)
    launch("sim_increment", a, 1, on=t)
fork()
assert api.cuStreamEndCapture.code(s, byref(g)) == 904
fork()
api.cuEventRecord(f, t); api.cuStreamWaitEvent(s, f, 0)
assert api.cuEventQuery.code(f) == 907
assert api.cuStreamEndCapture.code(s, byref(g)) == 901
fork()
api.cuEventRecord(f, t); api.cuStreamWaitEvent(s, f, 0)
assert api.cuStreamEndCapture.code(t, byref(g)) == 903
api.cuStreamEndCapture(s, byref(g))
n = c_size_t(); api.cuGraphGetNodes(g, None, byref(n)); assert n.value == 1
api.cuEventRecord(e, t)
api.cuStreamBeginCapture_v2(s, 1); assert api.cuStreamWaitEvent.code(s, e, 0) == 905
assert api.cuStreamEndCapture.code(s, byref(g)) == 901
""")
