"""The random program of stress.cpp, whose every byte is known."""

import os
import subprocess
from pathlib import Path

import pytest
from shim_build import HERE, Libraries, build, cuda_include

MIB = 1 << 20
ROOM = {"TRANSIT_HBM": 384 * MIB, "TRANSIT_DRAM": 192 * MIB}


def moves_and_checks(out: str) -> tuple[int, int]:
    word, moves, checks = out.split()
    assert word == "ok"
    return int(moves), int(checks)


def test_a_thousand_moves(native):
    # GIVEN four threads of random work WHEN 1,000 moves happen meanwhile THEN no byte is wrong
    done = native("stress.cpp", 1, 1000, 40, TRANSIT_FORCE_MOVES=1, **ROOM)
    moves, checks = moves_and_checks(done.out)
    assert moves >= 1000 and checks > 500


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_ten_thousand_moves(native, seed):
    # GIVEN the same WHEN 10,000 moves happen THEN no byte is wrong, no fault, no deadlock
    done = native("stress.cpp", seed, 10000, 150, timeout=200, TRANSIT_FORCE_MOVES=seed, **ROOM)
    moves, checks = moves_and_checks(done.out)
    assert moves >= 10000 and checks > 5000


@pytest.mark.slow
def test_moves_under_pressure(native):
    # GIVEN less HBM than the job uses at once WHEN it runs, forced moves too THEN no byte is wrong
    room = {"TRANSIT_HBM": 160 * MIB, "TRANSIT_DRAM": 384 * MIB}
    done = native("stress.cpp", 4, 2000, 60, timeout=120, TRANSIT_FORCE_MOVES=4, **room)
    assert moves_and_checks(done.out)[0] >= 500


def library(name: str) -> str:
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


SANITIZERS = {
    "address": ("address,undefined", ["libasan.so", "libubsan.so"], 10000),
    "thread": ("thread", ["libtsan.so"], 1000),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SANITIZERS)
def test_under_a_sanitizer(settings, tmp_path, kind):
    # GIVEN shim, simulator and program built with a sanitizer, whose runtime is preloaded first
    # WHEN the program runs THEN the sanitizer has nothing to say
    flag, runtimes, moves = SANITIZERS[kind]
    flags = f"-DCMAKE_CXX_FLAGS=-fsanitize={flag} -fno-omit-frame-pointer -Wno-error"
    built = Libraries.below(build(tmp_path / "build", flags))
    assert built is not None
    target, folder = tmp_path / "stress", built.simulator.parent
    command = ["g++", "-std=c++20", "-O1", "-g", f"-fsanitize={flag}", str(HERE / "stress.cpp")]
    link = [str(built.simulator), f"-Wl,-rpath,{folder}", "-pthread", "-ldl", "-o", str(target)]
    subprocess.run([*command, "-isystem", cuda_include(), *link], check=True)
    preload = ":".join([*map(library, runtimes), str(built.shim)])
    environment = settings(
        LD_PRELOAD=preload,
        TRANSIT_REAL_LIBCUDA=built.simulator,
        SIMULATOR=built.simulator,
        TRANSIT_FORCE_MOVES=3,
        ASAN_OPTIONS="detect_leaks=0",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        TSAN_OPTIONS="halt_on_error=1",
        **ROOM,
    )
    # ThreadSanitizer cannot live with much address randomisation.
    fixed = ["setarch", os.uname().machine, "-R"] if kind == "thread" else []
    done = subprocess.run(
        [*fixed, str(target), "3", str(moves), "400"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert moves_and_checks(done.stdout)[0] >= moves
    assert Path(environment["TRANSIT_RUN_DIR"]).is_dir()
