"""Statistics of repeated runs."""

import pytest

from spread import T_95, Spread, interval, paired_ratio, spread, t_quantile


def test_spread_of_values():
    # GIVEN an even number of values
    # WHEN
    result = spread([4.0, 1.0, 3.0, 2.0])
    # THEN the median lies between the middle two
    assert result == Spread(count=4, median=2.5, low=1.0, high=4.0)


def test_nothing_has_no_spread():
    # GIVEN no value THEN there is neither spread nor interval
    assert spread([]) is None
    assert interval([]) is None


def test_interval_of_known_values():
    # GIVEN five values with mean 3 and standard error sqrt(0.5)
    # WHEN
    result = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    # THEN the half width is t(4) times that
    assert result.mean == 3.0
    assert result.high - result.mean == pytest.approx(2.776 * 0.5**0.5)
    assert result.mean - result.low == pytest.approx(2.776 * 0.5**0.5)


def test_single_value_has_no_borders():
    # GIVEN one value THEN its interval is unknown, not zero
    result = interval([2.0])
    assert (result.mean, result.low, result.high) == (2.0, None, None)


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.706), (10, 2.228), (30, 2.042)])
def test_quantiles_of_the_table(freedom, expected):
    # GIVEN degrees of freedom in the table THEN its value is returned
    assert t_quantile(freedom) == expected


@pytest.mark.parametrize(("freedom", "expected"), [(31, 2.0395), (60, 2.0003), (120, 1.9799)])
def test_quantiles_beyond_the_table(freedom, expected):
    # GIVEN more degrees of freedom THEN the approximation matches published tables
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-3)


def test_quantiles_fall():
    # GIVEN the table THEN it falls, across its end too
    assert list(T_95) == sorted(T_95, reverse=True)
    assert t_quantile(30) > t_quantile(31) > t_quantile(1000) > 1.9599


def test_no_quantile_without_freedom():
    # GIVEN no degree of freedom WHEN asked THEN it refuses
    with pytest.raises(ValueError):
        t_quantile(0)


def test_ratio_is_taken_within_rounds():
    # GIVEN a machine that slows down, and a configuration always at 90 % of the baseline
    base = {0: 100.0, 1: 50.0, 2: 25.0}
    values = {0: 90.0, 1: 45.0, 2: 22.5}
    # WHEN
    result = paired_ratio(values, base)
    # THEN the ratio is exact although the values spread widely
    assert result.mean == pytest.approx(0.9)
    assert result.high - result.low == pytest.approx(0.0)


def test_ratio_leaves_out_rounds_that_failed():
    # GIVEN rounds in which one of the two failed
    # WHEN THEN only the common round counts
    assert paired_ratio({0: 9.0, 2: 9.0}, {1: 10.0, 2: 10.0}).count == 1
    assert paired_ratio({0: 9.0}, {1: 10.0}) is None
