"""The environment of a job, in process and without one."""

import os
from pathlib import Path

import pytest

from transit import launch, libraries, lifetimes
from transit.errors import TransitError
from transit.launch import RunOptions, append_preload
from transit.lifetimes import Lifetimes


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of (empty) installed libraries."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for name in (libraries.SHIM, libraries.SIM_CUDA, libraries.SIM_NCCL):
        (folder / name).touch()
    monkeypatch.setattr(libraries, "library_folder", lambda: folder)
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_simulated_offers_its_driver_and_its_nccl(installed: Path, run_folder: Path) -> None:
    # WHEN a job is prepared for the simulated GPU
    environment = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/theirs"}
    made = launch.prepare(RunOptions(simulated=True), ["true"], environment, run_folder)
    # THEN the driver is the simulated one and NCCL is found first in a private folder
    assert made.simulated
    assert made.environment["TRANSIT_REAL_LIBCUDA"] == str(installed / libraries.SIM_CUDA)
    first, rest = made.environment["LD_LIBRARY_PATH"].split(":")
    assert (Path(first) / "libnccl.so.2").resolve() == installed / libraries.SIM_NCCL
    assert rest == "/theirs"


def test_a_run_inside_of_a_simulated_one_is_simulated(installed: Path, run_folder: Path) -> None:
    outer = launch.prepare(RunOptions(simulated=True), ["true"], {}, run_folder)
    inner_folder = run_folder / "inner"
    inner_folder.mkdir()
    inner = launch.prepare(RunOptions(), ["true"], outer.environment, inner_folder)
    assert inner.simulated
    assert inner.environment["LD_PRELOAD"] == str(installed / libraries.SHIM)


def test_simulated_without_its_libraries_is_refused(installed: Path, run_folder: Path) -> None:
    (installed / libraries.SIM_CUDA).unlink()
    with pytest.raises(TransitError, match="libtransit_sim_cuda"):
        launch.prepare(RunOptions(simulated=True), ["true"], {}, run_folder)


def test_a_missing_shim_leaves_the_job_alone(installed: Path, run_folder: Path) -> None:
    # GIVEN a machine with a driver and a broken installation
    (installed / libraries.SHIM).unlink()
    environment = {"TRANSIT_REAL_LIBCUDA": str(installed / libraries.SIM_CUDA)}
    # WHEN a job is prepared THEN it gets its own environment and a note
    made = launch.prepare(RunOptions(), ["true"], environment, run_folder)
    assert made.environment == environment
    assert made.shim is None
    assert "runs without Transit" in made.notes[0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "/t.so"),
        ("/a.so", "/a.so:/t.so"),
        ("/a.so /b.so", "/a.so:/b.so:/t.so"),
        ("/t.so:/a.so", "/t.so:/a.so"),
    ],
)
def test_preload_is_appended_once(before: str | None, after: str) -> None:
    environment = {} if before is None else {"LD_PRELOAD": before}
    append_preload(environment, Path("/t.so"))
    assert environment["LD_PRELOAD"] == after


def make_job(folder: Path) -> list[str]:
    """A command whose Python has a PyTorch, as far as can be told without importing it."""
    torch = folder / "site/torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    (torch / "version.py").write_text("__version__ = '2.11.0'\ncuda: str | None = '13.0'\n")
    return ["python3", "train.py"]


def test_lifetimes_are_offered_or_named(
    installed: Path, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a job with a PyTorch
    job = make_job(tmp_path)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "site")}
    answers = [Lifetimes(Path("/cache/x.so")), Lifetimes(None, "no compiler")]
    monkeypatch.setattr(lifetimes, "obtain", lambda *_: answers.pop(0))
    simulated = RunOptions(simulated=True)
    # WHEN the observer can be built, and when it cannot
    built = launch.prepare(simulated, job, environment, run_folder)
    (run_folder / "other").mkdir()
    failed = launch.prepare(simulated, job, built.environment, run_folder / "other")
    # THEN it is offered, or one note says why not and nothing stale is left
    assert built.environment["TRANSIT_LIFETIMES"] == "/cache/x.so"
    assert built.notes == []
    assert "TRANSIT_LIFETIMES" not in failed.environment
    assert len(failed.notes) == 1
    assert "no compiler" in failed.notes[0]


def test_paths_that_ld_preload_cannot_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "with space.so"
    library.touch()
    monkeypatch.setenv("TRANSIT_SHIM_PATH", str(library))
    with pytest.raises(TransitError, match="space"):
        libraries.shim_path()
