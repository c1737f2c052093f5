"""Programs about memory: copies, streams, forks, handles, figures."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable

import torch
from kit import (
    CPU,
    DEVICE,
    MIB,
    UNDER_TRANSIT,
    Ballast,
    Digest,
    Trainer,
    Unavailable,
    first_line,
    note,
    pattern,
    synchronize,
)

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind


def streams(digest: Digest) -> None:
    """Blocks made on one stream and used on another, freed early under record_stream."""
    if CPU:
        raise Unavailable("needs CUDA")
    ballast = Ballast()
    lanes = [torch.cuda.Stream() for _ in range(3)]
    total = torch.zeros(32 * MIB, dtype=torch.int32, device=DEVICE)
    synchronize()
    for number in range(18):
        maker, user = lanes[number % 3], lanes[(number + 1) % 3]
        with torch.cuda.stream(maker):
            block = pattern(128, number)
            block.mul_(3)
        user.wait_stream(maker)
        user.wait_stream(lanes[(number + 2) % 3])  # it may be in `total` still
        with torch.cuda.stream(user):
            total.add_(block)
            ballast.blocks[number % len(ballast.blocks)].add_(block)
            block.record_stream(user)
        lanes[(number + 2) % 3].wait_stream(user)
        del block
    synchronize()
    digest.add("total", total)
    ballast.add_to(digest)


def copies(digest: Digest) -> None:
    """Copies of 1 GiB, of which a part lies in DRAM."""
    big = pattern(1024)
    halves = big.chunk(2)
    ballast = Ballast(1280)

    def scatter() -> None:  # the first half goes out, the second is used
        halves[1].add_(1)
        ballast.touch()
        halves[1].add_(1)

    scatter()
    copy = big.clone()
    digest.add("clone", copy)
    scatter()
    copy.copy_(big)
    digest.add("device to device", copy)
    scatter()
    digest.add("pageable out", big.cpu()[:: MIB // 8])
    host = torch.empty(256 * MIB, dtype=torch.int32, pin_memory=not CPU)
    scatter()
    host.copy_(big, non_blocking=True)
    synchronize()
    digest.add("pinned out", host[:: MIB // 64])
    host.add_(5)
    scatter()
    big.copy_(host, non_blocking=True)
    digest.add("pinned in", big)
    scatter()
    big[MIB:-MIB].zero_()
    digest.add("cleared", big)
    copy[3 * MIB : -MIB].copy_(copy[MIB : -3 * MIB].clone())
    digest.add("shifted", copy)
    ballast.add_to(digest)


def copies_2d(digest: Digest) -> None:
    """Pitched copies and fills by the runtime, and PyTorch's strided ones."""
    rows, columns = (64, 64) if CPU else (8192, 8192)  # 256 MiB of int32
    source = pattern(256)[: rows * columns].view(rows, columns)
    target = torch.zeros_like(source)
    ballast = Ballast()
    ballast.touch()
    target[:, ::2] = source[:, 1::2]
    digest.add("strided", target)
    ballast.touch()
    target.copy_(source.t())
    digest.add("transposed", target)
    digest.add("window to the CPU", source[5:-5, 7:-9].cpu()[::8])
    if not CPU:
        _pitched(source, target, ballast, digest)
    ballast.add_to(digest)


def _pitched(source: torch.Tensor, target: torch.Tensor, ballast: Ballast, digest: Digest) -> None:
    rows, columns = source.shape
    pitch, width = 4 * columns, 4 * (columns // 2)
    pageable = torch.zeros(rows, columns // 2, dtype=torch.int32)
    pinned = torch.zeros(rows, columns // 2, dtype=torch.int32, pin_memory=True)
    plan = [
        ("device to device", target, pitch, source, pitch, DEVICE_TO_DEVICE),
        ("to pageable", pageable, width, source, pitch, DEVICE_TO_HOST),
        ("to pinned", pinned, width, source, pitch, DEVICE_TO_HOST),
        ("from pageable", target, pitch, pageable, width, HOST_TO_DEVICE),
        ("from pinned", target, pitch, pinned, width, HOST_TO_DEVICE),
    ]
    runtime = cuda_runtime()
    for name, to, to_pitch, origin, origin_pitch, kind in plan:
        ballast.touch()
        synchronize()
        arguments = (to.data_ptr(), to_pitch, origin.data_ptr(), origin_pitch, width, rows)
        sizes = [ctypes.c_size_t(value) for value in arguments]
        digest.add(f"{name}: error", runtime.cudaMemcpy2D(*sizes, ctypes.c_int(kind)))
        synchronize()
        digest.add(name, to if to.is_cuda else to[::8])
    ballast.touch()
    synchronize()
    fill = (ctypes.c_size_t(target.data_ptr()), ctypes.c_size_t(pitch), ctypes.c_int(0x5A))
    sizes = (ctypes.c_size_t(width), ctypes.c_size_t(rows))
    digest.add("fill: error", runtime.cudaMemset2D(*fill, *sizes))
    synchronize()
    digest.add("fill", target)


def cuda_runtime() -> ctypes.CDLL:
    """The runtime library that PyTorch has loaded."""
    torch.zeros(1, device=DEVICE)
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/libcudart.so" in line}
    if not paths:
        raise Unavailable("no shared libcudart in the process")
    return ctypes.CDLL(min(paths))


def fork(digest: Digest) -> None:
    """Children of a process with a live context: one leaves it alone, two do not."""
    trainer = Trainer()
    for _ in range(3):
        trainer.step()
    synchronize()
    digest.add("quiet child", _in_child(lambda: "fine"))
    if not CPU:
        digest.add("PyTorch in the child", _in_child(_use_torch))
        digest.add("driver in the child", _in_child(_use_driver))
    for _ in range(3):
        trainer.step()
    trainer.add_to(digest)


def _in_child(action: Callable[[], str]) -> str:
    """What `action` says in a forked process, and how that process ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(8)  # a deadlock is an end too
            os.write(writer, action().encode())
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    outcome = f"{said}; ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}"
    print(f"child: {outcome}", file=sys.stderr)
    return outcome


def _use_torch() -> str:
    try:
        torch.zeros(1, device=DEVICE)
    except RuntimeError as error:
        return first_line(error)
    return "no error"


def _use_driver() -> str:
    driver = ctypes.CDLL("libcuda.so.1")
    address = ctypes.c_uint64()
    errors = [driver.cuCtxSynchronize(), driver.cuMemAlloc_v2(ctypes.byref(address), 1 << 21)]
    return f"errors {errors}"


def ipc(digest: Digest) -> None:
    """A handle for another process. Transit refuses it with a sentence, and the job goes on."""
    trainer = Trainer()
    trainer.step()
    if not CPU:
        from torch.multiprocessing.reductions import reduce_tensor

        tensor = pattern(64)
        for name, share in (
            ("reduce_tensor", lambda: reduce_tensor(tensor)),
            ("_share_cuda_", lambda: tensor.untyped_storage()._share_cuda_()),
        ):
            try:
                share()
                note(f"{name}: a handle{', unexpectedly' if UNDER_TRANSIT else ''}")
            except RuntimeError as error:
                text = first_line(error)
                clear = "not supported" in text or "not supported" in str(error)
                state = "refused" if UNDER_TRANSIT and clear else "unexpected"
                note(f"{name}: {state}: {text[:90]}")
        digest.add("tensor", tensor)
    for _ in range(3):
        trainer.step()
    trainer.add_to(digest)


def memory_info(digest: Digest) -> None:
    """What the device says of its memory fits together."""
    if CPU:
        raise Unavailable("needs CUDA")
    before = torch.zeros(8 * MIB, device=DEVICE)
    free, total = torch.cuda.mem_get_info()
    block = torch.zeros(256 * MIB, device=DEVICE)  # 1 GiB
    free_with, total_with = torch.cuda.mem_get_info()
    del block
    torch.cuda.empty_cache()
    free_after, total_after = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0).total_memory
    digest.add("total stays", total == total_with == total_after)
    digest.add("free in total", 0 < free <= total and 0 < free_with <= total)
    digest.add("1 GiB less", free - free_with >= 1000 * MIB)
    digest.add("and back", free_after - free_with >= 1000 * MIB)
    digest.add("memory", before)
    note(f"total {total / 2**30:.2f} GiB, free {free / 2**30:.2f}, {free_with / 2**30:.2f},")
    note(f"{free_after / 2**30:.2f}; properties say {properties / 2**30:.2f} GiB")


PROGRAMS = {
    "streams": streams,
    "copies": copies,
    "copies-2d": copies_2d,
    "fork": fork,
    "ipc": ipc,
    "memory-info": memory_info,
}
