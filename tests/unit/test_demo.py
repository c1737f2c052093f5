"""What the demonstration reads and promises."""

from pathlib import Path

import pytest

from transit.commands.demo import checks
from transit.demo.training import Training, parse_losses, read_peaks
from transit.errors import TransitError

LINE = "12 7 summary hbm_bytes=0 peak_hbm_bytes={} dram_bytes=0 peak_dram_bytes={} -> 0\n"


def make(
    losses: tuple[str, ...] = ("0x1p+1", "0x1p+0"), peak: int = 50, moves: int = 200
) -> Training:
    return Training(losses, peak, 10, 1, {"offloads": moves // 2, "prefetches": moves // 2})


def test_all_three_promises_hold() -> None:
    assert all(holds for holds, _ in checks(make(peak=100), make(), budget=50))


@pytest.mark.parametrize(
    ("trained", "broken"),
    [
        (make(losses=("0x1p+1", "0x1.0000001p+0")), 0),
        (make(peak=51), 1),
        (make(moves=98), 2),
    ],
)
def test_each_broken_promise_is_named(trained: Training, broken: int) -> None:
    results = checks(make(peak=100), trained, budget=50)
    assert [holds for holds, _ in results] == [index != broken for index in range(3)]


def test_peaks_come_from_the_simulated_drivers_last_line(tmp_path: Path) -> None:
    (tmp_path / "1.truth").write_text("1 7 cuInit -> 0\n" + LINE.format(100, 30))
    (tmp_path / "2.truth").write_text(LINE.format(0, 0))
    assert read_peaks(tmp_path) == (100, 30)


@pytest.mark.parametrize("logs", [[], ["garbage\n"], [LINE.format(1, 0), LINE.format(2, 0)]])
def test_doubtful_logs_are_refused(tmp_path: Path, logs: list[str]) -> None:
    for number, text in enumerate(logs):
        (tmp_path / f"{number}.truth").write_text(text)
    with pytest.raises(TransitError):
        read_peaks(tmp_path)


def test_losses_are_compared_as_written() -> None:
    assert parse_losses('noise\n{"losses_hex": ["0x1p+1"]}\n') == ("0x1p+1",)


@pytest.mark.parametrize(
    "output", ["", "noise", "[]", "{}", '{"losses_hex": []}', '{"losses_hex": ["x"]}']
)
def test_a_training_without_losses_is_refused(output: str) -> None:
    with pytest.raises(TransitError):
        parse_losses(output)
