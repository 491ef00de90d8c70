"""Numbers of a table of position vectors: on tables whose numbers are known, against scikit-learn, on hopeless tables."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.references import peer
from tests.tables import GRID, mean_absolute, noise, plane, variance
from vitpos.errors import UserError
from vitpos.inspection.ridge import penalties
from vitpos.inspection.spectrum import spectrum
from vitpos.inspection.table_regression import LINEAR, baselines, regression
from vitpos.inspection.table_stats import centred, coordinates, taken, thinned, vectors
from vitpos.patches import permutations

HOPELESS = {
    "zeros": torch.zeros(3, 4, 5),
    "all the same": torch.full((4, 3, 5), 0.1),
    "a row": noise((1, 9), 4),
    "a column": noise((9, 1), 4),
    "one column of width 1": noise((7, 1), 1),
    "two by two": noise((2, 2), 3),
    "width 1": noise((3, 4), 1),
    "one place": noise((1, 1), 3),
    "two places": noise((1, 2), 3),
    "two kinds of vector": torch.ones(4, 5, 3) * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None],
    "one other vector": torch.zeros(4, 5, 3).index_fill_(0, torch.tensor([2]), 1.0),
    "huge": 1e300 * noise((3, 5), 4),
    "tiny": 1e-300 * noise((3, 5), 4),
    "half precision": noise((3, 5), 4).half(),
}
grids = st.tuples(st.integers(1, 6), st.integers(1, 6))


def finite(numbers):
    return all(number is not None and math.isfinite(number) for number in numbers)


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("table", [torch.zeros(9, 4), torch.zeros(0, 3, 4), torch.zeros(2, 2, 2, dtype=torch.cfloat)])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(UserError, match=r"has the shape \(rows, columns, width\) and real numbers, not"):
        vectors(table)


@pytest.mark.parametrize(
    ("grid", "left", "words"),
    [
        ((37, 54), (37, 54), ""),
        ((64, 64), (32, 32), "every 2nd row and column"),
        ((135, 89), (45, 30), "every 3rd row and column"),
        ((1, 65536), (1, 1986), "every 33rd column"),
        ((256, 256), (43, 43), "every 6th row and column"),
    ],
)
def test_a_large_table_is_thinned_evenly(grid, left, words):
    table = coordinates(grid).unflatten(0, grid)
    few, steps = thinned(table)
    assert few.shape[:2] == left and left[0] * left[1] <= 2000
    assert torch.equal(few, (coordinates(left) * torch.tensor(steps)).unflatten(0, left))
    assert taken(steps) == words


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_table_with_numbers_that_are_none_is_refused(bad):
    table = noise((3, 4), 5)
    table[1, 2, 0] = table[2, 2, 4] = bad
    for analysis in (spectrum, regression):
        with pytest.raises(UserError, match="2 of 12 position vectors are not finite"):
            analysis(table)


# ---------------------------------------------------------------- spectrum


def test_two_components_explain_the_share_of_the_signal():
    sigma, width = 0.5, 40
    table = plane((24, 30), width, sigma)
    found = spectrum(table)["centred"]
    signal = [variance(30) + sigma**2, variance(24) + sigma**2]  # along the two directions, and the noise along all
    total = variance(30) + variance(24) + width * sigma**2
    explained = found.explained()
    assert list(explained) == [f"explained_{n}" for n in range(1, 11)]
    assert explained["explained_1"] == pytest.approx(signal[0] / total, rel=0.02)
    assert explained["explained_2"] == pytest.approx(sum(signal) / total, rel=0.01)
    assert found.variance[-1] == pytest.approx(1) and found.accumulated[-1] == pytest.approx(1)


def test_effective_rank_is_the_number_of_directions_that_are_alike():
    found = spectrum(plane((7, 7), 9))["centred"]
    assert found.effective_rank == pytest.approx(2) and found.variance[:2] == pytest.approx([0.5, 1])
    assert spectrum(noise((30, 40), 6))["centred"].effective_rank == pytest.approx(6, rel=0.01)
    assert spectrum(torch.ones(2, 3, 4))["raw"].effective_rank == pytest.approx(1)


def test_a_common_vector_counts_only_without_centring():
    table = noise((6, 9), 16)
    moved = table + 100
    before, after = spectrum(table), spectrum(moved)
    assert before["centred"].variance == pytest.approx(after["centred"].variance)
    assert after["raw"].variance[0] > 0.999 > 0.5 > before["raw"].variance[0]


def test_explained_variance_is_that_of_principal_components():
    table = plane((5, 8), 12, 1.0)
    reference = peer("sklearn.decomposition").PCA().fit(table.flatten(0, 1).numpy())
    found = spectrum(table.float())["centred"]
    assert found.variance == pytest.approx(reference.explained_variance_ratio_.cumsum(), rel=1e-6)
    shares = reference.singular_values_.cumsum() / reference.singular_values_.sum()
    assert found.accumulated == pytest.approx(shares, rel=1e-6)


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_tables_have_a_spectrum_or_a_reason(name):
    for kind, found in spectrum(HOPELESS[name]).items():
        constant = name in ("zeros", "all the same", "one place")
        if (constant and kind == "centred") or name == "zeros":
            assert found.variance is found.effective_rank is None and found.reason and not found.explained()
        else:
            assert finite([*found.variance, *found.accumulated, found.effective_rank]) and not found.reason


@given(grid=grids, width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_spectra_rise_to_one(grid, width, seed):
    for found in spectrum(noise(grid, width, seed)).values():
        assert len(found.values) == min(grid[0] * grid[1], width)
        if found.variance is not None:
            assert found.variance == sorted(found.variance) and found.variance[-1] == pytest.approx(1)
            assert 1 - 1e-9 <= found.effective_rank <= len(found.values) + 1e-9


# ---------------------------------------------------------------- regression


def held_out_error(sigma, width, grid, axis):
    """What noise allows a linear fit: the variance of its error in row or column v of a held-out place, from n others.

    Along the axis the vectors hold t = v + σz. Few dimensions cost (n + 1)(n − 2) / n / (n − D − 2) times the variance of v
    given t, as for normal vectors. Of more dimensions than places, the shortest solution takes a · t with
    a = S / (S + σ² D), S = n · variance of v, and fits what a · t leaves by the noise of the other dimensions, whose n
    places it remembers: that costs D / (D − n) times.
    """
    n, own = 0.8 * grid[0] * grid[1], variance(grid[axis])
    if width < n / 4:
        return own * sigma**2 / (own + sigma**2) * (n + 1) * (n - 2) / n / (n - width - 2)
    a = n * own / (n * own + sigma**2 * width)
    return (own * (1 - a) ** 2 + (a * sigma) ** 2) * width / (width - n)


@pytest.mark.parametrize(("grid", "width", "sigma"), [((15, 24), 8, 0.5), ((11, 16), 768, 0.2), ((16, 11), 768, 0.5)])
def test_the_error_is_what_noise_allows(grid, width, sigma):
    found = regression(plane(grid, width, sigma), shuffles=3).methods
    expected = [held_out_error(sigma, width, grid, axis) for axis in (0, 1)]
    mae = sum(map(mean_absolute, expected)) / 2
    r2 = 1 - (expected[0] / variance(grid[0]) + expected[1] / variance(grid[1])) / 2
    for method in LINEAR:
        assert found[method]["grid_mae"] == pytest.approx(mae, rel=0.1), method
        assert 1 - found[method]["grid_r2"] == pytest.approx(1 - r2, rel=0.2), method
        assert found[method]["grid_offset_mae"] == pytest.approx(mae * math.sqrt(2), rel=0.1), "of two errors"
        index = mean_absolute(grid[1] ** 2 * expected[0] + expected[1])  # index = columns · row + column
        assert found[method]["index_mae"] == pytest.approx(index, rel=0.15), method


def test_noise_tells_no_place_and_waves_tell_it():
    table = noise((8, 11), 128, seed=5)
    compared = baselines(table)
    for name in (table, compared["noise"]):
        found = regression(name, shuffles=3).methods
        assert -0.2 < found["ridge"]["grid_r2"] < 0.05 and -0.2 < found["ridge"]["index_r2"] < 0.05
        assert found["minimum_norm"]["grid_r2"] < found["ridge"]["grid_r2"], "nothing holds it back"
    waves = regression(compared["sin_cos"], shuffles=3).methods
    assert all(waves[method]["grid_r2"] > 0.9999 for method in LINEAR)


@pytest.mark.parametrize(("grid", "width"), [((6, 9), 100), ((6, 9), 12), ((14, 3), 37), ((5, 8), 32)])
def test_minimum_norm_is_scikit_learns_linear_regression(grid, width):
    linear, selection = peer("sklearn.linear_model"), peer("sklearn.model_selection")
    table = plane(grid, width, 0.7)
    x, y = table.flatten(0, 1).numpy(), coordinates(grid).numpy()
    folds, shuffles = 5, 4
    expected = {"grid": [], "index": []}
    for order in permutations(shuffles, len(x), seed=3).numpy():
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
def test_ridge_is_the_nested_search_that_it_stands_for(grid, width):
    linear, selection = peer("sklearn.linear_model"), peer("sklearn.model_selection")
    table = plane(grid, width, 1.5)
    x, y = vectors(table), coordinates(grid)
    order = permutations(1, len(x), seed=2)[0]
    scale = centred(x).square().sum() / len(x)
    search = selection.GridSearchCV(
        linear.Ridge(solver="svd"),
        {"alpha": (penalties(len(x)) * scale).tolist()},
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
    assert found["grid_fit_mae"] == pytest.approx(errors["train"], rel=1e-4)


class Contiguous:
    """Five neighbouring parts, as nearly alike in length as can be."""

    def split(self, x, y=None, groups=None):
        part = torch.arange(len(x)) * 5 // len(x)
        return [((part != n).nonzero()[:, 0].numpy(), (part == n).nonzero()[:, 0].numpy()) for n in range(5)]

    def get_n_splits(self, x=None, y=None, groups=None):
        return 5


@pytest.mark.parametrize("method", ["svm", "mlp"])
def test_slow_regressors_tell_places_from_noise(method):
    peer("sklearn.svm")
    signal, none = (
        regression(table, methods=(method,), folds=3, shuffles=1).methods[method]
        for table in (plane((5, 8), 16, 0.1), noise((5, 8), 16))
    )
    assert none["grid_r2"] < 0.2 < signal["grid_r2"] and signal["index_mae"] < none["index_mae"]


def test_a_fit_that_has_learned_places_by_heart_is_told_by_its_error_on_them():
    peer("sklearn.svm")
    found = regression(noise((5, 8), 64), methods=("ridge", "minimum_norm", "mlp"), folds=4, shuffles=1).methods
    assert found["minimum_norm"]["grid_fit_mae"] < 1e-9 < 1 < found["minimum_norm"]["grid_mae"]
    assert found["mlp"]["index_fit_mae"] < 1 < 8 < found["mlp"]["index_mae"]
    few = regression(plane((12, 15), 3, 0.5), shuffles=2).methods["minimum_norm"]
    assert few["grid_fit_mae"] == pytest.approx(few["grid_mae"], rel=0.1), (
        "of few dimensions nothing is learned by heart"
    )


def test_regressions_of_large_tables_take_fewer_places_and_say_so():
    table = plane((32, 66), 4, 0.3)
    found = regression(table)
    assert found.taken == "every 2nd row and column" and not regression(plane()).taken
    expected = (mean_absolute(0.3**2) * 2) / 2
    assert found.methods["ridge"]["grid_mae"] == pytest.approx(expected, rel=0.1), "in patches of the whole table"
    assert found.methods["ridge"]["index_mae"] == pytest.approx(mean_absolute((66**2 + 1) * 0.3**2), rel=0.1)
    thrice = regression(table, shuffles=3).methods
    assert thrice["ridge"] == pytest.approx(found.methods["ridge"], rel=1e-6), "2,000 places in all"


def test_regressions_that_cannot_be_are_refused():
    table = noise((3, 4), 5)
    for options in ({"methods": ("rigde",)}, {"folds": 1}, {"shuffles": 0}):
        with pytest.raises(UserError, match=r"take some of ridge, minimum_norm, svm, mlp, 2 folds or more"):
            regression(table, **options)


def test_regressions_are_the_same_at_every_scale_and_for_a_seed():
    table = plane(GRID, 32, 0.5)
    first = regression(table, shuffles=2).methods
    for other in (regression(table, shuffles=2), regression(1e-30 * table, shuffles=2)):
        for method in LINEAR:
            assert other.methods[method] == pytest.approx(first[method], rel=1e-6)
    assert regression(table, shuffles=2, seed=1).methods != first


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_tables_have_a_regression_or_a_reason(name):
    found = regression(HOPELESS[name], shuffles=2)
    if name in ("one place", "two places"):
        assert not found.methods and "too few" in found.reason
    else:
        assert all(finite(numbers.values()) for numbers in found.methods.values()) and len(found.methods) == 2
    if name in ("zeros", "all the same"):
        assert all(numbers["grid_r2"] <= 0 for numbers in found.methods.values())
    assert bool(found.reason) == (name in ("one place", "two places", "zeros", "all the same"))


@given(grid=grids, width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_regressions_take_any_grid(grid, width, seed):
    table = noise(grid, width, seed)
    found = regression(table, shuffles=1, seed=seed)
    assert bool(found.reason) == (grid[0] * grid[1] < 4)
    assert all(finite(numbers.values()) for numbers in found.methods.values())
    for other in baselines(table).values():
        assert other.shape[:2] == grid and 0 <= other.shape[2] - width < 4
