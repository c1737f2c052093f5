"""Stub libraries, built once."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))
sys.path.append(str(HERE.parent / "shim"))

from shim_build import cuda_include  # noqa: E402

import stub_libraries  # noqa: E402


@pytest.fixture(scope="session")
def stub_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that calls every function of the symbol table, twice: it succeeds, and it fails."""
    return stub_libraries.build(tmp_path_factory.mktemp("stubs"), cuda_include())


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that makes calls in awkward ways."""
    return stub_libraries.build_scenarios(tmp_path_factory.mktemp("scenarios"))
