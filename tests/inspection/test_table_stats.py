"""Validation, subsampling and spectra of position tables: known tables, scikit-learn, degenerate tables."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspection.tables import DEGENERATE, noise, plane, variance
from tests.references import peer
from vitpos.errors import InputError
from vitpos.inspection.inspect import target_from_model
from vitpos.inspection.table_regression import regression
from vitpos.inspection.table_stats import (
    flatten_table,
    grid_coordinates,
    linear_cka,
    position_vectors,
    spectrum,
    subsample,
    subsample_text,
)
from vitpos.models.vit import ViT

grids = st.tuples(st.integers(1, 6), st.integers(1, 6))


def finite(numbers):
    return all(number is not None and math.isfinite(number) for number in numbers)


@pytest.mark.parametrize("table", [torch.zeros(9, 4), torch.zeros(0, 3, 4), torch.zeros(2, 2, 2, dtype=torch.cfloat)])
def test_tensors_that_are_not_position_tables_are_rejected(table):
    with pytest.raises(InputError, match=r"\(rows, columns, width\)"):
        flatten_table(table)


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
def test_a_large_table_is_subsampled_evenly(grid, left, words):
    table = grid_coordinates(grid).unflatten(0, grid)
    used, steps = subsample(table)
    assert used.shape[:2] == left and left[0] * left[1] <= 2000
    assert torch.equal(used, (grid_coordinates(left) * torch.tensor(steps)).unflatten(0, left))
    assert subsample_text(steps) == words


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_tables_with_nan_or_infinity_are_rejected(bad):
    table = noise((3, 4), 5)
    table[1, 2, 0] = table[2, 2, 4] = bad
    for analysis in (spectrum, regression):
        with pytest.raises(InputError, match="2 of 12 position vectors contain NaN"):
            analysis(table)


def test_two_components_explain_the_variance_of_a_noisy_plane():
    sigma, width = 0.5, 40
    table = plane((24, 30), width, sigma)
    found = spectrum(table)["centered"]
    signal = [variance(30) + sigma**2, variance(24) + sigma**2]  # along the two directions of the plane
    total = variance(30) + variance(24) + width * sigma**2
    explained = found.explained()
    assert list(explained) == [f"explained_{n}" for n in range(1, 11)]
    assert explained["explained_1"] == pytest.approx(signal[0] / total, rel=0.02)
    assert explained["explained_2"] == pytest.approx(sum(signal) / total, rel=0.01)
    assert found.variance[-1] == pytest.approx(1) and found.cumulative[-1] == pytest.approx(1)


def test_effective_rank_is_the_number_of_equal_directions():
    found = spectrum(plane((7, 7), 9))["centered"]
    assert found.effective_rank == pytest.approx(2) and found.variance[:2] == pytest.approx([0.5, 1])
    assert spectrum(noise((30, 40), 6))["centered"].effective_rank == pytest.approx(6, rel=0.01)
    assert spectrum(torch.ones(2, 3, 4))["raw"].effective_rank == pytest.approx(1)


def test_a_common_vector_affects_only_the_raw_spectrum():
    table = noise((6, 9), 16)
    moved = table + 100
    before, after = spectrum(table), spectrum(moved)
    assert before["centered"].variance == pytest.approx(after["centered"].variance)
    assert after["raw"].variance[0] > 0.999 > 0.5 > before["raw"].variance[0]


def test_explained_variance_equals_scikit_learns_pca():
    table = plane((5, 8), 12, 1.0)
    reference = peer("sklearn.decomposition").PCA().fit(table.flatten(0, 1).numpy())
    found = spectrum(table.float())["centered"]
    assert found.variance == pytest.approx(reference.explained_variance_ratio_.cumsum(), rel=1e-6)
    fractions = reference.singular_values_.cumsum() / reference.singular_values_.sum()
    assert found.cumulative == pytest.approx(fractions, rel=1e-6)


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_have_a_spectrum_or_a_reason(name):
    for kind, found in spectrum(DEGENERATE[name]).items():
        constant = name in ("zeros", "constant", "one position")
        if (constant and kind == "centered") or name == "zeros":
            assert found.variance is found.effective_rank is None and found.reason and not found.explained()
        else:
            assert finite([*found.variance, *found.cumulative, found.effective_rank]) and not found.reason


@given(grid=grids, width=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_explained_variance_is_increasing_and_ends_at_one(grid, width, seed):
    for found in spectrum(noise(grid, width, seed)).values():
        assert len(found.values) == min(grid[0] * grid[1], width)
        if found.variance is not None:
            assert found.variance == sorted(found.variance) and found.variance[-1] == pytest.approx(1)
            assert 1 - 1e-9 <= found.effective_rank <= len(found.values) + 1e-9


def test_cka_is_one_for_a_rotated_and_scaled_table_and_none_for_a_constant_one():
    x = noise((5, 7), 6).flatten(0, 1)
    rotation = torch.linalg.qr(noise((1, 6), 6)[0])[0]
    assert linear_cka(x, 3 * x @ rotation + 1) == pytest.approx(1)
    assert linear_cka(x, noise((5, 7), 4, seed=1).flatten(0, 1)) < 0.5
    assert linear_cka(x, torch.ones(35, 2)) is None


def test_the_vectors_of_a_resized_model_are_its_resampled_table():
    model = ViT((3, 16, 16), 5, "learned + relative", patch=4, dim=16, depth=1, heads=2).resized((6, 3))
    table = model.encoding.parts[0].table.detach()[0]
    assert torch.allclose(position_vectors(model), table.flatten(0, 1), atol=1e-6)
    images = torch.zeros(1, 3, 24, 12)
    tokens = model.embed_patches(images)[0] - model.patch_tokens(images)
    assert torch.allclose(position_vectors(model), tokens[0, -18:], atol=1e-6)
    with torch.no_grad():
        model.encoding.parts[1].table.normal_()
    target = target_from_model("resized", model, None, encoding="learned + relative")
    stored = model.encoding.parts[1].table.detach()[0].permute(2, 0, 1)  # (H, 2R − 1, 2C − 1)
    assert torch.allclose(target.biases["layer 1"], stored, atol=1e-6)
