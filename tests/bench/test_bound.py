"""The bound of a recorded step, against figures worked out by hand."""

import pytest

from bound import Link, Living, NotARecord, Step, bound, durations, main, parse

# 100 bytes live throughout; beside them 0, 40, 20 and 10 at the four launches, which last 1, 2, 3
# and 1 seconds. The last is the optimizer's.
RECORD = """\
S,0,3
B,1000,100
K,0,c,gemm
L,0,0,0,1000+0
A,5,2000,40
L,10,0,0,1000+0,2000+8
F,15,2000
A,16,2000,20
K,1,s,add,with,commas
L,20,1,0,2000+0
F,25,2000
A,26,3000,10
F,27,9999
K,2,o,adam
L,30,2,1,1000+0
S,40,-1
G,0,1000000.000
G,1,3000000.000
G,2,6000000.000
G,3,7000000.000
"""
LINK = Link(out=10, back=10, both=5)


def test_a_record_is_read():
    assert parse(RECORD) == Step((100, 140, 120, 110), (1.0, 2.0, 3.0, 1.0), optimizer=3)


def test_a_budget_that_does_not_bind_costs_nothing():
    # GIVEN a budget of the live peak THEN the bound is the step as it was
    result = bound(parse(RECORD), 140, LINK)
    assert (result.seconds, result.out_bytes, result.in_bytes) == (7.0, 0, 0)


def test_a_binding_budget_by_hand():
    # GIVEN a budget of 100 bytes: 0, 40, 20 and 10 have to be away, and the step ends with 20 away
    # (10 that stayed behind the optimizer, 10 more that left beside it)
    result = bound(parse(RECORD), 100, LINK)
    # THEN launch 0 hides 10 on their way out; launch 1 waits 1 s for the last 10; beside launch 2
    # 20 come back; the other 20 pass the link in 4 s when the optimizer begins
    assert result.seconds == pytest.approx(7 + 1 + 4)
    # AND what leaves, 10 + 10 + 10 + 10, is what comes back, 20 + 20
    assert (result.out_bytes, result.in_bytes) == (pytest.approx(40), pytest.approx(40))


def test_a_step_without_an_optimizer_moves_only_what_does_not_fit():
    # GIVEN the same step without an optimizer's launch
    step = parse(RECORD.replace("K,2,o", "K,2,c"))
    # THEN 10 stay away, 10 leave beside launch 0, and launch 1 waits 2 s for the other 20
    assert step.optimizer == 4
    assert bound(step, 100, LINK).seconds == pytest.approx(7 + 2)


def test_less_budget_is_never_faster():
    step = parse(RECORD)
    times = [bound(step, budget, LINK).seconds for budget in range(140, 0, -10)]
    assert times == sorted(times)


def test_times_of_two_streams_overlap():
    # GIVEN ends that go back in time, and one without a time THEN nothing counts twice
    assert list(durations([2e6, 1e6, None, 5e6])) == [2.0, 0.0, 0.0, 3.0]


def test_a_block_ends_those_that_it_overlaps():
    # GIVEN a segment and a block behind it
    living = Living()
    living.born(100, 50)
    living.born(150, 10)
    # WHEN a block comes to life in the segment THEN the segment's own is gone, the other is not
    living.born(120, 30)
    assert (living.starts, living.total) == ([120, 150], 40)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "S,0,3\nL,x\n", RECORD.replace("S,40,-1\n", ""), "S,0,3\nB,zz,1\n"]
)
def test_other_files_are_refused(text):
    with pytest.raises(NotARecord):
        parse(text)


def test_the_command_line(tmp_path, capsys):
    # GIVEN a record in a file
    path = tmp_path / "a.step"
    path.write_text(RECORD)
    slow = ["--out-gbs", "1e-8", "--in-gbs", "1e-8", "--both-gbs", "5e-9"]
    # WHEN its bound is asked for, with 7 bytes of overhead
    assert main([str(path), "--hbm", "107", "--overhead", "7", *slow]) == 0
    # THEN the figures are those worked out above
    assert capsys.readouterr().out.splitlines() == [
        "4 operations in 7.0000 s, live peak 140 B",
        "live when the optimizer begins: 110 B",
        "     107 B: at least 12.0000 s (58.3% of the resident speed), 40 B out, 40 B in",
    ]
    # AND what is no file, or no size, is one line
    assert main([str(tmp_path / "none")]) == 1
    assert main([str(path), "--hbm", "much"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2
