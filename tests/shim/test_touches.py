"""Memory that kernels reach in every way there is, while extents are moved all the time."""
# ruff: noqa: E501 (programs in strings)

import pytest

MOVING = {"TRANSIT_FORCE_MOVES": 7, "TRANSIT_SIM_LATENCY_US": 20}


def test_launches_of_every_kind(run):
    # GIVEN persistent blocks that keep moving WHEN kernels are launched with parameters, with an
    # extra buffer, through a CUkernel and with a layout the driver does not tell THEN all bytes
    # are right
    done = run(
        """
open_device()
a, b = malloc(4 * MB), malloc(4 * MB)
fill(a, 0, MB); fill(b, 0, MB)
library, kernel = c_void_p(), c_void_p()
api.cuLibraryLoadData(byref(library), b"image", None, None, 0, None, None, 0)
api.cuLibraryGetKernel(byref(kernel), library, b"sim_increment")
def body(at):
    where, count = struct.unpack("QQ", ctypes.string_at(at, 16))
    words = (c_uint * count).from_address(where)
    for i in range(0, count, 4096): words[i] += 1
register("opaque", body, 8, 8)
sim.transit_sim_set_opaque(b"opaque")
end_setup()
for i in range(150):
    launch("sim_increment", a, MB)
    launch_extra("sim_increment", struct.pack("QQ", a, MB))
    launch("", b, MB, handle=kernel)
    launch("opaque", b, MB)
    if i % 10 == 0: time.sleep(0.01); wait_moves(1)
sync()
expect_words(a, MB, 300, "a")
got = read(b, MB)
assert all(got[i] == (300 if i % 4096 == 0 else 150) for i in range(0, MB, 1024)), "b"
print(moves())
""",
        **MOVING,
    )
    assert int(done.out) >= 15
    assert done.stats.counter("unknown_launches") == 150


TABLES = """
open_device()
sources = [allocate(4 * MB) for _ in range(4)]
gathered, table = allocate(4 * MB), allocate(4 * MB)
for i, each in enumerate(sources): fill(each, 10 + i, MB)
sync()
end_setup()
"""
GATHER_AND_CHECK = """
    sync()
    got = read(gathered, MB)
    for k in range(4):
        part = set(got[k * MB // 4 : (k + 1) * MB // 4])
        assert part == {10 + k}, (i, k, part)
"""


@pytest.mark.parametrize("allocate", ["malloc", "malloc_async"])
def test_tables_copied_from_the_host(run, allocate):
    # GIVEN blocks reached only through a table that was copied from the host WHEN they are read
    # while extents move THEN no byte is wrong
    run(
        f"allocate = {allocate}"
        + TABLES
        + """
for i in range(60):
    upload(table, sources)
    pass_markers()
    for _ in range(3): launch("sim_gather_by_table", gathered, table, 4, MB // 4)
"""
        + GATHER_AND_CHECK,
        **MOVING,
    )


@pytest.mark.parametrize(
    "allocate",
    [
        "malloc",  # a listed segment never moves
        "malloc_async",
    ],
)
def test_first_entry_of_a_table_is_rewritten(run, allocate):
    # GIVEN a table of four WHEN its first entry alone is copied again THEN the others still count
    run(
        f"allocate = {allocate}"
        + TABLES
        + """
upload(table, sources)
for i in range(150):
    upload(table, sources[:1])
    pass_markers()
    for _ in range(8): launch("sim_gather_by_table", gathered, table, 4, MB // 4)
"""
        + GATHER_AND_CHECK,
        **MOVING,
    )


@pytest.mark.parametrize("allocate", ["malloc", "malloc_async"])
def test_table_arrives_by_a_pitched_copy(run, allocate):
    # GIVEN a table that cuMemcpy2D brought from the host WHEN it is read through THEN all is right
    run(
        f"allocate = {allocate}"
        + TABLES
        + """
class Pitched(ctypes.Structure):
    side = [("x", size), ("y", size), ("type", c_int), ("host", pointer), ("device", address), ("array", pointer), ("pitch", size)]
    _fields_ = [("s" + n, t) for n, t in side] + [("d" + n, t) for n, t in side] + [("width", size), ("height", size)]
data = (c_uint64 * 4)(*sources)
copy = Pitched(stype=1, shost=ctypes.addressof(data), spitch=32, dtype=2, ddevice=table, dpitch=32, width=32, height=1)
for i in range(200):
    api.cuMemcpy2D_v2(byref(copy))
    pass_markers()
    for _ in range(8): launch("sim_gather_by_table", gathered, table, 4, MB // 4)
"""
        + GATHER_AND_CHECK,
        **MOVING,
    )


@pytest.mark.parametrize("allocate", ["malloc", "malloc_async"])
def test_tables_built_on_the_device(run, allocate):
    # GIVEN a table that a kernel made WHEN another kernel reads through it THEN no byte is wrong
    run(
        f"allocate = {allocate}"
        + TABLES
        + """
big = allocate(16 * MB)
for k in range(4): fill(big + 4 * MB * k, 10 + k, MB)
next_step()
for i in range(250):
    launch("sim_build_table", table, big, 4 * MB, 4)
    pass_markers()
    for _ in range(10): launch("sim_gather_by_table", gathered, table, 4, MB // 4)
"""
        + GATHER_AND_CHECK,
        TRANSIT_FORCE_MOVES=7,
        TRANSIT_SIM_LATENCY_US=200,
    )


@pytest.mark.parametrize(
    "allocate",
    [
        "malloc",  # a listed segment never moves
        "malloc_async",
    ],
)
def test_table_copied_by_a_kernel(run, allocate):
    # GIVEN a table from the host WHEN a kernel copies it and another reads through the copy THEN
    # no byte is wrong
    run(
        f"allocate = {allocate}"
        + TABLES
        + """
second = allocate(4 * MB)
upload(table, sources)
next_step()
for i in range(60):
    launch("sim_copy", second, table, 32)
    pass_markers()
    for _ in range(6): launch("sim_gather_by_table", gathered, second, 4, MB // 4)
"""
        + GATHER_AND_CHECK,
        **MOVING,
    )


@pytest.mark.parametrize("allocate", ["malloc", "malloc_async"])
@pytest.mark.parametrize("copies", ["whole", "part"])
def test_table_built_on_the_device_and_copied(run, allocate, copies):
    # GIVEN a table that a kernel made WHEN the driver copies it and another kernel reads through
    # the copy alone THEN no byte is wrong
    offset = 0 if copies == "whole" else 2
    run(
        f"allocate, offset = {allocate}, {offset} * MB"
        + TABLES
        + """
big, second = allocate(16 * MB), allocate(4 * MB)
for k in range(4): fill(big + 4 * MB * k, 10 + k, MB)
next_step()
launch("sim_build_table", table + offset, big, 4 * MB, 4)
api.cuMemcpyDtoDAsync_v2(second, table + offset, 32, None)
for i in range(80):
    pass_markers()
    for _ in range(10): launch("sim_gather_by_table", gathered, second, 4, MB // 4)
"""
        + GATHER_AND_CHECK,
        TRANSIT_FORCE_MOVES=7,
        TRANSIT_SIM_LATENCY_US=200,
    )


def test_hidden_writes_to_transient_blocks(run):
    # GIVEN a block younger than the first compute kernel WHEN a kernel writes there that no
    # parameter names, while others move THEN every write is there: transient blocks stay put
    done = run(
        """
open_device()
old = [malloc(4 * MB) for _ in range(4)]
end_setup()
young = malloc(4 * MB)
fill(young, 0, MB)
sim.transit_sim_hide(1, young, 4 * MB)
for i in range(1, 150):
    launch("sim_hidden_writer", c_uint(1), c_uint(i))
    for each in old: fill(each, i, MB)
    expect_words(young, MB, i, "young")
    if i % 15 == 0: wait_moves(2)
print(moves())
""",
        **MOVING,
    )
    assert int(done.out) >= 20


def test_transient_block_at_the_address_of_one_in_flight(run):
    # GIVEN a persistent block that is being moved WHEN it is freed, its address is given to a
    # transient block at once, and that is written unseen THEN the move does not undo the write
    run(
        """
open_device()
old = malloc(4 * MB)
end_setup()
for i in range(1, 250):
    pass_markers()
    time.sleep(0.0003 * (i % 5))
    api.cuMemFree_v2(old)
    young = malloc(4 * MB)
    assert young == old
    sim.transit_sim_hide(1, young, 4 * MB)
    launch("sim_hidden_writer", c_uint(1), c_uint(i))
    time.sleep(0.001)
    expect_words(young, MB, i, f"round {i}")
    next_step()
print(moves())
sync()
""",
        TRANSIT_FORCE_MOVES=3,
        TRANSIT_SIM_LATENCY_US=300,
    )


def test_values_written_by_the_stream(run):
    # GIVEN a persistent block WHEN the stream itself writes a value there (semaphores) while
    # extents move THEN no write is lost
    run(
        """
open_device()
words, other = malloc(4 * MB), malloc(4 * MB)
fill(words, 0, MB)
end_setup()
on = stream()
for i in range(1, 600):
    api.cuStreamWriteValue32_v2(on, words + 4 * (i % MB), i, 0)
    if i % 3 == 0: pass_markers()
api.cuStreamSynchronize(on)
print(moves())
got = read(words, 600)
assert [got[i] for i in range(1, 600)] == list(range(1, 600)), [i for i in range(1, 600) if got[i] != i]
""",
        **MOVING,
    )
