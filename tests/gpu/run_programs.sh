#!/usr/bin/env bash
# Build the shim and run tests/gpu/programs.py on a machine with one GPU.
#
#   tests/gpu/run_programs.sh [flags of programs.py]      from the repository root
#
# Takes $TRANSIT_SHIM_PATH if it is set, else builds, else takes .carry/libtransit.so. Results go
# to $OUT (a handful of files): programs.md, build.log, outputs.txt. Exits as programs.py does.
set -uo pipefail

OUT=${OUT:-programs-results}
WORK=build/programs
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

build_shim() { # leaves the library's path in TRANSIT_SHIM_PATH
    local nvcc include
    [[ -z ${TRANSIT_SHIM_PATH:-} ]] || return 0
    nvcc=$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
    include=$(dirname "$(dirname "$nvcc")")/include
    if timeout 240 cmake -S . -B build/gpu -G Ninja -DTRANSIT_BUILD_SIM=OFF \
        -DTRANSIT_CUDA_INCLUDE="$include" && timeout 240 cmake --build build/gpu; then
        TRANSIT_SHIM_PATH=$(find "$PWD/build/gpu" -name libtransit.so -print -quit)
    elif [[ -f .carry/libtransit.so ]]; then
        TRANSIT_SHIM_PATH=$PWD/.carry/libtransit.so
    fi
    [[ -n ${TRANSIT_SHIM_PATH:-} ]]
}

rm -rf "$WORK"
mkdir -p "$WORK" "$OUT"
build_shim >"$OUT/build.log" 2>&1 || { tail -n 30 "$OUT/build.log"; exit 1; }
export TRANSIT_SHIM_PATH
python3 tests/gpu/programs.py --out "$WORK" "$@" 2>&1 | tee "$OUT/programs.md"
status=${PIPESTATUS[0]}
tail -n 60 "$WORK"/*.err >"$OUT/outputs.txt" 2>/dev/null
exit "$status"
