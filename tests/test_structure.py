"""Statements about position tables: true where they are true, silent on noise, and not taken in by mere nearness."""

import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import GRID, crossed, framed, noise, plane, smooth
from tests.test_analysis import HOPELESS, grids
from vitpos.errors import UserError
from vitpos.inspection._mirror_blocks import Mirrors
from vitpos.inspection.contrasts import contrasts, regions
from vitpos.inspection.null_models import DistanceLaw
from vitpos.inspection.similarity import cosine_similarity
from vitpos.inspection.table_regression import baselines
from vitpos.inspection.table_stats import centred, coordinates, vectors
from vitpos.inspection.table_structure import BEYOND, STATEMENTS, _shuffled, structure
from vitpos.patches import permutations

FEW = {"shuffles": 400, "tables": 400}


def verdicts(table, **options):
    return {name: found.verdict for name, found in structure(table, **FEW | options).items()}


def listed(grid=GRID, width=40):
    """(R, C, D): vectors that change slowly along the list of places, as if there were no grid."""
    place = torch.arange(grid[0] * grid[1], dtype=torch.float64)
    waves = torch.exp(-((place[:, None] - torch.linspace(0, len(place), width, dtype=torch.float64)) ** 2) / 100)
    return waves.unflatten(0, grid) + 0.01 * noise(grid, width)


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize("seed", range(3))
def test_a_noisy_plane_is_a_grid_of_neighbours_and_nothing_beyond_distance(seed):
    found = verdicts(plane(sigma=0.5, seed=seed))
    assert found["nearby"] == found["grid"] == "yes"
    assert {found[name] for name in BEYOND} == {"no structure"}


@pytest.mark.parametrize("seed", range(3))
def test_vectors_of_rows_and_columns_are_found(seed):
    found = verdicts(crossed(seed=seed))
    assert found["same_row"] == found["same_column"] == found["nearby"] == "yes"


@pytest.mark.parametrize("seed", range(3))
def test_a_rim_is_found_and_its_vectors_are_longer(seed):
    found = verdicts(framed(seed=seed))
    assert found["rim"] == "yes" and found["norm"] == "edge-aware"


def test_a_list_is_no_grid():
    found = verdicts(listed())
    assert found["nearby"] == found["same_row"] == "yes"
    assert found["grid"] == found["same_column"] == "the opposite"


def test_a_chessboard_is_the_opposite_of_neighbourhood():
    sign = (-1.0) ** coordinates(GRID).sum(1)
    table = sign[:, None] * torch.ones(64) + vectors(noise())
    assert verdicts(table.unflatten(0, GRID))["nearby"] == "the opposite"


def test_long_vectors_in_the_centre_are_told():
    table = noise()
    table[3:6, 4:9] *= 2
    assert verdicts(table)["norm"] == "centre-weighted"


def test_a_common_vector_hides_no_structure():
    table = plane(sigma=0.5)
    near, far = (structure(x, **FEW)["nearby"] for x in (table, table + 100))
    assert near.p == far.p and near.effect == pytest.approx(far.effect)
    assert far.raw < 0.01 < near.raw, "of raw cosines nothing would be left"


# ---------------------------------------------------------------- how often chance is believed


def alarms(make, count, level):
    """The share of tables for which each statement is believed."""
    found = [structure(make(seed), level=level, shuffles=199, tables=199, seed=seed) for seed in range(count)]
    return {name: sum(f[name].verdict != "no structure" for f in found) / count for name in STATEMENTS}


def test_noise_has_no_structure_but_for_the_rate_of_false_alarms():
    count, level = 150, 0.1
    found = alarms(lambda seed: noise((5, 7), 12, seed), count, level)
    spread = 3 * math.sqrt(level * (1 - level) / count)
    assert all(rate <= level + spread for rate in found.values()), found
    assert all(found[name] >= level - spread for name in STATEMENTS if name not in BEYOND), found
    assert set(verdicts(noise(seed=1)).values()) == {"no structure"}


@pytest.mark.parametrize("length", [1.0, 2.0])
def test_mere_nearness_is_not_taken_for_rows_or_rims(length):
    count, level = 40, 0.1
    found = alarms(lambda seed: smooth((7, 9), 32, length, seed), count, level)
    spread = 3 * math.sqrt(level * (1 - level) / count)
    assert all(found[name] <= level + spread for name in BEYOND), found
    assert found["nearby"] == found["grid"] == 1


def test_random_tables_keep_the_law_of_distance():
    grid = (4, 6)
    x = centred(vectors(plane(grid, 24)))
    law = DistanceLaw(grid)
    assert torch.allclose(law.explains(x @ x.mT), x @ x.mT), "distance explains all of a plane"
    drawn = torch.cat(list(law.tables(x, draws=2000, seed=0)))
    assert drawn.shape == (2000, 24, 24) and drawn.sum(1).abs().max() < 1e-4
    assert torch.allclose((drawn @ drawn.mT).mean(0).double() / 24, x @ x.mT, atol=0.05 * (x @ x.mT).max())


def test_contrasts_at_matched_distance_do_not_see_what_is_by_distance():
    places = coordinates(GRID)
    apart = torch.cdist(places, places)
    law = DistanceLaw(GRID)
    in_row = (places[:, :1] == places[:, 0]) & (apart > 0)
    for name in BEYOND:
        weight = contrasts(GRID)[name]
        matched = law.matched(weight)
        for falling in (1 - apart / 20, torch.exp(-apart.square() / 18), 1 / (1 + apart)):
            assert abs((matched * falling).sum()) < 0.02 * (1 + abs((weight * falling).sum())), name
    assert (law.matched(contrasts(GRID)["same_row"]) * in_row).sum() > 0.7, "rows are not taken for a law"


# ---------------------------------------------------------------- how the numbers are made


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (3, 1), (4, 6), (5, 4), (7, 9)])
def test_mirrors_take_a_matrix_apart_that_they_do_not_change(grid):
    mirrors, count = Mirrors(grid), grid[0] * grid[1]
    x = noise(grid, 3).flatten(0, 1)
    assert torch.allclose(mirrors.joined(mirrors.split(x)), x)
    places = coordinates(grid)
    matrix = 1 / (1 + torch.cdist(places, places))
    blocks = mirrors.blocks(matrix)
    assert sum(map(len, blocks)) == count
    values = torch.cat([torch.linalg.eigvalsh(block) for block in blocks]).sort().values
    assert torch.allclose(values, torch.linalg.eigvalsh(matrix))
    pairs = zip(mirrors.split(x), blocks, strict=True)
    assert torch.allclose(sum((part @ part.mT * block).sum() for part, block in pairs), (x @ x.mT * matrix).sum())


def test_statements_beyond_distance_treat_mirror_images_alike():
    for grid in ((5, 7), (6, 4)):
        place = torch.arange(grid[0] * grid[1]).unflatten(0, grid)
        for name in BEYOND:
            for order in (place.flip(0).flatten(), place.flip(1).flatten()):
                weight = contrasts(grid)[name]
                assert torch.equal(weight[order][:, order], weight), name


def test_effects_are_the_differences_that_they_say():
    grid = (4, 5)
    table = noise(grid, 8, seed=3)
    x = table.flatten(0, 1) - table.flatten(0, 1).mean(0)
    cosines, raw = cosine_similarity(x), cosine_similarity(table.flatten(0, 1))
    pairs = [(i, j) for i in range(20) for j in range(i)]

    def difference(cosines, near, far):
        means = [[cosines[i, j].item() for i, j in pairs if which(i, j)] for which in (near, far)]
        return sum(means[0]) / len(means[0]) - sum(means[1]) / len(means[1])

    def neighbours(i, j):
        return abs(i // 5 - j // 5) + abs(i % 5 - j % 5) == 1

    found = structure(table, **FEW)
    asked = {
        "nearby": (neighbours, lambda i, j: not neighbours(i, j)),
        "same_row": (lambda i, j: i // 5 == j // 5, lambda i, j: i // 5 != j // 5),
        "same_column": (lambda i, j: i % 5 == j % 5, lambda i, j: i % 5 != j % 5),
        "grid": (lambda i, j: i - j == 5, lambda i, j: i - j < 5 and not neighbours(i, j)),
    }
    for name, (near, far) in asked.items():
        assert found[name].observed == pytest.approx(difference(cosines, near, far)), name
        assert found[name].raw == pytest.approx(difference(raw, near, far)), name
        assert found[name].effect == pytest.approx(found[name].observed - found[name].expected)
    rim, corners, centre = regions(grid)
    assert corners.nonzero()[:, 0].tolist() == [0, 4, 15, 19] and centre.nonzero()[:, 0].tolist() == [
        6,
        7,
        8,
        11,
        12,
        13,
    ]
    assert rim.sum() == 14
    between = cosines[corners][:, centre].mean()
    within = [
        (cosines[part][:, part].sum() - part.sum()) / (part.sum() * (part.sum() - 1)) for part in (corners, centre)
    ]
    assert found["corners"].observed == pytest.approx((sum(within) / 2 - between).item())
    norms = table.flatten(0, 1).norm(dim=1)
    assert found["norm"].observed == pytest.approx(((norms[centre].mean() - norms[rim].mean()) / norms.mean()).item())


def test_shuffling_moves_vectors_over_the_grid():
    grid = (3, 5)
    cosines = cosine_similarity(vectors(noise(grid, 4)))
    orders = permutations(20, 15, seed=0)
    for name, weight in contrasts(grid).items():
        expected = torch.stack([(weight * cosines[order][:, order]).sum() for order in orders])
        assert torch.allclose(_shuffled(cosines, weight, orders), expected), name


def test_a_p_is_what_the_draws_say():
    found = structure(plane(), shuffles=99, tables=99)
    assert found["nearby"].p == pytest.approx(0.02) and found["nearby"].verdict == "no structure", "99 are too few"
    assert structure(plane(), shuffles=99, tables=99, level=0.05)["nearby"].verdict == "yes"


def test_a_large_table_is_thinned_and_says_so():
    table = crossed((32, 66), 16)
    found = structure(table, shuffles=99, tables=99, level=0.05)
    assert {finding.taken for finding in found.values()} == {"every 2nd row and column"}
    assert found["same_row"].verdict == found["same_column"].verdict == "yes"
    few = structure(table[::2, ::2], shuffles=99, tables=99, level=0.05)
    assert few["same_row"].effect == found["same_row"].effect and not few["same_row"].taken


@pytest.mark.parametrize("grid", [(4, 6), (20, 21)])
def test_no_verdict_hangs_on_a_single_draw(grid):
    found = structure(plane(grid, 3))
    for name in ("nearby", "grid"):
        assert found[name].p < 0.005 and found[name].verdict == "yes"
    found = structure(crossed(grid, 64))
    assert all(found[name].p < 0.005 for name in ("same_row", "same_column"))


def test_findings_are_the_same_at_every_scale_and_for_a_seed():
    table = crossed((5, 6), 16)
    first = {name: asdict(found) for name, found in structure(table, **FEW).items()}
    for other in (structure(table, **FEW), structure(2.0**-80 * table, **FEW)):
        assert {name: asdict(found) for name, found in other.items()} == first


def test_draws_and_levels_that_cannot_be_are_refused():
    for options in ({"level": 0}, {"level": 1}, {"shuffles": 0}, {"tables": 0}):
        with pytest.raises(UserError, match="take a level between 0 and 1, and draw at least once"):
            structure(noise(), **options)


# ---------------------------------------------------------------- hopeless tables and all grids


def checked(table):
    """All findings, each with numbers or with a reason."""
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


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_tables_have_findings_or_reasons(name):
    found = checked(HOPELESS[name])
    if name in ("zeros", "all the same"):
        assert found["nearby"].reason == found["same_row"].reason == "all position vectors are the same"
        assert found["norm"].reason == found["nearby"].reason
    if name in ("a row", "a column"):
        assert "has no such places to compare" in found["same_row"].reason
    if name == "two by two":
        assert found["nearby"].reason == "4 places are too few for a verdict"


@given(grid=grids, width=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_findings_take_any_grid(grid, width, seed):
    checked(noise(grid, width, seed))


@given(grid=grids)
@settings(max_examples=36, deadline=None)
def test_weights_compare_two_means(grid):
    for name, weight in contrasts(grid).items():
        assert torch.equal(weight, weight.mT) and not weight.diagonal().any(), name
        assert weight.clamp(min=0).sum().item() == pytest.approx(1) and abs(weight.sum().item()) < 1e-9, name


def stationary(seed, side=8, dim=48):
    """A smooth table (side, side + 1, dim) cut from a torus, on which no place is the centre or at a rim."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(dim, 24, 24, generator=draw, dtype=torch.float64)
    waves = torch.fft.fftfreq(24, dtype=torch.float64)
    low = torch.exp(-80 * (waves[:, None].square() + waves.square()))
    smooth = torch.fft.ifft2(torch.fft.fft2(noise) * low).real
    return smooth[:, :side, : side + 1].permute(1, 2, 0)


def test_smoothness_alone_is_no_rim_no_corner_and_no_centre():
    for seed in range(6):
        found = structure(stationary(seed) + 0.1 * seed, seed=seed)
        assert found["nearby"].verdict == "yes"
        assert {found[name].verdict for name in ("rim", "corners", "norm")} == {"no structure"}, seed


def test_a_direction_is_no_corner():
    found = structure(baselines(torch.randn(9, 11, 64))["sin_cos"])
    assert found["same_row"].verdict == "yes" and found["corners"].verdict == found["rim"].verdict == "no structure"
