"""Bit-exact comparison of losses."""

import json
import math

import pytest

from compare_losses import main

LOSSES = [6.25, 6.125, 6.0625]


@pytest.fixture
def write_run(tmp_path):
    """Writes the JSON of a run and returns its path."""

    def write(name, losses=LOSSES, first_step=0, checksum="00ff", ranks=1):
        content = {
            "first_step": first_step,
            "losses_hex": [[loss.hex() for loss in losses]] * ranks,
            "checksums": [checksum] * ranks,
        }
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return str(path)

    return write


def test_equal_runs(write_run, capsys):
    # GIVEN three equal runs
    paths = [write_run(name) for name in ("a.json", "b.json", "c.json")]
    # WHEN THEN
    assert main(paths) == 0
    assert capsys.readouterr().out.count("equal to a.json over 3 steps") == 2


def test_last_bit_counts(write_run, capsys):
    # GIVEN a run whose second loss is off by one unit in the last place
    near = [LOSSES[0], math.nextafter(LOSSES[1], 7), LOSSES[2]]
    # WHEN THEN the step is named
    assert main([write_run("a.json"), write_run("b.json", near)]) == 1
    assert "first at step 1, rank 0" in capsys.readouterr().out


def test_resumed_run_is_compared_where_it_overlaps(write_run, capsys):
    # GIVEN a run resumed at step 1
    resumed = write_run("b.json", LOSSES[1:], first_step=1)
    # WHEN THEN
    assert main([write_run("a.json"), resumed]) == 0
    assert "over 2 steps" in capsys.readouterr().out


def test_difference_is_reported_as_a_step_of_the_job(write_run, capsys):
    # GIVEN a resumed run that differs in its first loss
    resumed = write_run("b.json", [7.0, LOSSES[2]], first_step=1)
    # WHEN THEN
    assert main([write_run("a.json"), resumed]) == 1
    assert "step 1" in capsys.readouterr().out


def test_states_count_too(write_run, capsys):
    # GIVEN equal losses but other parameters at the end
    # WHEN THEN
    assert main([write_run("a.json"), write_run("b.json", checksum="0100")]) == 1
    assert "states differ" in capsys.readouterr().out


def test_states_after_different_steps_are_not_compared(write_run):
    # GIVEN a shorter run, which has other parameters at its end
    short = write_run("b.json", LOSSES[:2], checksum="0100")
    # WHEN THEN
    assert main([write_run("a.json"), short]) == 0


@pytest.mark.parametrize("other", [{"first_step": 3}, {"ranks": 2}])
def test_nothing_to_compare(write_run, other):
    # GIVEN runs without a common step, or of different sizes
    # WHEN THEN that is no success
    assert main([write_run("a.json"), write_run("b.json", **other)]) == 2


def test_a_single_run_is_a_mistake(write_run):
    # GIVEN one file WHEN THEN
    assert main([write_run("a.json")]) == 2
