#!/usr/bin/env bash
# The milestone on a real GPU: the same training job resident and under Transit.
#
#   tests/gpu/milestone.sh            from the repository root, on a machine with one GPU
#
# Builds the shim (or takes .carry/libtransit.so), compares the driver's symbols with our list,
# checks that losses and states are equal bit for bit, then measures speed. Results go to $OUT
# (a handful of files): summary.md, build.log, symbols.txt, exact.json, speed.json, transit.json,
# logs.txt. Exits with 1 if a run failed or a bit differs.
#
# Needs Python with PyTorch, click and pynvml; for the build g++, CMake, Ninja and nvcc's headers.
set -uo pipefail

SIZE=${SIZE:-3b} BATCH=${BATCH:-4} SEQ=${SEQ:-4096} STEPS=${STEPS:-8} ROUNDS=${ROUNDS:-1}
EXACT_STEPS=${EXACT_STEPS:-4} HBM=${HBM:-62GiB} DRAM=${DRAM:-40GiB} RUN_TIMEOUT=${RUN_TIMEOUT:-120}
OUT=${OUT:-milestone-results}
WORK=build/milestone

JOB="python3 tests/workloads/llama.py --size $SIZE --batch $BATCH --seq $SEQ --json {json}"
TRANSIT="python3 -m transit run --hbm $HBM --dram $DRAM --json {json}.transit --"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

cuda_include() {
    dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")"
}

build_shim() { # leaves the library's path in TRANSIT_SHIM_PATH
    local include
    include=$(cuda_include)/include
    if timeout 240 cmake -S . -B build/gpu -G Ninja -DTRANSIT_BUILD_SIM=OFF \
        -DTRANSIT_CUDA_INCLUDE="$include" && timeout 240 cmake --build build/gpu; then
        TRANSIT_SHIM_PATH=$(find "$PWD/build/gpu" -name libtransit.so -print -quit)
    elif [[ -f .carry/libtransit.so ]]; then
        echo "milestone: the build failed, taking .carry/libtransit.so"
        TRANSIT_SHIM_PATH=$PWD/.carry/libtransit.so
    fi
    [[ -n ${TRANSIT_SHIM_PATH:-} ]]
}

driver_path() { # absolute path of the real libcuda.so.1
    python3 - <<'PYTHON'
import ctypes

ctypes.CDLL("libcuda.so.1")
maps = (line.split() for line in open("/proc/self/maps"))
print(next(fields[-1] for fields in maps if "/libcuda.so" in fields[-1]))
PYTHON
}

bench() { # name, rounds, steps and flags of the job
    local name=$1 rounds=$2
    shift 2
    python3 tests/bench/bench.py --rounds "$rounds" --timeout "$RUN_TIMEOUT" --out "$WORK/$name" \
        --config resident="$JOB $*" --config transit="$TRANSIT $JOB $*"
}

collect() { # few files: what goes back from a borrowed machine is limited
    local name
    for name in exact speed; do
        cp "$WORK/$name/bench.json" "$OUT/$name.json" 2>/dev/null
    done
    cat "$WORK"/*/transit-*.json.transit >"$OUT/transit.json" 2>/dev/null
    tail -n 200 "$WORK"/*/*.log >"$OUT/logs.txt" 2>/dev/null
}

main() {
    local failed=0
    echo "## Build"
    build_shim >"$OUT/build.log" 2>&1 || { tail -n 30 "$OUT/build.log"; return 1; }
    export TRANSIT_SHIM_PATH
    echo "shim: ${TRANSIT_SHIM_PATH#"$PWD"/}"
    python3 shim/symbols/generate.py --check shim/symbols/cuda.txt "$(driver_path)" \
        >"$OUT/symbols.txt" 2>&1 || failed=1
    head -n 20 "$OUT/symbols.txt"

    echo "## Same bits: $SIZE, $EXACT_STEPS steps, --deterministic"
    bench exact 1 --steps "$EXACT_STEPS" --deterministic || failed=1
    python3 tests/bench/compare_losses.py "$WORK"/exact/{resident,transit}-0.json || failed=1

    echo "## Speed: $SIZE, batch $BATCH, $SEQ tokens, HBM budget $HBM, DRAM budget $DRAM"
    bench speed "$ROUNDS" --steps "$STEPS" || failed=1
    return "$failed"
}

rm -rf "$WORK"
mkdir -p "$WORK" "$OUT"
main 2>&1 | tee "$OUT/summary.md"
status=${PIPESTATUS[0]}
collect
exit "$status"
