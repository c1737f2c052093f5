"""The table and the object after a run."""

import json
from dataclasses import replace

import pytest

from transit.stats import NamedCount, ProcessStats
from transit.summary import MAX_ROWS, RunReport, to_json, to_lines


def make(
    *processes: ProcessStats, simulated: bool = False, notes: tuple[str, ...] = ()
) -> RunReport:
    return RunReport(0, 5, simulated, True, processes, notes)


def process(rank: int = 0, *named: NamedCount, **counters: int) -> ProcessStats:
    return ProcessStats(100 + rank, rank, True, counters, named)


def test_every_line_of_a_simulated_run_says_so() -> None:
    lines = to_lines(make(process(hbm_peak_bytes=1, wait_claim_ns=5), simulated=True))
    assert lines
    assert all(line.startswith("transit (simulated): ") for line in lines)


def test_columns_are_aligned_and_lines_short() -> None:
    big = {"hbm_peak_bytes": 10 * 2**30, "offload_bytes": 123 * 2**30, "wait_claim_ns": 10**10}
    lines = to_lines(make(process(0, hbm_peak_bytes=1), process(11, **big), simulated=True))
    assert len({len(line) for line in lines[:3]}) == 1
    assert len(lines[0]) <= 120


def test_many_names_are_cut_short() -> None:
    named = [NamedCount("unknown", f"kernel{number}", number) for number in range(1, 9)]
    text = "\n".join(to_lines(make(process(0, *named, unknown_launches=36))))
    assert "36 launches of unknown layout:\ntransit:     kernel8 × 8, kernel7 × 7" in text
    assert text.endswith("kernel4 × 4 and 3 more")


def test_many_processes_are_cut_short() -> None:
    lines = to_lines(make(*(process(rank) for rank in range(MAX_ROWS + 4))))
    assert lines[-1] == "transit: 4 more processes are only in --json"


def test_verification_has_a_verdict() -> None:
    good = "\n".join(to_lines(make(process(unmapped_bytes_verified=2**30))))
    assert "verification passed" in good
    crashed = "\n".join(to_lines(replace(make(process(unmapped_bytes_verified=1)), exit_code=139)))
    assert "verification did not come to its end" in crashed
    assert "passed" not in crashed
    caught = NamedCount("hidden", "sneaky", 3)
    bad = "\n".join(to_lines(make(process(0, caught, hidden_accesses=3))))
    assert "VERIFICATION FAILED: 3 hidden accesses: sneaky × 3" in bad


def test_the_budget_that_would_do_is_told_once_with_its_last_figure() -> None:
    # GIVEN the shim's sentence, whose figure is that of the first time, and a later figure
    sentence = NamedCount("warning", "the HBM budget is below what this job uses: try 5MiB", 1)
    short = process(0, sentence, smallest_budget_bytes=2**31 + 1)
    # WHEN the summary is made
    text = "\n".join(to_lines(make(short)))
    # THEN only the later one is in it, rounded up
    assert "try --hbm 2049MiB or more" in text
    assert "5MiB" not in text


@pytest.mark.parametrize(("peak_extents", "told"), [(9, "try --hbm"), (10, "try more --dram")])
def test_more_cpu_memory_is_advised_when_it_was_full(peak_extents: int, told: str) -> None:
    # GIVEN a budget of ten extents and a rest WHEN the job was slow for want of GPU memory THEN
    # more CPU memory is advised if all of them were in use
    extent = 2**25
    budgets = {"dram_budget_bytes": 10 * extent + 5, "extent_bytes": extent}
    short = process(
        0, smallest_budget_bytes=2**31, dram_peak_bytes=peak_extents * extent, **budgets
    )
    assert told in "\n".join(to_lines(make(short)))


@pytest.mark.parametrize(
    ("exit_code", "told"),
    [
        (0, "requests of 1.0 GiB in all fitted only after the job had given back memory"),
        (1, "hold 3.0 GiB together; if the job ended out of memory, give more --dram, or --hbm"),
    ],
)
def test_refused_requests_are_told_by_how_the_job_ended(exit_code: int, told: str) -> None:
    # GIVEN a job that was refused memory WHEN it went on, or ended THEN the sentence fits
    budgets = {"hbm_budget_bytes": 2**30, "dram_budget_bytes": 2**31}
    refused = process(0, refused_bytes=2**30, **budgets)
    report = replace(make(refused), exit_code=exit_code)
    text = " ".join(line.removeprefix("transit:").strip() for line in to_lines(report))
    assert told in text


@pytest.mark.parametrize(
    ("exit_code", "dram_bytes", "counter", "told", "untold"),
    [
        (0, 2**31, "refused_once_bytes", None, "refused"),
        (1, 2**31, "refused_once_bytes", "does not ask again needs more --hbm", "--dram"),
        (130, 2**31, "refused_once_bytes", None, "refused"),
        (1, 0, "refused_bytes", "ended out of memory, give more --hbm", "--dram"),
    ],
)
def test_advice_fits_what_was_short(
    exit_code: int, dram_bytes: int, counter: str, told: str | None, untold: str
) -> None:
    # GIVEN refusals though DRAM had room, or without any DRAM WHEN the job ends, by itself or by a
    # signal THEN only what could help is advised, and nothing where nothing was wrong
    budgets = {"hbm_budget_bytes": 2**30, "dram_budget_bytes": dram_bytes, counter: 2**30}
    report = replace(make(process(0, **budgets)), exit_code=exit_code)
    text = " ".join(line.removeprefix("transit:").strip() for line in to_lines(report))
    assert told is None or told in text
    assert untold not in text


def test_what_several_ranks_have_in_common_is_told_once() -> None:
    warning = NamedCount("warning", "look out", 1)
    lines = to_lines(make(process(0, warning), process(1, warning), process(2)))
    assert lines[4:] == ["transit: ranks 0, 1: warning: look out"]


def test_waits_read_as_a_sentence() -> None:
    lines = to_lines(make(process(wait_frames_ns=10, wait_claim_ns=20, wait_prefetch_ns=30)))
    assert lines[-1] == (
        "transit: rank 0: launches waited 10 ns for an HBM frame, 20 ns for a move to end"
        " and 30 ns for a prefetch"
    )


def test_kernel_names_are_readable_and_lines_stay_short() -> None:
    # GIVEN two instances of one template, and names too many for a line
    adds = [NamedCount("unknown", f"_ZN2at6native3addIL{kind}EEEvT_", 2) for kind in ("i4", "b1")]
    others = [NamedCount("unknown", f"{letter * 50}", 1) for letter in "xyz"]
    # WHEN the summary is made
    lines = to_lines(make(process(0, *adds, *others, unknown_launches=7)))
    # THEN the instances are one, and no line is long
    assert lines[2] == "transit: rank 0: 7 launches of unknown layout:"
    assert lines[3].startswith("transit:     at::native::add × 4, xxx")
    assert max(map(len, lines)) <= 110


def test_pytorchs_refusal_is_answered() -> None:
    report = RunReport(1, 5, False, True, (process(),), (), ("shareIpcHandle",), "run: transit x")
    assert to_lines(report)[-2:] == [
        "transit: PyTorch refused CUDA IPC (shareIpcHandle), which its backend cudaMallocAsync"
        " (--allocator async) does not have",
        "transit: if the job needs that, run: transit x",
    ]
    assert to_json(report)["refused"] == ["shareIpcHandle"]


def test_json_is_complete_and_plain() -> None:
    named = NamedCount("pinned", "ipc", 2)
    document = to_json(make(process(3, named, offloads=7), simulated=True, notes=("n",)))
    assert json.loads(json.dumps(document)) == {
        "schema": "transit.run/1",
        "simulated": True,
        "with_shim": True,
        "exit_code": 0,
        "wall_ns": 5,
        "notes": ["n"],
        "refused": [],
        "verification": {"state": "none"},
        "processes": [
            {
                "pid": 103,
                "local_rank": 3,
                "ended": True,
                "counters": {"offloads": 7},
                "named": {"pinned": [{"name": "ipc", "count": 2}]},
            }
        ],
    }


def test_a_job_without_cuda_is_said() -> None:
    assert to_lines(make()) == ["transit: no process of the job used CUDA through the shim"]
