"""Statistics of repeated runs: medians, Student's t-intervals, ratios taken pairwise."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Two-sided 95 % quantiles of Student's t for 1 … 30 degrees of freedom.
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Where a set of values lies."""

    count: int
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the 95 % interval around it; the borders are None for a single value."""

    count: int
    mean: float
    low: float | None
    high: float | None


def spread(values: Sequence[float]) -> Spread | None:
    """Median and extremes, or None if there are no values."""
    if not values:
        return None
    return Spread(len(values), statistics.median(values), min(values), max(values))


def t_quantile(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t.

    Beyond the table: the normal quantile with the first two terms of its expansion in 1/freedom,
    good to 0.001.
    """
    if freedom < 1:
        raise ValueError("at least one degree of freedom is needed")
    if freedom <= len(T_95):
        return T_95[freedom - 1]
    z = 1.959964
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + (z**3 + z) / (4 * freedom) + second


def interval(values: Sequence[float]) -> Interval | None:
    """Mean with its 95 % t-interval, or None if there are no values."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Interval(1, mean, None, None)
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = t_quantile(len(values) - 1) * error
    return Interval(len(values), mean, mean - half, mean + half)


def paired_ratio(values: dict[int, float], base: dict[int, float]) -> Interval | None:
    """Ratio to a baseline, round by round, over the rounds in which both have a value.

    Runs of one round share the machine's mood (clocks, temperature, neighbours), so their ratio
    spreads less than the ratio of two averages.

    Args:
        values: Value of each round of the configuration.
        base: Value of each round of the baseline.
    """
    common = sorted(values.keys() & base.keys())
    return interval([values[number] / base[number] for number in common])
