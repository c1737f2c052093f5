"""Sizes, budgets and durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.errors import UsageError
from transit.units import (
    AUTO,
    NA,
    Budget,
    BudgetKind,
    fmt_bytes,
    fmt_count,
    fmt_ns,
    parse_budget,
    parse_size,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("62GiB", 62 * GIB),
        ("62G", 62 * GIB),
        ("62gi", 62 * GIB),
        (" 62 GiB ", 62 * GIB),
        ("62GB", 62 * 10**9),
        ("66571993088", 62 * GIB),
        ("512B", 512),
        ("1.5K", 1536),
        ("0.5MiB", 2**19),
        ("0", 0),
    ],
)
def test_size_is_read_as_people_mean_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "1e9", "62XB", "6 2G", "1iB", "1..5G", "0x10", "٣G", "9999999P", "1i"]
)
def test_what_is_no_size_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"size|memory|negative"):
        parse_size(text)


def test_what_is_no_budget_is_refused_with_all_that_would_be() -> None:
    with pytest.raises(UsageError) as refused:
        parse_budget("much")
    assert (
        refused.value.hint
        == "write bytes, or a size such as 62GiB, or a percentage such as 45%, or auto"
    )
    for negative in ("-5GiB", "-5%"):
        with pytest.raises(UsageError, match="is negative"):
            parse_budget(negative)


@given(st.integers(0, 2**63 - 1))
def test_plain_bytes_come_back_exactly(size: int) -> None:
    assert parse_size(str(size)) == size
    assert parse_size(f"{size}B") == size


@given(st.integers(0, 8191), st.sampled_from(["K", "M", "G", "T", "P"]))
def test_all_spellings_of_a_binary_unit_agree(number: int, unit: str) -> None:
    # GIVEN a number with a unit
    sizes = {parse_size(f"{number}{unit}{tail}") for tail in ("", "i", "iB", "ib")}
    # THEN its spellings are one size, and the decimal unit is smaller
    assert len(sizes) == 1
    assert parse_size(f"{number}{unit}B") <= sizes.pop()


@given(st.integers(0, 2**60))
def test_shown_size_reads_back_within_its_rounding(size: int) -> None:
    # GIVEN a size WHEN it is shown and read again
    shown = fmt_bytes(size)
    back = parse_size(shown)
    # THEN it is off by no more than half of the last digit
    unit = parse_size("1" + shown.split()[1])
    assert abs(back - size) <= unit * 0.05 + 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (62 * GIB, "62.0 GiB"),
    ],
)
def test_size_is_shown_with_one_digit(size: int, text: str) -> None:
    assert fmt_bytes(size) == text


def test_unknown_is_not_zero() -> None:
    assert (fmt_bytes(None), fmt_ns(None), fmt_count(None)) == (NA, NA, NA)


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (4200, "4.2 µs"), (1_500_000, "1.5 ms"), (12 * 10**9, "12.0 s")],
)
def test_duration_is_shown_in_the_unit_that_fits(duration_ns: int, text: str) -> None:
    assert fmt_ns(duration_ns) == text


def test_budget_is_bytes_percent_or_auto() -> None:
    assert parse_budget("62GiB") == Budget(BudgetKind.BYTES, 62 * GIB)
    assert parse_budget("45%") == Budget(BudgetKind.PERCENT, 45)
    assert parse_budget("12.5 %") == Budget(BudgetKind.PERCENT, 12.5)
    assert parse_budget("AUTO") == AUTO


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-5%", "%", "all", "0GiB", "62", "31MiB"])
def test_budget_of_nothing_or_too_much_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_budget(text)


@given(st.one_of(st.integers(2**25, 2**53).map(str), st.integers(1, 100).map(lambda n: f"{n}%")))
def test_budget_reaches_the_shim_as_it_was_given(text: str) -> None:
    assert str(parse_budget(text)) == text
    assert parse_budget(str(parse_budget(text))) == parse_budget(text)


@given(st.integers(1, 100), st.integers(0, 2**50))
def test_percent_never_exceeds_the_whole(percent: int, whole: int) -> None:
    assert 0 <= Budget(BudgetKind.PERCENT, percent).bytes_of(whole) <= whole
