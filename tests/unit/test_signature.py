"""What a job's signature holds, and what it leaves out."""

from dataclasses import replace
from pathlib import Path

import pytest

from transit.launch import Launch
from transit.signature import Signature, of_job


def sign(*command: str, root: Path = Path("/none"), **environment: str) -> Signature:
    launch = Launch(environment, simulated=not root.is_dir(), torch="2.11.0")
    return of_job(("python", *command), launch, environment, root)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--steps", "5"], ["--steps", "100000"]),
        (["--max_steps=5"], ["--max_steps=100000"]),
        (["trainer.num_train_epochs=1"], ["trainer.num_train_epochs=3"]),
        (["--output-dir", "a"], ["--output-dir", "b"]),
        (["--log", "a", "model"], ["--log", "b", "model"]),
        (["--master-port", "1"], ["--master-port", "2"]),
    ],
)
def test_length_and_outputs_are_left_out(first: list[str], second: list[str]) -> None:
    assert sign("train.py", *first).key == sign("train.py", *second).key


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--batch", "5"], ["--batch", "6"]),
        (["--gradient-accumulation-steps", "1"], ["--gradient-accumulation-steps", "2"]),
        (["--model", "org/name-1b"], ["--model", "org/name-3b"]),
        (["--model", "/models/1b"], ["--model", "/models/3b"]),
        (["--dim-out", "1"], ["--dim-out", "2"]),
        (["--checkpoint-activations", "0"], ["--checkpoint-activations", "1"]),
        (["--compile"], []),
        (["--log", "a", "model"], ["--log", "a", "other"]),
    ],
)
def test_what_may_bring_other_kernels_is_in(first: list[str], second: list[str]) -> None:
    assert sign("train.py", *first).key != sign("train.py", *second).key


def test_scripts_and_configurations_count_by_their_content(tmp_path: Path) -> None:
    # GIVEN a script and a configuration
    script, config = tmp_path / "train.py", tmp_path / "model.yaml"
    script.write_text("one")
    config.write_text("layers: 1")
    before = sign(str(script), "--config", str(config))
    # WHEN they are somewhere else THEN the job is the same
    moved = tmp_path / "moved.py"
    moved.write_text("one")
    assert sign(str(moved), "--config", str(config)).key == before.key
    # WHEN one changes THEN it is another
    config.write_text("layers: 2")
    assert sign(str(script), "--config", str(config)).key != before.key


def test_software_allocator_and_rank_count(tmp_path: Path) -> None:
    # GIVEN a signature
    base = sign("x")
    # THEN each of these makes another
    others = [
        sign("x", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"),
        sign("x", RANK="1", WORLD_SIZE="2"),
        sign("x", SLURM_PROCID="0", SLURM_NTASKS="2"),
        replace(base, torch="2.12.0"),
        replace(base, shim="0.2.0"),
    ]
    assert len({each.key for each in (base, *others)}) == 6
    # AND the order of allocator settings does not matter
    settings = ("a:1,b:2", "b:2,a:1")
    assert len({sign("x", PYTORCH_CUDA_ALLOC_CONF=each).key for each in settings}) == 1


def test_driver_and_devices_are_the_systems(tmp_path: Path) -> None:
    # GIVEN a machine with two GPUs of one model
    for name in ("0000:01:00.0", "0000:02:00.0"):
        gpu = tmp_path / "proc/driver/nvidia/gpus" / name
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.82.07\n")
    # THEN both are in
    signed = sign("x", root=tmp_path)
    assert (signed.driver, signed.devices) == ("580.82.07", ("NVIDIA H200",))


def test_strange_arguments_are_taken_as_they_are() -> None:
    assert sign("x" * 5000 + ".py", "", "-", "--", "=", "\0.py").arguments[1:] == (
        "", "-", "--", "=", "\0.py",
    )  # fmt: skip
