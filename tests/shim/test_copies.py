"""Copies by every door, in a verification run: what a copy does not name is not mapped."""
# ruff: noqa: E501 (programs in strings)

import pytest

# Each door gets (target, source, source is on the host, stream) and copies four words. Boxes read
# them with gaps: words 0, 2 and 6, 8 of the source.
COPIES = """
open_device()
def fields(*kinds): return [(f"f{i}", kind) for i, kind in enumerate(kinds)]
class Peer(ctypes.Structure):
    side = [size, size, size, size, c_int, pointer, address, pointer, pointer, size, size]
    _fields_ = fields(*side, *side, size, size, size)
class Operand(ctypes.Structure): _fields_ = [("type", c_int), *fields(address, size, size, c_int, c_int)]
class Box(ctypes.Structure): _fields_ = [("source", Operand), ("target", Operand), *fields(size, size, size, c_int, c_uint)]
GAPS, PLAIN = [0, 2, 6, 8], [0, 1, 2, 3]
def peer(to, source, host):
    side = dict(f4=1, f5=source) if host else dict(f4=2, f6=source)
    return Peer(**side, f9=16, f10=3, f15=2, f17=to, f20=8, f21=2, f22=8, f23=2, f24=2)
def box(to, source): return Box(Operand(1, source, 16, 3), Operand(1, to), 8, 2, 2, 1, 0)
def boxes(to, source):
    # The words of the second slice by a copy of their own.
    return (Box * 2)(Box(Operand(1, source, 16, 3), Operand(1, to), 8, 2, 1, 1, 0),
                     Box(Operand(1, source + 48, 16, 3), Operand(1, to + 16), 8, 2, 1, 1, 0))
class Attributes(ctypes.Structure): _fields_ = fields(c_int, c_int, c_int, c_int, c_int, c_uint)
def batch(name, *tail):
    def copy(to, source, host, on):
        first = c_size_t(0)
        api_call(name, (c_uint64 * 1)(to), (c_uint64 * 1)(source), (c_size_t * 1)(32), c_size_t(1), byref(Attributes(1)), byref(first), c_size_t(1), *tail, on)
    return PLAIN, copy
def api_call(name, *arguments): assert getattr(lib, name)(*arguments) == 0, name
def attributes(name):
    return PLAIN, lambda to, source, host, on: api_call(name, c_uint64(to), c_uint64(source), c_size_t(32), byref(Attributes(1)), on)
def boxed(name, make, *after, before=()):
    return GAPS, lambda to, source, host, on: api_call(name, *before, byref(make(to, source)), *after, on)
flags, failed = c_uint64(0), c_size_t()
doors = {}
for form in ("", "_ptsz"):
    doors["cuMemcpyWithAttributesAsync" + form] = attributes("cuMemcpyWithAttributesAsync" + form)
    doors["cuMemcpyBatchAsync" + form] = batch("cuMemcpyBatchAsync" + form, byref(failed))
    doors["cuMemcpyBatchAsync_v2" + form] = batch("cuMemcpyBatchAsync_v2" + form)
    doors["cuMemcpy3DWithAttributesAsync" + form] = boxed("cuMemcpy3DWithAttributesAsync" + form, box, flags)
    doors["cuMemcpy3DBatchAsync" + form] = boxed("cuMemcpy3DBatchAsync" + form, boxes, byref(failed), flags, before=[c_size_t(2)])
    doors["cuMemcpy3DBatchAsync_v2" + form] = boxed("cuMemcpy3DBatchAsync_v2" + form, boxes, flags, before=[c_size_t(2)])
    doors["cuMemcpy3DPeerAsync" + form] = GAPS, lambda to, source, host, on, n="cuMemcpy3DPeerAsync" + form: api_call(n, byref(peer(to, source, host)), on)
for form in ("", "_ptds"):
    doors["cuMemcpy3DPeer" + form] = GAPS, lambda to, source, host, on, n="cuMemcpy3DPeer" + form: api_call(n, byref(peer(to, source, host)))
on = stream()
blocks = [malloc_async(4 * MB, on) for _ in range(4)]
first, second, gathered = (malloc_async(4 * MB, on) for _ in range(3))
for i, each in enumerate(blocks): fill(each, 10 + i, MB, on=on)
def gather(table):
    launch("sim_gather_by_table", gathered, table, 4, MB // 4, on=on)
    api.cuStreamSynchronize(on)
    got = read(gathered, MB)
    assert [got[i] for i in range(0, MB, MB // 4)] == [10, 11, 12, 13]
"""


@pytest.mark.parametrize("source", ["host", "device"])
@pytest.mark.parametrize(
    "door",
    [
        *[
            f"{name}{form}"
            for name in (
                "cuMemcpyWithAttributesAsync",
                "cuMemcpyBatchAsync",
                "cuMemcpyBatchAsync_v2",
                "cuMemcpy3DWithAttributesAsync",
                "cuMemcpy3DBatchAsync",
                "cuMemcpy3DBatchAsync_v2",
                "cuMemcpy3DPeerAsync",
            )
            for form in ("", "_ptsz")
        ],
        "cuMemcpy3DPeer",
        "cuMemcpy3DPeer_ptds",
    ],
)
def test_table_by_every_door(run, door, source):
    # GIVEN memory that is unmapped while nothing names it WHEN a table of addresses comes by this
    # door, from the host or from a block, and a kernel reads through it THEN all is mapped and right
    done = run(
        COPIES
        + f"""
order, copy = doors[{door!r}]
words = (c_uint64 * 16)()
for i, each in zip(order, blocks): words[i] = each
if {source!r} == "host":
    copy(first, ctypes.addressof(words), True, on)
else:
    api.cuMemcpyHtoDAsync_v2(second, words, 128, on)
    copy(first, second, False, on)
sync()
gather(first)
""",
        TRANSIT_VERIFY=1,
    )
    assert done.stats.counter("hidden_accesses") == 0
    assert done.stats.counter("tables") >= 1


@pytest.mark.parametrize("form", ["", "_ptds"])
def test_copies_between_blocks_and_arrays(run, form):
    # GIVEN blocks nothing has named yet WHEN they are one end of a copy from or to an array THEN
    # they are touched (the simulated driver has no arrays, but is asked while they are mapped), and
    # a table that such a refused copy would have overwritten is remembered
    run(
        f"""
open_device()
target, source, table = malloc(4 * MB), malloc(4 * MB), malloc(4 * MB)
def seen(): return counters()["unmapped_bytes_verified"] // MB
before = seen()
getattr(lib, "cuMemcpyAtoD_v2{form}")(c_uint64(target), c_void_p(1), c_size_t(0), c_size_t(4 * MB))
assert seen() - before == 4, seen() - before
getattr(lib, "cuMemcpyDtoA_v2{form}")(c_void_p(1), c_size_t(0), c_uint64(source), c_size_t(4 * MB))
assert seen() - before == 8, seen() - before
upload(table, [source])
touches = lambda: counters()["table_touches"]
fill(table + 4096, 1, 1); assert touches() == 1
getattr(lib, "cuMemcpyAtoD_v2{form}")(c_uint64(table), c_void_p(1), c_size_t(0), c_size_t(8))
fill(table + 4096, 1, 1); assert touches() == 2
""",
        TRANSIT_VERIFY=1,
    )
