"""What `--record-step` writes (docs/formats.md)."""

import json
import subprocess
import sys
from pathlib import Path

GPT = Path(__file__).parents[1] / "workloads" / "numpy_gpt.py"


def test_a_recorded_step_tells_what_lives_and_what_kernels_are(settings):
    # GIVEN the NumPy GPT with room enough
    environment = settings(TRANSIT_RECORD_STEP=1, TRANSIT_HBM=512 << 20, OPENBLAS_NUM_THREADS="1")
    small = ["--steps", "3", "--layers", "1", "--dim", "64", "--seq", "16", "--json"]
    # WHEN its second step is recorded
    done = subprocess.run(
        [sys.executable, str(GPT), *small], env=environment, capture_output=True, text=True
    )
    # THEN the blocks that lived are all there once, with their sizes
    assert done.returncode == 0, done.stderr
    (path,) = Path(environment["TRANSIT_RUN_DIR"]).glob("*.step")
    rows = [line.split(",") for line in path.read_text().splitlines()]
    lived = {row[1]: int(row[2]) for row in rows if row[0] == "B"}
    assert len(lived) == sum(row[0] == "B" for row in rows)
    assert sum(lived.values()) >= json.loads(done.stdout)["peak_bytes"]
    # AND each kernel has its class, each operation a time, and operands lie in what lives
    kinds = {row[3]: row[2] for row in rows if row[0] == "K"}
    assert kinds["sim_fused_adamw"] == "o"
    assert kinds["sim_gemm_nn"] == "c"
    assert kinds["sim_elementwise_add"] == "s"
    operations = [row for row in rows if row[0] in "LM"]
    assert [int(row[1]) for row in rows if row[0] == "G"] == list(range(len(operations)))
    named = {operand.split("+")[0] for row in operations for operand in row[4:] if "+" in operand}
    assert named <= lived.keys()
