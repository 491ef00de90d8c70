"""Statements about position tables: found where they hold, rejected on noise, and not confused with proximity."""

import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inspection.tables import DEGENERATE, GRID, additive, bordered, noise, plane, smooth
from vitpos.errors import InputError
from vitpos.inspection.table import baseline_tables
from vitpos.inspection.table_stats import cosine_similarity, flatten_table, grid_coordinates
from vitpos.inspection.table_structure import NULL_MODELS, STATEMENTS, contrasts, permuted_sums, regions, structure
from vitpos.patches import seeded_permutations

grids = st.tuples(st.integers(1, 6), st.integers(1, 6))
FAST = {"shuffles": 400, "tables": 400}


def verdicts(table, **options):
    return {name: found.verdict for name, found in structure(table, **FAST | options).items()}


def one_dimensional(grid=GRID, width=40):
    """(R, C, D): vectors that vary smoothly in row-major order, without a grid."""
    index = torch.arange(grid[0] * grid[1], dtype=torch.float64)
    bumps = torch.exp(-((index[:, None] - torch.linspace(0, len(index), width, dtype=torch.float64)) ** 2) / 100)
    return bumps.unflatten(0, grid) + 0.01 * noise(grid, width)


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_plane_has_similar_neighbors_and_nothing_beyond_distance(seed):
    found = verdicts(plane(sigma=0.5, seed=seed))
    assert found["neighbors"] == found["two_dimensional"] == "yes"
    assert {found[name] for name in NULL_MODELS} == {"no structure"}


@pytest.mark.parametrize("seed", range(3))
def test_row_and_column_vectors_are_detected(seed):
    found = verdicts(additive(seed=seed))
    assert found["same_row"] == found["same_column"] == found["neighbors"] == "yes"


@pytest.mark.parametrize("seed", range(3))
def test_a_border_vector_is_detected(seed):
    found = verdicts(bordered(seed=seed))
    assert found["border"] == "yes" and found["norm"] == "edge-aware"


def test_a_one_dimensional_table_is_not_two_dimensional():
    found = verdicts(one_dimensional())
    assert found["neighbors"] == found["same_row"] == "yes"
    assert found["two_dimensional"] == found["same_column"] == "opposite"


def test_a_checkerboard_has_dissimilar_neighbors():
    sign = (-1.0) ** grid_coordinates(GRID).sum(1)
    table = sign[:, None] * torch.ones(64) + flatten_table(noise())
    assert verdicts(table.unflatten(0, GRID))["neighbors"] == "opposite"


def test_long_vectors_in_the_center_are_detected():
    table = noise()
    table[3:6, 4:9] *= 2
    assert verdicts(table)["norm"] == "center-weighted"


def test_a_common_vector_does_not_change_the_test():
    table = plane(sigma=0.5)
    near, far = (structure(x, **FAST)["neighbors"] for x in (table, table + 100))
    assert near.p == far.p and near.effect == pytest.approx(far.effect)
    assert far.raw < 0.01 < near.raw, "it would dominate raw cosines"


def false_alarms(make, count, level):
    """Fraction of tables for which each statement has a verdict other than no structure."""
    found = [structure(make(seed), level=level, shuffles=199, tables=199, seed=seed) for seed in range(count)]
    return {name: sum(f[name].verdict != "no structure" for f in found) / count for name in STATEMENTS}


@pytest.mark.slow
def test_false_alarms_on_noise_occur_at_the_level_of_the_test():
    count, level = 150, 0.1
    found = false_alarms(lambda seed: noise((5, 7), 12, seed), count, level)
    spread = 3 * math.sqrt(level * (1 - level) / count)
    assert all(rate <= level + spread for rate in found.values()), found
    assert all(found[name] >= level - spread for name in STATEMENTS if name not in NULL_MODELS), found
    assert set(verdicts(noise(seed=1)).values()) == {"no structure"}


@pytest.mark.parametrize("length", [1.0, 2.0])
def test_proximity_alone_is_not_taken_for_rows_or_borders(length):
    count, level = 40, 0.1
    found = false_alarms(lambda seed: smooth((7, 9), 32, length, seed), count, level)
    spread = 3 * math.sqrt(level * (1 - level) / count)
    assert all(found[name] <= level + spread for name in NULL_MODELS), found
    assert found["neighbors"] == found["two_dimensional"] == 1


def stationary(seed, side=8, dim=48):
    """A smooth table (side, side + 1, dim) cut from a torus, which has no center and no border."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(dim, 24, 24, generator=generator, dtype=torch.float64)
    waves = torch.fft.fftfreq(24, dtype=torch.float64)
    low = torch.exp(-80 * (waves[:, None].square() + waves.square()))
    smooth = torch.fft.ifft2(torch.fft.fft2(noise) * low).real
    return smooth[:, :side, : side + 1].permute(1, 2, 0)


def test_smoothness_alone_is_not_taken_for_border_corners_or_norm():
    for seed in range(6):
        found = structure(stationary(seed) + 0.1 * seed, seed=seed)
        assert found["neighbors"].verdict == "yes"
        assert {found[name].verdict for name in ("border", "corners", "norm")} == {"no structure"}, seed


def test_sinusoids_have_row_structure_but_no_border_structure():
    found = structure(baseline_tables(torch.randn(9, 11, 64))["sin_cos"])
    assert found["same_row"].verdict == "yes" and found["corners"].verdict == found["border"].verdict == "no structure"


def test_observed_values_match_means_computed_pair_by_pair():
    grid = (4, 5)
    table = noise(grid, 8, seed=3)
    x = table.flatten(0, 1) - table.flatten(0, 1).mean(0)
    cosines, raw = cosine_similarity(x), cosine_similarity(table.flatten(0, 1))
    pairs = [(i, j) for i in range(20) for j in range(i)]

    def difference(cosines, near, far):
        means = [[cosines[i, j].item() for i, j in pairs if which(i, j)] for which in (near, far)]
        return sum(means[0]) / len(means[0]) - sum(means[1]) / len(means[1])

    def adjacent(i, j):
        return abs(i // 5 - j // 5) + abs(i % 5 - j % 5) == 1

    found = structure(table, **FAST)
    definitions = {
        "neighbors": (adjacent, lambda i, j: not adjacent(i, j)),
        "same_row": (lambda i, j: i // 5 == j // 5, lambda i, j: i // 5 != j // 5),
        "same_column": (lambda i, j: i % 5 == j % 5, lambda i, j: i % 5 != j % 5),
        "two_dimensional": (lambda i, j: i - j == 5, lambda i, j: i - j < 5 and not adjacent(i, j)),
    }
    for name, (near, far) in definitions.items():
        assert found[name].observed == pytest.approx(difference(cosines, near, far)), name
        assert found[name].raw == pytest.approx(difference(raw, near, far)), name
        assert found[name].effect == pytest.approx(found[name].observed - found[name].expected)
    border, corners, inner = regions(grid)
    assert corners.nonzero()[:, 0].tolist() == [0, 4, 15, 19] and inner.nonzero()[:, 0].tolist() == [
        6,
        7,
        8,
        11,
        12,
        13,
    ]
    assert border.sum() == 14
    between = cosines[corners][:, inner].mean()
    within = [
        (cosines[part][:, part].sum() - part.sum()) / (part.sum() * (part.sum() - 1)) for part in (corners, inner)
    ]
    assert found["corners"].observed == pytest.approx((sum(within) / 2 - between).item())
    norms = table.flatten(0, 1).norm(dim=1)
    assert found["norm"].observed == pytest.approx(((norms[inner].mean() - norms[border].mean()) / norms.mean()).item())


def test_permuted_sums_equal_the_weighted_sum_over_permuted_cosines():
    grid = (3, 5)
    cosines = cosine_similarity(flatten_table(noise(grid, 4)))
    orders = seeded_permutations(20, 15, seed=0)
    for name, weight in contrasts(grid).items():
        expected = torch.stack([(weight * cosines[order][:, order]).sum() for order in orders])
        assert torch.allclose(permuted_sums(cosines, weight, orders), expected), name


def test_p_values_follow_from_the_number_of_samples():
    found = structure(plane(), shuffles=99, tables=99)
    assert found["neighbors"].p == pytest.approx(0.02) and found["neighbors"].verdict == "no structure", (
        "99 samples cannot reach .01"
    )
    assert structure(plane(), shuffles=99, tables=99, level=0.05)["neighbors"].verdict == "yes"


def test_a_large_table_is_subsampled_and_reports_it():
    table = additive((32, 66), 16)
    found = structure(table, shuffles=99, tables=99, level=0.05)
    assert {finding.subsampled for finding in found.values()} == {"every 2nd row and column"}
    assert found["same_row"].verdict == found["same_column"].verdict == "yes"
    half = structure(table[::2, ::2], shuffles=99, tables=99, level=0.05)
    assert half["same_row"].effect == found["same_row"].effect and not half["same_row"].subsampled


@pytest.mark.slow
@pytest.mark.parametrize("grid", [(4, 6), (20, 21)])
def test_the_default_number_of_samples_is_enough_for_the_level(grid):
    found = structure(plane(grid, 3))
    for name in ("neighbors", "two_dimensional"):
        assert found[name].p < 0.005 and found[name].verdict == "yes"
    found = structure(additive(grid, 64))
    assert all(found[name].p < 0.005 for name in ("same_row", "same_column"))


def test_findings_do_not_depend_on_the_scale_and_repeat_for_a_seed():
    table = additive((5, 6), 16)
    first = {name: asdict(found) for name, found in structure(table, **FAST).items()}
    for other in (structure(table, **FAST), structure(2.0**-80 * table, **FAST)):
        assert {name: asdict(found) for name, found in other.items()} == first


def test_invalid_structure_options_are_rejected():
    for options in ({"level": 0}, {"level": 1}, {"shuffles": 0}, {"tables": 0}):
        with pytest.raises(InputError, match="level between 0 and 1"):
            structure(noise(), **options)


def complete_findings(table):
    """All findings, after checking that each has numbers or a reason."""
    found = structure(table, shuffles=19, tables=19)
    assert list(found) == list(STATEMENTS)
    for finding in found.values():
        numbers = [finding.observed, finding.expected, finding.effect, finding.raw, finding.p]
        if finding.p is None:
            assert set(numbers) == {None} and finding.reason and finding.verdict is None
        else:
            assert all(map(math.isfinite, numbers)) and 0 < finding.p <= 1
            assert bool(finding.reason) == (finding.verdict is None)
    return found


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_tables_have_findings_or_reasons(name):
    found = complete_findings(DEGENERATE[name])
    if name in ("zeros", "constant"):
        assert found["neighbors"].reason == found["same_row"].reason == "all position vectors are equal"
        assert found["norm"].reason == found["neighbors"].reason
    if name in ("one row", "one column"):
        assert "no such positions" in found["same_row"].reason
    if name == "two by two":
        assert found["neighbors"].reason == "4 positions are too few for a verdict"


@given(grid=grids, width=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_findings_accept_any_grid(grid, width, seed):
    complete_findings(noise(grid, width, seed))


@given(grid=grids)
@settings(max_examples=36, deadline=None)
def test_contrast_weights_are_a_difference_of_two_means(grid):
    for name, weight in contrasts(grid).items():
        assert torch.equal(weight, weight.mT) and not weight.diagonal().any(), name
        assert weight.clamp(min=0).sum().item() == pytest.approx(1) and abs(weight.sum().item()) < 1e-9, name
