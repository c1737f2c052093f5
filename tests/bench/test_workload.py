"""The training job itself, tiny and on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")  # torch's distributed checkpoints need it

from compare_losses import main as compare

pytestmark = pytest.mark.slow

LLAMA = Path(__file__).parents[1] / "workloads" / "llama.py"


@pytest.fixture
def train(tmp_path):
    """Runs a job and returns the path of what it measured."""

    def train(name, *flags, size="tiny", launcher=(sys.executable,)):
        path = tmp_path / f"{name}.json"
        job = [str(LLAMA), "--cpu", "--size", size, "--seq", "32", "--json", str(path), *flags]
        done = subprocess.run([*launcher, *job], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return str(path)

    return train


def losses(path):
    return json.loads(Path(path).read_text())["losses"]


@pytest.mark.parametrize("size", ["tiny", "tiny-moe"])
def test_it_learns(train, size):
    # GIVEN text in which eight tokens can follow a token
    # WHEN trained for a while
    result = losses(train("run", "--steps", "100", "--seq", "64", size=size))
    # THEN the loss falls by much more than it jitters
    assert sum(result[-5:]) / 5 < sum(result[:5]) / 5 - 0.05


@pytest.mark.parametrize("size", ["tiny", "tiny-moe"])
def test_two_runs_are_equal(train, size):
    # GIVEN two runs of one job
    runs = [train(name, "--steps", "3", "--deterministic", size=size) for name in "ab"]
    # WHEN compared bit for bit THEN they are equal
    assert compare(runs) == 0


def test_another_seed_is_another_run(train):
    # GIVEN runs with different seeds THEN the comparison notices
    runs = [train(seed, "--steps", "2", "--seed", seed) for seed in "01"]
    assert compare(runs) == 1


def test_resumed_run_goes_on_bit_for_bit(train, tmp_path):
    # GIVEN four steps in a row, and two steps that leave a checkpoint
    whole = train("whole", "--steps", "4", "--accum", "2")
    checkpoint = str(tmp_path / "checkpoint")
    train("begin", "--steps", "2", "--accum", "2", "--save", checkpoint)
    # WHEN the second is resumed for two more
    rest = train("rest", "--steps", "2", "--accum", "2", "--resume", checkpoint)
    # THEN steps and final states are those of the first
    assert json.loads(Path(rest).read_text())["first_step"] == 2
    assert compare([whole, rest]) == 0


def test_checkpointing_changes_no_bit(train):
    # GIVEN activations kept or computed again THEN nothing else changes
    runs = [train(kind, "--steps", "2", "--checkpointing", kind) for kind in ("full", "none")]
    assert compare(runs) == 0


def test_two_ranks(train):
    # GIVEN two ranks under torchrun
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    # WHEN
    content = json.loads(Path(train("ranks", "--steps", "2", launcher=launcher)).read_text())
    # THEN both report
    assert content["world_size"] == 2
    assert len(content["losses_hex"]) == len(content["checksums"]) == 2
