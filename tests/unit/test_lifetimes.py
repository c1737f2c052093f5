"""Building the allocator-trace observer once, against a made-up PyTorch."""

import os
import subprocess
from pathlib import Path

import pytest

from transit import lifetimes
from transit.interpreter import TorchInstall

SOURCE = '#include <c10/marker.h>\nextern "C" int transit_lifetimes() { return MARKER; }\n'


@pytest.fixture
def torch(tmp_path: Path) -> TorchInstall:
    """A PyTorch of one header and two empty libraries."""
    folder = tmp_path / "site/torch"
    (folder / "include/c10").mkdir(parents=True)
    (folder / "include/c10/marker.h").write_text("#define MARKER 7\n")
    (folder / "lib").mkdir()
    for name in ("c10", "c10_cuda"):
        library = folder / f"lib/lib{name}.so"
        subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", library], check=True)
    return TorchInstall(folder, "2.11.0", "13.0", True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lifetimes.cpp"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_it_is_built_once(torch: TorchInstall, source: Path, environment: dict[str, str]) -> None:
    # WHEN it is asked for twice, the second time without a compiler
    first = lifetimes.obtain(torch, source, environment)
    second = lifetimes.obtain(torch, source, {**environment, "PATH": "/nowhere"})
    # THEN it was built the first time, and nothing else is left in the cache
    assert first.problem is None
    assert first.path is not None
    assert first == second
    assert [path.name for path in first.path.parent.iterdir()] == [first.path.name]


def test_a_user_without_a_home_gets_a_sentence(
    torch: TorchInstall, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a container whose user is only a number
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    # THEN there is no library and no traceback
    built = lifetimes.obtain(torch, source, {"PATH": os.environ["PATH"]})
    assert built.path is None
    assert "no home" in (built.problem or "")


def test_another_torch_or_source_is_another_library(torch: TorchInstall, source: Path) -> None:
    keys = {lifetimes.cache_key(torch, source)}
    keys.add(lifetimes.cache_key(TorchInstall(torch.folder, "2.12.0", "13.0", True), source))
    keys.add(lifetimes.cache_key(TorchInstall(torch.folder, "2.11.0", "13.0", False), source))
    source.write_text(SOURCE + "// changed\n")
    keys.add(lifetimes.cache_key(torch, source))
    assert len(keys) == 4


def test_failures_are_one_sentence(
    torch: TorchInstall, source: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    # GIVEN no source, no compiler, a source that does not compile, a cache that cannot be made
    broken = tmp_path / "broken.cpp"
    broken.write_text("#include <not/there.h>\n")
    (tmp_path / "file").touch()
    attempts = {
        "its source is not installed": (None, environment),
        "no C++ compiler": (source, {**environment, "PATH": "/nowhere"}),
        "not/there.h": (broken, environment),
        "file/transit": (source, {**environment, "XDG_CACHE_HOME": str(tmp_path / "file")}),
    }
    for sentence, (path, variables) in attempts.items():
        # WHEN it is asked for THEN there is none, and one line says why
        made = lifetimes.obtain(torch, path, variables)
        assert made.path is None
        assert sentence in (made.problem or "")
        assert "\n" not in (made.problem or "")


def test_torch_without_cuda_needs_none(torch: TorchInstall, source: Path) -> None:
    cpu = TorchInstall(torch.folder, "2.11.0", None, True)
    assert lifetimes.obtain(cpu, source, {}) == lifetimes.Lifetimes(None)


def test_headers_of_the_jobs_wheels_come_first(torch: TorchInstall, tmp_path: Path) -> None:
    for name in ("nvidia/cu13", "nvidia/cuda_runtime", "triton/backends/nvidia"):
        (torch.site / name / "include").mkdir(parents=True)
    (tmp_path / "toolkit/include").mkdir(parents=True)
    found = lifetimes.include_folders(torch, {"CUDA_HOME": str(tmp_path / "toolkit")})
    ours = [folder for folder in found if folder.is_relative_to(tmp_path)]
    assert [str(folder.relative_to(tmp_path)) for folder in ours] == [
        "site/torch/include",
        "site/nvidia/cu13/include",
        "site/nvidia/cuda_runtime/include",
        "toolkit/include",
        "site/triton/backends/nvidia/include",
    ]
