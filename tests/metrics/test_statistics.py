"""Confidence intervals and paired differences against tables, SciPy and simulation."""

import math

import pytest
import torch

from tests.references import peer
from vitpos.metrics.statistics import ci_half_width, log_log_slope, paired_difference, t_quantile, wilson_interval


def test_half_width_matches_values_computed_by_hand():
    values = [4.8, 5.1, 5.3, 4.9, 5.4]  # mean 5.1, standard deviation √.065, t of 4 degrees 2.776
    assert ci_half_width(values) == pytest.approx(2.7764451 * math.sqrt(0.065 / 5), rel=1e-6)
    assert ci_half_width([1.0]) == math.inf and ci_half_width([2.0, 2.0]) == 0
    expected = 2.023 * torch.arange(40.0).std().item() / math.sqrt(40)  # t of 39 degrees
    assert ci_half_width(list(range(40))) == pytest.approx(expected, rel=3e-4)


def test_t_quantiles_equal_tables_and_scipy():
    for df, textbook in ((1, 12.706), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980), (1000, 1.962)):
        assert t_quantile(df) == pytest.approx(textbook, abs=6e-4)
    student = peer("scipy.stats").t
    for df in range(1, 500):
        assert t_quantile(df) == pytest.approx(student.ppf(0.975, df), rel=1e-9), df
        assert t_quantile(df, 0.9) == pytest.approx(student.ppf(0.95, df), rel=1e-9), df


@pytest.mark.parametrize("count", [2, 3, 5])
def test_intervals_cover_the_true_mean_95_percent_of_the_time(count):
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(4000, count, generator=generator, dtype=torch.float64)
    covered = [abs(sum(row) / count) <= ci_half_width(row) for row in samples.tolist()]
    assert sum(covered) / 4000 == pytest.approx(0.95, abs=0.012)


def test_differences_are_paired_by_seed():
    ours, theirs = {0: 0.9, 1: 0.8, 5: 0.1}, {1: 0.7, 0: 0.8, 7: 0.0}
    difference = paired_difference(ours, theirs)
    assert difference.mean == pytest.approx(0.1) and difference.seeds == 2 and difference.significant
    assert not paired_difference({0: 0.9}, {0: 0.1}).significant, "one seed gives no interval"
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    assert not paired_difference({0: 1.0, 1: 2.0, 2: 3.0}, {0: 2.0, 1: 2.0, 2: 2.0}).significant


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (3, 7), (7, 7), (170, 1000), (1, 1)])
def test_wilson_intervals_equal_scipys(successes, trials):
    reference = peer("scipy.stats").binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson_interval(successes, trials) == pytest.approx((reference.low, reference.high), abs=1e-6)


def test_the_slope_of_a_power_law_is_its_exponent():
    assert log_log_slope({x: 3 * x**2.5 for x in (64.0, 144.0, 1024.0)}) == pytest.approx(2.5)
    curve = {1.0: 2.0, 2.0: 3.0, 4.0: 9.0}
    expected = peer("numpy").polyfit([0, 1, 2], [math.log2(y) for y in curve.values()], 1)[0]
    assert log_log_slope(curve) == pytest.approx(expected)
    assert math.isnan(log_log_slope({1.0: 2.0, 2.0: 0.0})) and math.isnan(log_log_slope({1.0: 2.0}))
