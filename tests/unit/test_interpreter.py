"""Which Python a command runs, and which PyTorch it has."""

import os
import sys
from pathlib import Path

import pytest

from transit.interpreter import find_interpreter, find_torch, read_torch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of programs, for PATH."""
    programs = {
        "python3.12": "",
        "torchrun": f"#!{tmp_path}/python3.12\n",
        "by-env": "#!/usr/bin/env -S python3.12 -u\n",
        "long": f"#!/bin/sh\n'''exec' \"{tmp_path}/python3.12\" \"$0\" \"$@\"\n' '''\n",
        "script.sh": "#!/bin/bash\n",
        "binary": "\x7fELF",
        "numactl": "\x7fELF",
        "env": "\x7fELF",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["python3.12", "train.py"],
        ["torchrun", "--nproc-per-node", "2", "train.py"],
        ["by-env"],
        ["long"],
        ["numactl", "-N", "0", "python3.12", "train.py"],
        ["env", "A=1", "torchrun", "train.py"],
    ],
)
def test_interpreter_is_found(folder: Path, command: list[str]) -> None:
    assert find_interpreter(command, str(folder)) == folder / "python3.12"


@pytest.mark.parametrize(
    "command",
    [[], ["script.sh"], ["binary", "python3.12"], ["missing"], ["numactl", "binary"], ["numactl"]],
)
def test_a_guess_is_never_made(folder: Path, command: list[str]) -> None:
    assert find_interpreter(command, str(folder)) is None


def make_torch(site: Path, version: str) -> Path:
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_text("raise SystemExit('imported')")
    (site / "torch/version.py").write_text(version)
    return site / "torch"


CUDA = "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n"


def test_torch_is_found_without_importing_it(tmp_path: Path) -> None:
    # GIVEN a PyTorch that would end the process when imported
    torch = make_torch(tmp_path, CUDA)
    # WHEN it is looked for
    found = find_torch(Path(sys.executable), {**os.environ, "PYTHONPATH": str(tmp_path)})
    # THEN its own files say what it is
    assert found is not None
    assert (found.folder, found.version, found.cuda) == (torch, "2.11.0+cu130", "13.0")
    assert found.site == tmp_path


def test_torch_without_cuda(tmp_path: Path) -> None:
    torch = make_torch(tmp_path, "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n")
    found = read_torch(torch)
    assert found is not None
    assert found.cuda is None


@pytest.mark.parametrize(("flag", "abi"), [("0", False), ("1", True)])
def test_abi_is_read_from_torchs_cmake_files(tmp_path: Path, flag: str, abi: bool) -> None:
    torch = make_torch(tmp_path, CUDA)
    (torch / "share/cmake/Torch").mkdir(parents=True)
    (torch / "share/cmake/Torch/TorchConfig.cmake").write_text(
        f'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI={flag}")\n'
    )
    found = read_torch(torch)
    assert found is not None
    assert found.cxx11_abi is abi


def test_no_torch(tmp_path: Path) -> None:
    assert read_torch(tmp_path) is None
    assert find_torch(tmp_path / "no-python") is None
