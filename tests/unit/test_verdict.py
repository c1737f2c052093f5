"""Verdicts of verification runs: drawn, kept, recalled, told."""

import json
import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stats_files import encode

from transit import verdict
from transit.signature import Signature
from transit.stats import NamedCount, ProcessStats
from transit.verdict import Verdict

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SIGNATURE = Signature("python", ("x",), "2.11", "580", (), "0.1.0", (), "0 of 1")
GOOD = {"steps": 3, "managed_peak_bytes": 200, "unmapped_bytes_verified": 150}
CAUGHT = NamedCount("hidden", "_ZN4evil6sneakyEPf", 1)
Start = Callable[..., subprocess.Popen[str]]


def process(*named: NamedCount, **counters: int) -> ProcessStats:
    return ProcessStats(1, 0, True, counters, named)


def test_a_run_that_ended_well_passes() -> None:
    # GIVEN two processes, one of them without CUDA WHEN the run ended well
    found = verdict.conclude([process(**GOOD), process()], 0, NOW)
    # THEN
    assert found == Verdict("2026-03-04T05:06:07Z", 3, 200, 150, 0)
    assert found.share == 0.75
    assert not found.failed


def test_a_hidden_access_fails_whatever_became_of_the_job() -> None:
    found = verdict.conclude([process(CAUGHT, hidden_accesses=1, **GOOD)], 1, NOW)
    assert found is not None
    assert found.failed
    assert found.hidden == (CAUGHT,)


@pytest.mark.parametrize(("counters", "code"), [(GOOD, 1), ({"steps": 3}, 0)])
def test_what_proves_nothing_is_no_verdict(counters: dict[str, int], code: int) -> None:
    assert verdict.conclude([process(**counters)], code, NOW) is None
    assert "proves nothing" in (verdict.settle(SIGNATURE, None, {}).note or "")


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    # GIVEN a verdict that is kept
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    found = verdict.conclude([process(CAUGHT, hidden_accesses=2, **GOOD)], 0, NOW)
    assert "is kept" in (verdict.settle(SIGNATURE, found, environment).note or "")
    # THEN it is found again, alone in its folder, by this signature only
    assert verdict.recall(SIGNATURE, environment) == verdict.Verification(found)
    assert len(list((tmp_path / "transit/verified").iterdir())) == 1
    other = Signature("python", ("y",), "2.11", "580", (), "0.1.0", (), "0 of 1")
    assert verdict.recall(other, environment) == verdict.Verification()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"schema": "transit.verified/2"}', "[" * 10**5, b"\xff\xfe"],
)
def test_what_is_no_record_is_ignored_with_a_note(tmp_path: Path, text: str | bytes) -> None:
    # GIVEN a record's file that holds something else
    place = tmp_path / "transit/verified"
    place.mkdir(parents=True)
    data = text if isinstance(text, bytes) else text.encode()
    (place / f"{SIGNATURE.key}.json").write_bytes(data)
    # WHEN it is looked for THEN there is a note and no verdict
    recalled = verdict.recall(SIGNATURE, {"XDG_STATE_HOME": str(tmp_path)})
    assert recalled.verdict is None
    assert "is ignored" in (recalled.note or "")


@given(
    st.sampled_from(["steps", "hidden_accesses", "hidden", "verified_at", "state", "schema"]),
    st.one_of(st.none(), st.integers(max_value=-1), st.text(), st.lists(st.integers(), min_size=1)),
)
def test_a_changed_field_is_never_believed(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    # GIVEN a good record with one wrong field
    folder = tmp_path_factory.mktemp("state")
    environment = {"XDG_STATE_HOME": str(folder)}
    verdict.settle(SIGNATURE, verdict.conclude([process(**GOOD)], 0, NOW), environment)
    path = folder / f"transit/verified/{SIGNATURE.key}.json"
    document = json.loads(path.read_text())
    document[field] = value
    path.write_text(json.dumps(document))
    # THEN it is as if there were none, or empty text where there is nothing to tell
    recalled = verdict.recall(SIGNATURE, environment)
    assert recalled.verdict is None or (field, value) == ("hidden", "")


def test_a_pipe_in_place_of_a_record_does_not_hang(tmp_path: Path) -> None:
    place = tmp_path / "transit/verified"
    place.mkdir(parents=True)
    os.mkfifo(place / f"{SIGNATURE.key}.json")
    assert verdict.recall(SIGNATURE, {"XDG_STATE_HOME": str(tmp_path)}).verdict is None


def test_a_folder_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "transit").write_text("a file")
    found = verdict.conclude([process(**GOOD)], 0, NOW)
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert "the verdict is not kept" in (verdict.settle(SIGNATURE, found, environment).note or "")
    assert verdict.recall(SIGNATURE, environment).verdict is None


def test_a_user_without_a_home_has_no_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    found = verdict.conclude([process(**GOOD)], 0, NOW)
    assert "no home" in (verdict.settle(SIGNATURE, found, {}).note or "")
    assert verdict.recall(SIGNATURE, {}) == verdict.Verification()


def run_job(transit: Start, tmp_path: Path, options: tuple[str, ...], code: int = 0) -> str:
    script = f"cp {tmp_path}/1.stats $TRANSIT_RUN_DIR; exit {code}"
    child = transit("run", *options, "--", "sh", "-c", script, XDG_STATE_HOME=str(tmp_path / "s"))
    _, errors = child.communicate(timeout=20)
    assert child.returncode == code
    return errors


def test_later_runs_are_told_of_a_pass(transit: Start, tmp_path: Path) -> None:
    # GIVEN a job that was verified
    (tmp_path / "1.stats").write_bytes(encode(GOOD))
    assert "not verified" not in run_job(transit, tmp_path, ())
    assert "the verdict is kept" in run_job(transit, tmp_path, ("--verify",))
    # WHEN it runs again, with another budget
    errors = run_job(transit, tmp_path, ("--hbm", "1GiB", "--json", f"{tmp_path}/out.json"))
    # THEN people and programs are told
    assert "no hidden access in 3 steps, 75 % of the managed memory unmapped" in errors
    told = json.loads((tmp_path / "out.json").read_text())["verification"]
    assert (told["state"], told["steps"], told["unmapped_share"]) == ("passed", 3, 0.75)


def test_later_runs_are_warned_of_a_failure_before_and_after(
    transit: Start, tmp_path: Path
) -> None:
    # GIVEN a job whose verification caught a kernel, in the middle of which it died
    caught = [("hidden", CAUGHT.name, 1)]
    (tmp_path / "1.stats").write_bytes(encode({**GOOD, "hidden_accesses": 1}, caught))
    assert "VERIFICATION FAILED" in run_job(transit, tmp_path, ("--verify",))
    # WHEN it runs again
    (tmp_path / "1.stats").write_bytes(encode(GOOD))
    errors = run_job(transit, tmp_path, ())
    # THEN the kernel is named before it starts, and at the end
    assert errors.count("VERIFICATION OF THIS JOB FAILED") == 2
    assert errors.count("evil::sneaky × 1") == 2


def test_a_verification_that_ended_badly_keeps_what_was_known(
    transit: Start, tmp_path: Path
) -> None:
    (tmp_path / "1.stats").write_bytes(encode(GOOD))
    assert "proves nothing" in run_job(transit, tmp_path, ("--verify",), code=1)
    assert "verified: run it once" in run_verbose(transit, tmp_path)


def run_verbose(transit: Start, tmp_path: Path) -> str:
    child = transit("-v", "run", "--", "true", XDG_STATE_HOME=str(tmp_path / "s"))
    return child.communicate(timeout=20)[1]
