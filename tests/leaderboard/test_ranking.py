"""The ranking of a leaderboard: means adjusted for seeds, tests of all pairs, groups."""

import random
import statistics

import numpy as np
import pytest
from scipy import stats

from vitpos.leaderboard.ranking import rank
from vitpos.metrics.statistics import holm, paired_difference, t_p_value


def simulated(effects, seeds=(0, 1, 2), noise=0.01, start=0):
    random.seed(start)
    of_seed = {seed: random.gauss(0, 0.05) for seed in seeds}
    return {n: {s: effect + of_seed[s] + random.gauss(0, noise) for s in seeds} for n, effect in effects.items()}


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 30, 78, 101])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.96, -4.2, 12.0])
def test_p_values_agree_with_scipy(t, df):
    assert t_p_value(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-9, abs=1e-14)


def test_holm_multiplies_the_smallest_by_the_count_and_never_falls():
    assert holm([0.04, 0.001, 0.03]) == pytest.approx([0.06, 0.003, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


def test_two_encodings_with_the_same_seeds_give_the_paired_t_test():
    values = simulated({"a": 0.7, "b": 0.68}, seeds=(0, 1, 2, 3))
    ranking, expected = rank(values), paired_difference(values["a"], values["b"])
    gap, half = ranking.difference("a", "b")
    assert ranking.df == 3 and gap == pytest.approx(expected.mean) and half == pytest.approx(expected.half_width)
    p = stats.ttest_rel(list(values["a"].values()), list(values["b"].values())).pvalue
    assert (frozenset("ab") in ranking.significant_pairs) == (p < 0.05)


def test_complete_data_give_plain_means_and_the_variance_of_a_two_way_analysis():
    values = simulated({"a": 0.7, "b": 0.68, "c": 0.5})
    ranking = rank(values)
    assert list(ranking.means) == ["a", "b", "c"] and ranking.df == 4
    for name, by_seed in values.items():
        assert ranking.means[name] == pytest.approx(statistics.fmean(by_seed.values()))
    grand = statistics.fmean(v for by in values.values() for v in by.values())
    of_seed = {s: statistics.fmean(by[s] for by in values.values()) - grand for s in (0, 1, 2)}
    residuals = [v - ranking.means[n] - of_seed[s] for n, by in values.items() for s, v in by.items()]
    assert ranking.std**2 == pytest.approx(sum(r * r for r in residuals) / 4)


def test_a_missing_seed_is_adjusted_for():
    values = simulated({"a": 0.7, "b": 0.7, "c": 0.7, "d": 0.7}, noise=1e-6)
    del values["a"][max(values["a"], key=values["a"].get)]  # the luckiest seed
    means = rank(values).means
    assert statistics.fmean(values["a"].values()) < 0.99 * means["a"] and means["a"] == pytest.approx(
        means["b"], abs=1e-4
    )


def test_lower_is_better_reverses_the_order():
    values = simulated({"a": 0.7, "b": 0.5})
    assert list(rank(values, higher_is_better=False).means) == ["b", "a"]


def test_one_seed_is_not_ranked():
    values = simulated({"a": 0.7, "b": 0.6, "c": 0.5})
    values["c"] = {0: 0.9}
    assert set(rank(values).means) == {"a", "b"}
    assert rank({name: {0: 1.0} for name in "abc"}) is None


def test_encodings_share_a_letter_exactly_if_they_are_not_told_apart():
    effects = {f"e{i}": 0.6 + 0.004 * i for i in range(12)}
    for start in range(5):
        ranking = rank(simulated(effects, noise=0.003, start=start))
        assert 0 < ranking.fraction_significant < 1
        for one in effects:
            for other in effects:
                same = bool(set(ranking.groups[one]) & set(ranking.groups[other]))
                assert same == (frozenset((one, other)) not in ranking.significant_pairs or one == other)
        assert ranking.best[0] == next(iter(ranking.means)) and "a" in ranking.groups[ranking.best[0]]


def test_encodings_without_a_difference_are_rarely_told_apart():
    false = sum(
        bool(rank(simulated(dict.fromkeys("abcdefgh", 0.7), start=start)).significant_pairs) for start in range(200)
    )
    assert false <= 22  # 5 % of 200 is 10; above 22 with a probability of 2e-4


def test_a_prediction_is_that_of_a_fit_without_the_value():
    values = simulated({"a": 0.7, "b": 0.68, "c": 0.5, "d": 0.6}, seeds=(0, 1, 2, 5))
    del values["c"][1]
    rows = [(name, seed, value) for name, by_seed in values.items() for seed, value in by_seed.items()]
    names, seeds = list(values), [0, 1, 2, 5]
    design = np.array([[n == name for name in names] + [s == seed for seed in seeds[1:]] for n, s, _ in rows], float)
    observed = np.array([value for *_, value in rows])
    predictions = rank(values).predictions
    assert list(predictions) == [(name, seed) for name, seed, _ in rows]
    for i, found in enumerate(predictions.values()):
        x, y = np.delete(design, i, 0), np.delete(observed, i)
        coefficients = np.linalg.lstsq(x, y, rcond=None)[0]
        df = len(y) - x.shape[1]
        variance = np.square(y - x @ coefficients).sum() / df * (1 + design[i] @ np.linalg.inv(x.T @ x) @ design[i])
        assert found.value == observed[i] and found.predicted == pytest.approx(design[i] @ coefficients)
        assert found.half_width == pytest.approx(stats.t.ppf(0.975, df) * variance**0.5)


def test_ninety_five_percent_of_the_values_lie_in_their_prediction_intervals():
    rankings = [rank(simulated(dict.fromkeys("abcdef", 0.7), start=start)) for start in range(200)]
    inside = sum(ranking.well_predicted for ranking in rankings) / sum(len(one.predictions) for one in rankings)
    assert 0.93 < inside < 0.97  # the standard error is about 0.004


def test_equal_values_have_no_noise_whatever_their_rounding():
    ranking = rank({name: dict.fromkeys((0, 1, 2), value) for name, value in (("a", 1.1), ("b", 1.1), ("c", 1.3))})
    assert ranking.std == 0 and frozenset("ab") not in ranking.significant_pairs
    assert frozenset("ac") in ranking.significant_pairs


def test_encodings_without_common_seeds_are_not_compared():
    numbers = {seed: 0.7 + 0.01 * seed for seed in range(10)}

    def values(**seeds):
        return {name: {seed: numbers[seed] for seed in of} for name, of in seeds.items()}

    for too_few in (values(a=(0, 1), b=(2, 3)), values(a=(0, 1), b=(1, 2)), values(a=(0, 1, 2), b=(5, 6, 7)), {}):
        assert rank(too_few) is None
    apart = values(a=(0, 1, 2), b=(0, 1, 2), c=(2, 3, 4), stranger=(7, 8, 9))
    assert set(rank(apart).means) == {"a", "b", "c"}
