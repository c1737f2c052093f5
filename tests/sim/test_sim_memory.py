"""Device memory: capacity, VMM rules, aliases, pools, host memory, pointers."""

import signal

SEGV = -signal.SIGSEGV


def test_allocation_counts_and_frees(run):
    # GIVEN a device of 64 MiB WHEN it is filled THEN the next request is refused until one is freed
    run(
        """
open_device()
a, b = malloc(32 * MB), malloc(32 * MB)
at = c_uint64()
assert api.cuMemAlloc_v2.code(byref(at), 1) == 2
api.cuMemFree_v2(a)
for wrong in (a, 12345, b + 512):
    assert api.cuMemFree_v2.code(wrong) == 1
api.cuMemAlloc_v2(byref(at), 32 * MB)
free, total = c_size_t(), c_size_t()
api.cuMemGetInfo_v2(byref(free), byref(total))
assert (free.value, total.value) == (0, 64 * MB)
api.cuMemGetInfo_v2(None, byref(total)); api.cuMemGetInfo_v2(byref(free), None)
""",
        TRANSIT_SIM_HBM_BYTES=64 << 20,
    )


def test_a_capacity_that_is_no_number_is_told(run):
    # GIVEN a size with a unit, which only the command line knows WHEN the device is opened THEN it
    # has its default of 1 GiB, and that is told
    done = run(
        """
open_device()
free, total = c_size_t(), c_size_t()
api.cuMemGetInfo_v2(byref(free), byref(total))
assert total.value == 1 << 30
""",
        TRANSIT_SIM_HBM_BYTES="2GiB",
    )
    assert "TRANSIT_SIM_HBM_BYTES=2GiB is not a whole number; using 1073741824" in done.stderr


def test_use_after_free_faults(run):
    # GIVEN freed memory WHEN it is touched THEN the process gets a real fault
    run("open_device(); a = malloc(4 * MB); api.cuMemFree_v2(a); host_read(a)", expect=SEGV)


def test_free_waits_for_queued_work(run):
    # GIVEN a kernel that is still running WHEN its memory is freed THEN the free waits for it
    run("""
open_device()
a, s = malloc(MB), stream()
launch("sim_spin", 50_000_000, on=s)
launch("sim_fill", a, c_uint(7), 1024, on=s)
api.cuMemFree_v2(a)
api.cuStreamSynchronize(s)
""")


def test_new_mapping_has_no_access(run):
    # GIVEN a mapping without cuMemSetAccess WHEN it is read THEN it faults
    run(
        """
api.cuInit(0)
at = reserve(2 * MB)
api.cuMemMap(at, 2 * MB, 0, create(2 * MB), 0)
host_read(at)
""",
        SEGV,
    )


def test_unmapped_extent_faults_in_a_kernel(run):
    # GIVEN an extent that is unmapped WHEN a kernel touches it THEN the fault is real
    run(
        """
open_device()
at, frame = reserve(2 * MB), create(2 * MB)
map_at(at, 2 * MB, frame)
launch("sim_fill", at, c_uint(1), 16); api.cuCtxSynchronize()
api.cuMemUnmap(at, 2 * MB)
launch("sim_fill", at, c_uint(1), 16); api.cuCtxSynchronize()
""",
        SEGV,
    )


def test_illegal_address_can_be_an_error_instead(run):
    # GIVEN TRANSIT_SIM_ILLEGAL_ADDRESS WHEN a kernel faults THEN error 700 sticks, as on a GPU
    run(
        """
open_device()
at = reserve(2 * MB)
launch("sim_fill", at, c_uint(1), 16)
assert api.cuCtxSynchronize.code() == 700
x = c_uint64()
assert api.cuMemAlloc_v2.code(byref(x), 1024) == 700
""",
        TRANSIT_SIM_ILLEGAL_ADDRESS=1,
    )


def test_map_rules(run):
    # GIVEN the rules of VMM WHEN they are broken THEN each breach is INVALID_VALUE
    run("""
open_device()
base, frame, other = reserve(8 * MB), create(2 * MB), create(4 * MB)
m = api.cuMemMap.code
map_at(base, 2 * MB, frame)
assert m(base, 2 * MB, 0, other, 0) == 1               # over a mapping
assert m(base + 2 * MB, 2 * MB, 2 * MB, other, 0) == 1 # offset
assert m(base + 2 * MB, MB, 0, other, 0) == 1          # granularity
assert m(base + MB, 2 * MB, 0, other, 0) == 1          # alignment
assert m(base + 6 * MB, 4 * MB, 0, other, 0) == 1      # past the reservation
assert m(base + 2 * MB, 4 * MB, 0, frame, 0) == 1      # larger than the handle
assert m(base + 2 * MB, 2 * MB, 0, 999, 0) == 1        # no such handle
map_at(base + 2 * MB, 4 * MB, other)
assert api.cuMemUnmap.code(base + 2 * MB, 2 * MB) == 1 # part of a mapping
assert api.cuMemUnmap.code(base, 8 * MB) == 1          # a hole at the end
assert rw(base + 2 * MB, 2 * MB) == 1
assert api.cuMemAddressFree.code(base, 8 * MB) == 1    # still mapped
api.cuMemUnmap(base, 6 * MB)                           # two whole mappings
assert api.cuMemUnmap.code(base, 2 * MB) == 1
assert api.cuMemAddressFree.code(base, 4 * MB) == 1
api.cuMemAddressFree(base, 8 * MB)
p = Prop(type=1, location=Location(1, 0)); h = c_uint64()
assert api.cuMemCreate.code(byref(h), MB, byref(p), 0) == 1
at = c_uint64()
assert api.cuMemAddressReserve.code(byref(at), MB, 0, 0, 0) == 1
""")


def test_aliases_see_the_same_bytes(run):
    # GIVEN one handle mapped twice WHEN one mapping is written THEN the other shows it;
    # remapping moves the view
    run("""
open_device()
app, alias, frame, second = reserve(2 * MB), reserve(2 * MB), create(2 * MB), create(2 * MB, 3)
map_at(app, 2 * MB, frame); map_at(alias, 2 * MB, frame)
launch("sim_fill", app, c_uint(41), 2 * MB // 4); launch("sim_increment", alias, 1)
assert read_words(app, 2) == [42, 41]
api.cuMemUnmap(app, 2 * MB); map_at(app, 2 * MB, second)
assert read_words(app) == [0] and read_words(alias) == [42]
""")


def test_released_handle_lives_until_unmap(run):
    # GIVEN a mapped handle WHEN it is released THEN its memory is counted until the last unmap
    run("""
open_device()
at, frame = reserve(2 * MB), create(2 * MB)
map_at(at, 2 * MB, frame)
launch("sim_fill", at, c_uint(5), 4)
api.cuMemRelease(frame)
assert api.cuMemRelease.code(frame) == 1
assert read_words(at) == [5] and hbm() == 2 * MB
again = c_uint64(); api.cuMemRetainAllocationHandle(byref(again), at)
api.cuMemUnmap(at, 2 * MB)
assert hbm() == 2 * MB
api.cuMemRelease(again.value)
assert hbm() == 0
""")


def test_host_frames_are_dram(run):
    # GIVEN a frame on a NUMA node WHEN it is mapped THEN it counts as DRAM and its pointer says
    # host
    run("""
open_device()
at, frame = reserve(2 * MB), create(2 * MB, 3)
map_at(at, 2 * MB, frame)
assert hbm() == 0 and api.transit_sim_dram_bytes.code() == 2 * MB
kind = c_uint(); api.cuPointerGetAttribute(byref(kind), 2, at)
assert kind.value == 1
value = c_int(); api.cuDeviceGetAttribute(byref(value), 141, 0); assert value.value == 1
""")


def test_host_frames_can_be_missing(run):
    # GIVEN a driver without HOST_NUMA WHEN asked THEN attribute 141 is 0 and creation is
    # NOT_SUPPORTED
    run(
        """
api.cuInit(0)
p = Prop(type=1, location=Location(3, 0)); h = c_uint64()
assert api.cuMemCreate.code(byref(h), 2 * MB, byref(p), 0) == 801
value = c_int(); api.cuDeviceGetAttribute(byref(value), 141, 0); assert value.value == 0
""",
        TRANSIT_SIM_HOST_NUMA=0,
    )


def test_access_is_kept_per_device(run):
    # GIVEN two devices WHEN only one is granted THEN cuMemGetAccess tells them apart
    run(
        """
open_device()
at = reserve(2 * MB); map_at(at, 2 * MB, create(2 * MB))
flags = c_uint64()
api.cuMemGetAccess(byref(flags), byref(Location(1, 0)), at); assert flags.value == 3
api.cuMemGetAccess(byref(flags), byref(Location(1, 1)), at); assert flags.value == 0
assert rw(at, 2 * MB, device=1) == OK
api.cuMemGetAccess(byref(flags), byref(Location(1, 1)), at); assert flags.value == 3
""",
        TRANSIT_SIM_DEVICES=2,
    )


def test_pool_reuses_in_stream_order(run):
    # GIVEN a freed stream-ordered block WHEN the same stream asks again THEN it gets it at once
    run("""
open_device()
s, a = stream(), c_uint64()
api.cuMemAllocAsync(byref(a), 4 * MB, s); first = a.value
launch("sim_spin", 20_000_000, on=s)
launch("sim_fill", first, c_uint(1), 16, on=s)
api.cuMemFreeAsync(first, s)
assert api.cuMemFreeAsync.code(first, s) == 1
api.cuMemAllocAsync(byref(a), 4 * MB, s)
assert a.value == first
api.cuMemFreeAsync(first, s)
api.cuStreamSynchronize(s)
assert hbm() == 0        # release threshold 0: a sync gives it back
pool = c_void_p(); api.cuDeviceGetDefaultMemPool(byref(pool), 0)
keep = c_uint64(1 << 40); api.cuMemPoolSetAttribute(pool, 4, byref(keep))
api.cuMemAllocAsync(byref(a), 4 * MB, s); api.cuMemFreeAsync(a.value, s); api.cuStreamSynchronize(s)
value = c_uint64(); api.cuMemPoolGetAttribute(pool, 5, byref(value))
assert value.value == 4 * MB == hbm()
api.cuMemPoolTrimTo(pool, 0)
assert hbm() == 0
""")


def test_host_memory_and_pointer_queries(run):
    # GIVEN memory of each kind WHEN its pointer is queried THEN the answers are the driver's
    run("""
open_device()
a, host, kind, base, n = malloc(3 * MB), c_void_p(), c_uint(), c_uint64(), c_size_t()
api.cuMemHostAlloc(byref(host), MB, 0)
api.cuPointerGetAttribute(byref(kind), 2, host.value); assert kind.value == 1
api.cuPointerGetAttribute(byref(kind), 2, a + 100); assert kind.value == 2
assert api.cuPointerGetAttribute.code(byref(kind), 2, 4096) == 1
api.cuMemGetAddressRange_v2(byref(base), byref(n), a + 5000)
assert (base.value, n.value) == (a, 3 * MB)
assert api.cuMemGetAddressRange_v2.code(byref(base), byref(n), 4096) == 500
own = ctypes.create_string_buffer(4096)
api.cuMemHostRegister_v2(own, 4096, 0); assert api.cuMemHostRegister_v2.code(own, 4096, 0) == 712
api.cuMemHostUnregister(own); assert api.cuMemHostUnregister.code(own) == 713
ipc = ctypes.create_string_buffer(64); at = reserve(2 * MB); map_at(at, 2 * MB, create(2 * MB))
api.cuIpcGetMemHandle(ipc, a); assert api.cuIpcGetMemHandle.code(ipc, at) == 1
""")


def test_forked_child_has_no_driver(run):
    # GIVEN an initialised process WHEN it forks THEN the child gets NOT_INITIALIZED
    run("""
open_device(); malloc(MB)
pid = os.fork()
if pid == 0:
    at = c_uint64(); os._exit(api.cuMemAlloc_v2.code(byref(at), 1))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
""")
