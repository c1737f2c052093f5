"""`transit doctor`: its shape, its states, its codes."""

import json
import platform
from pathlib import Path

import pytest
from click.testing import CliRunner

from transit import driver
from transit.commands import doctor
from transit.doctor.base import Check, State, ok, problem, warning
from transit.doctor.gpu import check_driver, check_features
from transit.doctor.memory import check_cgroup, check_free, check_memlock, check_numa
from transit.doctor.system import check_bpf
from transit.dram import GIB, HostMemory
from transit.driver import DeviceFeatures, DriverFacts
from transit.errors import ExitCode, Unsupported


def test_json_shape() -> None:
    # WHEN this machine is asked
    result = CliRunner().invoke(doctor.command, ["--json"])
    document = json.loads(result.output)
    # THEN every line has the four keys, a known state, and a fix unless it is fine
    assert document["schema"] == "transit.doctor/1"
    for check in document["checks"]:
        assert set(check) == {"name", "state", "found", "fix"}
        assert check["state"] in ("ok", "warning", "problem")
        assert (check["fix"] is None) == (check["state"] == "ok")
    names = [check["name"] for check in document["checks"]]
    for name in ("platform", "python", "container", "bpf", "driver", "host memory", "memory limit",
                 "locked memory", "numa", "shim", "pytorch", "nccl", "c++ compiler",
                 "bcc"):  # fmt: skip
        assert name in names
    problems = [check for check in document["checks"] if check["state"] == "problem"]
    assert document["ok"] is not bool(problems)
    assert result.exit_code == (1 if problems else 0)


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([ok("a", "fine"), warning("b", "slow", "faster")], ExitCode.OK),
        ([ok("a", "fine"), problem("b", "broken", "mend it")], ExitCode.FAILED),
    ],
)
def test_only_a_problem_fails(
    checks: list[Check], code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "all_checks", lambda: checks)
    result = CliRunner().invoke(doctor.command, [])
    assert result.exit_code == code
    assert all(check.found in result.output for check in checks)
    assert all(check.fix in result.output for check in checks if check.fix)


def test_other_machines_are_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    result = CliRunner().invoke(doctor.command, [])
    assert isinstance(result.exception, Unsupported)
    assert result.exception.exit_code == 5


@pytest.mark.parametrize(
    ("release", "capable", "answers", "state"),
    [
        ("6.6.0-1-amd64", True, True, State.OK),
        ("6.18.44", False, True, State.WARNING),
        ("6.18.44", True, False, State.WARNING),
        ("6.5.19", True, True, State.WARNING),
        ("strange", True, True, State.WARNING),
    ],
)
def test_bpf_line(release: str, capable: bool, answers: bool, state: State) -> None:
    assert check_bpf(release, capable, answers).state is state


GOOD = DeviceFeatures(True, True, 0)


@pytest.mark.parametrize(
    ("facts", "state", "text"),
    [
        (DriverFacts(0, "13.0", (GOOD,)), State.OK, "580.1, CUDA 13.0, /lib/libcuda.so.1"),
        (DriverFacts(0, "13.0", ()), State.PROBLEM, "no GPU"),
        (DriverFacts(34), State.PROBLEM, "stub"),
        (DriverFacts(999), State.PROBLEM, "error 999"),
    ],
)
def test_driver_line(facts: DriverFacts, state: State, text: str) -> None:
    check = check_driver("/lib/libcuda.so.1", facts, "580.1")
    assert check.state is state
    assert text in check.found


def test_features_line() -> None:
    assert check_features(0, GOOD).state is State.OK
    check = check_features(1, DeviceFeatures(True, None, None))
    assert check.state is State.PROBLEM
    assert "HOST_NUMA" in check.found


def test_memory_lines() -> None:
    # GIVEN a container of 16 GiB, 12 used, for a user who may lock 8 MiB
    memory = HostMemory(512 * GIB, 400 * GIB, 16 * GIB, 2 * GIB, 8 * 2**20)
    # THEN each limit that binds is a warning
    assert check_cgroup(memory).state is State.WARNING
    assert check_memlock(memory).state is State.WARNING
    assert check_free(memory).state is State.OK
    # AND a free host has none
    free = HostMemory(512 * GIB, 400 * GIB)
    assert {check_cgroup(free).state, check_memlock(free).state} == {State.OK}
    assert check_free(HostMemory(8 * GIB, 2 * GIB)).state is State.WARNING


def test_numa_line(tmp_path: Path) -> None:
    for name in ("node0", "node1", "possible"):
        (tmp_path / name).mkdir()
    assert "[0, 1]" in check_numa(tmp_path).found


def test_driver_is_asked_in_another_process(tmp_path: Path) -> None:
    # GIVEN files that are no driver
    (tmp_path / "libcuda.so.1").write_text("text")
    # THEN asking them says so, without harm to us
    assert driver.ask_driver(tmp_path / "libcuda.so.1") is None
    assert driver.find_driver({"TRANSIT_REAL_LIBCUDA": str(tmp_path / "none")}) is None
    given = str(tmp_path / "libcuda.so.1")
    assert driver.find_driver({"TRANSIT_REAL_LIBCUDA": given}) == Path(given)


def test_driver_answers_become_facts(harmless_library: Path) -> None:
    # A library without cuInit makes the child fail, not us.
    assert driver.ask_driver(harmless_library) is None
