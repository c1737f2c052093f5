"""The table and the object after a run."""

import json

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
    assert "36 launches with unknown layout: kernel8 × 8" in text
    assert text.endswith("and 3 more")


def test_many_processes_are_cut_short() -> None:
    lines = to_lines(make(*(process(rank) for rank in range(MAX_ROWS + 4))))
    assert lines[-1] == "transit: 4 more processes are only in --json"


def test_verification_has_a_verdict() -> None:
    good = "\n".join(to_lines(make(process(unmapped_bytes_verified=2**30))))
    assert "verification passed" in good
    caught = NamedCount("hidden", "sneaky", 3)
    bad = "\n".join(to_lines(make(process(0, caught, hidden_accesses=3))))
    assert "VERIFICATION FAILED: 3 hidden accesses: sneaky × 3" in bad


def test_out_of_memory_names_the_smallest_budget() -> None:
    refused = process(refused_bytes=2**30, smallest_budget_bytes=2**31)
    text = "\n".join(to_lines(make(refused)))
    assert "1.0 GiB answered with out of memory; the smallest sufficient budget is 2.0 GiB" in text


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
