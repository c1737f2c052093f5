"""The simulated NCCL between processes."""

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent

RANK = """
import pathlib, sys
import numpy as np
from sim_cuda import *
rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
open_device()
n = ctypes.CDLL(os.environ["SIM_NCCL"])
class Id(ctypes.Structure): _fields_ = [("b", ctypes.c_char * 128)]
u, path = Id(), folder / "id"
if rank == 0:
    assert n.ncclGetUniqueId(byref(u)) == 0
    (folder / "part").write_bytes(bytes(u)); (folder / "part").rename(path)
while not path.exists(): time.sleep(0.01)
ctypes.memmove(byref(u), path.read_bytes(), 128)
comm = c_void_p()
n.ncclCommInitRank.argtypes = [c_void_p, c_int, Id, c_int]
assert n.ncclCommInitRank(byref(comm), ranks, u, rank) == 0
s = stream()
def call(name, *args):
    typed = [c_uint64(a) if isinstance(a, int) and a > 1000 else a for a in args]
    assert getattr(n, name)(*typed, comm, s) == 0, name
def put(values):
    at = malloc(values.nbytes); api.cuMemcpyHtoD_v2(at, values.ctypes.data, values.nbytes)
    return at
def get(at, count, kind=np.float32):
    out = np.empty(count, kind); api.cuStreamSynchronize(s)
    api.cuMemcpyDtoH_v2(out.ctypes.data, at, out.nbytes); return out
N = 500_000                                   # two slots
a = put(np.arange(N, dtype=np.float32) + rank)
call("ncclAllReduce", a, a, c_size_t(N), 7, 0)
assert np.array_equal(get(a, N), np.arange(N, dtype=np.float32) * ranks + sum(range(ranks)))
a = put(np.full(4, rank, np.float32)); call("ncclAllReduce", a, a, c_size_t(4), 7, 4)
assert get(a, 4)[0] == sum(range(ranks)) / ranks
a = put(np.full(4, 2**-24 * (rank + 1), np.float16)); call("ncclAllReduce", a, a, c_size_t(4), 6, 2)
assert get(a, 4, np.float16)[0] == np.float16(2**-24 * ranks)
a, out = put(np.full(10, rank, np.int32)), malloc(40 * ranks)
call("ncclAllGather", a, out, c_size_t(10), 2)
assert np.array_equal(get(out, 10 * ranks, np.int32), np.repeat(np.arange(ranks), 10))
a, out = put(np.arange(N * ranks, dtype=np.float32)), malloc(4 * N)
call("ncclReduceScatter", a, out, c_size_t(N), 7, 0)
assert np.array_equal(get(out, N), np.arange(N * rank, N * (rank + 1), dtype=np.float32) * ranks)
a = put(np.full(3, rank + 5, np.int64)); call("ncclBroadcast", a, a, c_size_t(3), 4, 1)
assert get(a, 3, np.int64)[2] == 6
a, out = put(np.repeat(np.arange(ranks), 5).astype(np.int32) + 10 * rank), malloc(20 * ranks)
call("ncclAlltoAll", a, out, c_size_t(5), 2)
assert np.array_equal(get(out, 5 * ranks, np.int32), np.repeat(np.arange(ranks) * 10 + rank, 5))
a, out = put(np.full(5, rank, np.int32)), malloc(20 * ranks)
call("ncclGather", a, out, c_size_t(5), 2, 1)
assert rank != 1 or np.array_equal(get(out, 5 * ranks, np.int32), np.repeat(np.arange(ranks), 5))
a, out = put(np.repeat(np.arange(ranks), 5).astype(np.int32)), malloc(20)
call("ncclScatter", a, out, c_size_t(5), 2, 1); assert np.all(get(out, 5, np.int32) == rank)
M = 1 << 20                                   # larger than a ring
a, out = put(np.full(M, rank, np.float32)), malloc(4 * M)
n.ncclGroupStart()
call("ncclSend", a, c_size_t(M), 7, (rank + 1) % ranks)
call("ncclRecv", out, c_size_t(M), 7, (rank - 1) % ranks)
n.ncclGroupEnd()
assert np.all(get(out, M) == (rank - 1) % ranks)
value = c_int(); n.ncclCommCount(comm, byref(value)); assert value.value == ranks
n.ncclCommUserRank(comm, byref(value)); assert value.value == rank
n.ncclGetVersion(byref(value)); assert value.value == 22805
child = c_void_p(); assert n.ncclCommSplit(comm, rank % 2, 0, byref(child), None) == 0
n.ncclCommCount(child, byref(value)); assert value.value == (ranks + 1 - rank % 2) // 2
assert n.ncclCommDestroy(child) == 0 and n.ncclCommDestroy(comm) == 0
"""


def test_collectives_between_processes(sim_library, tmp_path):
    # GIVEN three ranks WHEN they run each collective THEN all have the right values and no file
    # is left
    environment = {
        **os.environ,
        "SIM": str(sim_library),
        "SIM_NCCL": str(sim_library.with_name("libtransit_sim_nccl.so")),
        "PYTHONPATH": str(HERE),
        "TRANSIT_SIM_NCCL_DIR": str(tmp_path),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), "3", str(tmp_path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    # A rank that fails leaves the others waiting, as with the real library.
    deadline = time.monotonic() + 60
    while any(r.poll() is None for r in ranks) and not any(r.poll() for r in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for process in ranks:
        process.kill()
    assert [process.wait() for process in ranks] == [0, 0, 0], [r.stderr.read() for r in ranks]
    assert not list(tmp_path.glob("transit_nccl_*"))
