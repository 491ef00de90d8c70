"""Properties of single encodings beyond the contract."""

import math

import pytest
import torch
import torch.nn.functional as F

from vitpos.encodings import ENCODINGS
from vitpos.encodings._table import gather, interpolation_weights, resize_table
from vitpos.encodings.base import Geometry
from vitpos.models.attention import embed
from vitpos.positions import Positions

GEOMETRY = Geometry(dim=16, heads=2, depth=2, grid=(3, 5))


def sample(table, pos, mode):
    return gather(table.flatten(0, 1), interpolation_weights(pos.coords, tuple(table.shape[:2]), mode=mode))


def added(spec, pos, dim=16):
    encoding = ENCODINGS.build(spec, GEOMETRY)
    return embed(encoding, torch.zeros(1, pos.index.shape[1], dim), pos, 0)[0]


@pytest.mark.parametrize("grid", [(6, 10), (7, 4), (2, 2), (3, 9)])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_a_table_read_on_a_fitted_grid_is_what_interpolation_gives(grid, mode):
    table = torch.randn(3, 5, 4)
    expected = F.interpolate(table.permute(2, 0, 1)[None], size=grid, mode=mode, align_corners=False)[0]
    read = sample(table, Positions.from_grid(grid, train_grid=(3, 5)), mode=mode)[0]
    assert torch.allclose(read, expected.flatten(1).mT, atol=1e-5)
    assert torch.allclose(resize_table(table, grid, mode=mode).flatten(0, 1), expected.flatten(1).mT, atol=1e-6)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_whole_coordinates_read_entries_exactly_and_outside_the_grid_the_border_is_repeated(mode):
    table = torch.randn(3, 5, 4)
    order = torch.randperm(15)
    assert torch.equal(
        sample(table, Positions.from_grid((3, 5)).permute(order), mode=mode)[0], table.flatten(0, 1)[order]
    )
    beyond = sample(table, Positions.from_grid((4, 7)), mode=mode)[0].unflatten(0, (4, 7))
    assert torch.equal(beyond[3, :5], table[2]) and torch.equal(beyond[3, 6], table[2, 4])


def test_the_same_count_on_another_grid_is_resampled():
    table = torch.randn(2, 8, 4)
    assert resize_table(table, (4, 4)).shape == (4, 4, 4)
    assert not torch.allclose(resize_table(table, (4, 4)).flatten(0, 1), table.flatten(0, 1))


def test_sinusoids_follow_the_formula_row_before_column():
    vectors = added("sinusoidal(temperature=100.0)", Positions.from_grid((3, 5)))
    for row in range(3):
        for column in range(5):
            expected = [
                wave(at * 100.0 ** (-k / 4)) for wave in (math.sin, math.cos) for at in (row, column) for k in range(4)
            ]
            assert torch.allclose(vectors[row * 5 + column], torch.tensor(expected), atol=1e-5)


def test_inner_products_of_sinusoids_depend_on_the_offset_alone():
    vectors = added("sinusoidal", Positions.from_grid((3, 5)))
    moved = added("sinusoidal", Positions.from_grid((3, 5)).shift((4, 7)))
    assert torch.allclose(vectors @ vectors.mT, moved @ moved.mT, atol=1e-4)


def test_a_sum_adds_what_its_parts_add():
    torch.manual_seed(0)
    both = ENCODINGS.build("learned(std=1.0) + sinusoidal", GEOMETRY)
    pos = Positions.from_grid((3, 5))
    zeros = torch.zeros(1, 15, 16)
    assert torch.allclose(embed(both, zeros, pos, 0), sum(embed(part, zeros, pos, 0) for part in both.parts), atol=1e-6)


def test_a_learned_table_starts_small_and_is_as_large_as_the_grid():
    learned = ENCODINGS.build("learned", Geometry(dim=64, heads=1, depth=1, grid=(20, 30)))
    assert learned.table.shape == (1, 20, 30, 64)
    assert math.isclose(learned.table.std().item(), 0.02, rel_tol=0.05)


def test_sape2_without_gates_does_not_depend_on_positions():
    encoding = ENCODINGS.build("sape2(gates=False)", GEOMETRY)
    q, k = torch.randn(2, 1, 2, 15, 8)
    order = torch.randperm(15)
    pos = Positions.from_grid((3, 5))
    bias = encoding.bias(q, k, pos, 0)
    moved = encoding.bias(q[:, :, order], k[:, :, order], pos, 0)
    assert torch.allclose(moved, bias[:, :, order][..., order], atol=1e-6)
