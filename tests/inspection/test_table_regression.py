"""Regression of positions on vectors: theory of noisy planes, scikit-learn, degenerate tables."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspection.tables import DEGENERATE, GRID, mean_absolute, noise, plane, variance
from tests.references import peer
from vitpos.errors import InputError
from vitpos.inspection.table import baseline_tables
from vitpos.inspection.table_regression import LINEAR, penalty_grid, regression
from vitpos.inspection.table_stats import center, flatten_table, grid_coordinates
from vitpos.patches import seeded_permutations

grids = st.tuples(st.integers(1, 6), st.integers(1, 6))


def finite(numbers):
    return all(number is not None and math.isfinite(number) for number in numbers)


def expected_variance(sigma, width, grid, axis):
    """Variance of a linear fit's error in row or column v of a held-out position of a noisy plane, from n others.

    Along the axis the vectors contain t = v + σz. With few dimensions the variance of v given t is inflated by
    (n + 1)(n − 2) / n / (n − D − 2), as for normal vectors. With more dimensions than positions, the minimum-norm solution
    predicts a · t with a = S / (S + σ² D), S = n · variance of v, and interpolates the remainder by the noise of the other
    dimensions, which inflates the variance by D / (D − n).
    """
    n, own = 0.8 * grid[0] * grid[1], variance(grid[axis])
    if width < n / 4:
        return own * sigma**2 / (own + sigma**2) * (n + 1) * (n - 2) / n / (n - width - 2)
    a = n * own / (n * own + sigma**2 * width)
    return (own * (1 - a) ** 2 + (a * sigma) ** 2) * width / (width - n)


@pytest.mark.parametrize(("grid", "width", "sigma"), [((15, 24), 8, 0.5), ((11, 16), 768, 0.2), ((16, 11), 768, 0.5)])
def test_errors_match_the_theory_of_a_noisy_plane(grid, width, sigma):
    found = regression(plane(grid, width, sigma), shuffles=3).methods
    expected = [expected_variance(sigma, width, grid, axis) for axis in (0, 1)]
    mae = sum(map(mean_absolute, expected)) / 2
    r2 = 1 - (expected[0] / variance(grid[0]) + expected[1] / variance(grid[1])) / 2
    for method in LINEAR:
        assert found[method]["grid_mae"] == pytest.approx(mae, rel=0.1), method
        assert 1 - found[method]["grid_r2"] == pytest.approx(1 - r2, rel=0.2), method
        assert found[method]["grid_offset_mae"] == pytest.approx(mae * math.sqrt(2), rel=0.1), (
            "difference of two independent errors"
        )
        index = mean_absolute(grid[1] ** 2 * expected[0] + expected[1])  # index = columns · row + column
        assert found[method]["index_mae"] == pytest.approx(index, rel=0.15), method


def test_positions_cannot_be_predicted_from_noise_but_from_sinusoids():
    table = noise((8, 11), 128, seed=5)
    compared = baseline_tables(table)
    for one in (table, compared["noise"]):
        found = regression(one, shuffles=3).methods
        assert -0.2 < found["ridge"]["grid_r2"] < 0.05 and -0.2 < found["ridge"]["index_r2"] < 0.05
        assert found["minimum_norm"]["grid_r2"] < found["ridge"]["grid_r2"], "it has no penalty"
    sinusoids = regression(compared["sin_cos"], shuffles=3).methods
    assert all(sinusoids[method]["grid_r2"] > 0.9999 for method in LINEAR)


@pytest.mark.parametrize(("grid", "width"), [((6, 9), 100), ((6, 9), 12), ((14, 3), 37), ((5, 8), 32)])
def test_minimum_norm_equals_scikit_learns_linear_regression(grid, width):
    linear, selection = peer("sklearn.linear_model"), peer("sklearn.model_selection")
    table = plane(grid, width, 0.7)
    x, y = table.flatten(0, 1).numpy(), grid_coordinates(grid).numpy()
    folds, shuffles = 5, 4
    expected = {"grid": [], "index": []}
    for order in seeded_permutations(shuffles, len(x), seed=3).numpy():
        for name, target in (("grid", y), ("index", y @ [grid[1], 1])):
            errors = selection.cross_val_score(
                linear.LinearRegression(), x[order], target[order], cv=folds, scoring="neg_mean_absolute_error"
            )
            expected[name].append(-errors.mean())
    found = regression(table, methods=("minimum_norm",), shuffles=shuffles, seed=3).methods["minimum_norm"]
    for name, errors in expected.items():
        errors = torch.tensor(errors)
        assert found[f"{name}_mae"] == pytest.approx(errors.mean().item(), rel=1e-6)
        assert found[f"{name}_mae_std"] == pytest.approx(errors.std(correction=0).item(), rel=1e-4)


@pytest.mark.parametrize(("grid", "width"), [((4, 7), 40), ((7, 5), 6), ((17, 24), 5)])
def test_ridge_equals_scikit_learns_nested_grid_search(grid, width):
    linear, selection = peer("sklearn.linear_model"), peer("sklearn.model_selection")
    table = plane(grid, width, 1.5)
    x, y = flatten_table(table), grid_coordinates(grid)
    order = seeded_permutations(1, len(x), seed=2)[0]
    scale = center(x).square().sum() / len(x)
    search = selection.GridSearchCV(
        linear.Ridge(solver="svd"),
        {"alpha": (penalty_grid(len(x)) * scale).tolist()},
        scoring=lambda model, some, truth: -((model.predict(some) - truth) ** 2).sum(),
        cv=Contiguous(),
    )
    errors = selection.cross_validate(
        search,
        x[order].numpy(),
        y[order].numpy(),
        cv=selection.KFold(5),
        scoring="neg_mean_absolute_error",
        return_train_score=True,
    )
    errors = {part: -errors[f"{part}_score"].mean() for part in ("test", "train")}
    found = regression(table, methods=("ridge",), shuffles=1, seed=2).methods["ridge"]
    assert found["grid_mae"] == pytest.approx(errors["test"], rel=1e-5)
    assert found["grid_train_mae"] == pytest.approx(errors["train"], rel=1e-4)


class Contiguous:
    """Five contiguous folds of nearly equal length."""

    def split(self, x, y=None, groups=None):
        part = torch.arange(len(x)) * 5 // len(x)
        return [((part != n).nonzero()[:, 0].numpy(), (part == n).nonzero()[:, 0].numpy()) for n in range(5)]

    def get_n_splits(self, x=None, y=None, groups=None):
        return 5


@pytest.mark.parametrize("method", ["svm", "mlp"])
def test_svm_and_mlp_predict_positions_of_a_plane_but_not_of_noise(method):
    peer("sklearn.svm")
    signal, none = (
        regression(table, methods=(method,), folds=3, shuffles=1).methods[method]
        for table in (plane((5, 8), 16, 0.1), noise((5, 8), 16))
    )
    assert none["grid_r2"] < 0.2 < signal["grid_r2"] and signal["index_mae"] < none["index_mae"]


def test_training_error_reveals_memorization():
    peer("sklearn.svm")
    found = regression(noise((5, 8), 64), methods=("ridge", "minimum_norm", "mlp"), folds=4, shuffles=1).methods
    assert found["minimum_norm"]["grid_train_mae"] < 1e-9 < 1 < found["minimum_norm"]["grid_mae"]
    assert found["mlp"]["index_train_mae"] < 1 < 8 < found["mlp"]["index_mae"]
    few = regression(plane((12, 15), 3, 0.5), shuffles=2).methods["minimum_norm"]
    assert few["grid_train_mae"] == pytest.approx(few["grid_mae"], rel=0.1), "three dimensions cannot memorize"


def test_regressions_of_large_tables_are_subsampled_and_report_it():
    table = plane((32, 66), 4, 0.3)
    found = regression(table)
    assert found.subsampled == "every 2nd row and column" and not regression(plane()).subsampled
    expected = (mean_absolute(0.3**2) * 2) / 2
    assert found.methods["ridge"]["grid_mae"] == pytest.approx(expected, rel=0.1), "in patches of the whole table"
    assert found.methods["ridge"]["index_mae"] == pytest.approx(mean_absolute((66**2 + 1) * 0.3**2), rel=0.1)
    thrice = regression(table, shuffles=3).methods
    assert thrice["ridge"] == pytest.approx(found.methods["ridge"], rel=1e-6), "2,000 positions in total"


def test_invalid_regression_options_are_rejected():
    table = noise((3, 4), 5)
    for options in ({"methods": ("rigde",)}, {"folds": 1}, {"shuffles": 0}):
        with pytest.raises(InputError, match="choose from ridge, minimum_norm, svm, mlp"):
            regression(table, **options)


def test_regressions_do_not_depend_on_the_scale_and_repeat_for_a_seed():
    table = plane(GRID, 32, 0.5)
    first = regression(table, shuffles=2).methods
    for other in (regression(table, shuffles=2), regression(1e-30 * table, shuffles=2)):
        for method in LINEAR:
            assert other.methods[method] == pytest.approx(first[method], rel=1e-6)
    assert regression(table, shuffles=2, seed=1).methods != first


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_have_a_regression_or_a_reason(name):
    found = regression(DEGENERATE[name], shuffles=2)
    if name in ("one position", "two positions"):
        assert not found.methods and "too few" in found.reason
    else:
        assert all(finite(numbers.values()) for numbers in found.methods.values()) and len(found.methods) == 2
    if name in ("zeros", "constant"):
        assert all(numbers["grid_r2"] <= 0 for numbers in found.methods.values())
    assert bool(found.reason) == (name in ("one position", "two positions", "zeros", "constant"))


@given(grid=grids, width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_regressions_accept_any_grid(grid, width, seed):
    table = noise(grid, width, seed)
    found = regression(table, shuffles=1, seed=seed)
    assert bool(found.reason) == (grid[0] * grid[1] < 4)
    assert all(finite(numbers.values()) for numbers in found.methods.values())
    for other in baseline_tables(table).values():
        assert other.shape[:2] == grid and 0 <= other.shape[2] - width < 4
