"""Positions of grids, crops and subsets: coordinates, indices, hidden tokens, and the cache of their tables."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitpos.errors import InputError
from vitpos.models import MODELS
from vitpos.positions import Positions, TableCache

grids = st.tuples(st.integers(1, 7), st.integers(1, 7))


@given(grids)
def test_a_grid_is_row_major_rows_first(grid):
    pos = Positions.from_grid(grid)
    expected = [[row, column] for row in range(grid[0]) for column in range(grid[1])]
    assert pos.coords.tolist() == [expected]
    assert pos.index.tolist() == [list(range(grid[0] * grid[1]))]
    assert pos.known.all() and pos.is_full_grid and not pos.has_hidden


@given(grids, grids)
def test_a_fitted_grid_spans_what_the_training_grid_spans(grid, fit):
    coords = Positions.from_grid(grid, train_grid=fit).coords[0]
    for axis in (0, 1):
        size = fit[axis] / grid[axis]  # of a cell, in patches of the training grid
        assert torch.isclose(coords[:, axis].min() - size / 2, torch.tensor(-0.5), atol=1e-5)
        assert torch.isclose(coords[:, axis].max() + size / 2, torch.tensor(fit[axis] - 0.5), atol=1e-5)


def test_a_fitted_grid_is_in_order_until_its_tokens_are_permuted():
    pos = Positions.from_grid((4, 6), train_grid=(3, 5))
    assert pos.is_row_major and not pos.is_full_grid
    assert pos.shift((0.5, 0)).is_row_major and not pos.permute(torch.arange(24)).is_row_major
    assert Positions.from_grid((3, 5)).is_row_major


@given(grids, st.randoms(use_true_random=False))
def test_permuting_back_restores_the_positions(grid, random):
    pos = Positions.from_grid(grid)
    order = list(range(grid[0] * grid[1]))
    random.shuffle(order)
    order = torch.tensor(order)
    there = pos.permute(order)
    back = there.permute(order.argsort())
    assert torch.equal(back.coords, pos.coords) and torch.equal(back.index, pos.index)
    assert there.index[0].tolist() == order.tolist()


def test_an_order_for_each_image_gives_positions_for_each_image():
    pos = Positions.from_grid((2, 3)).permute(torch.tensor([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]]))
    assert pos.coords.shape == (2, 6, 2)
    assert pos.coords[1, 0].tolist() == [1, 2]
    assert not pos.is_full_grid


def test_hiding_adds_up_and_travels_with_the_tokens():
    mask = torch.tensor([[True, False, False, False]])
    pos = Positions.from_grid((2, 2)).hide(mask).hide(mask.flip(1)).permute(torch.tensor([3, 1, 0, 2]))
    assert pos.known.tolist() == [[False, True, False, True]]
    assert pos.has_hidden
    assert pos.known_pairs()[0, 0, 1].tolist() == [False, True, False, True]


def test_offsets_are_query_minus_key():
    offsets = Positions.from_grid((2, 3)).offsets()
    assert offsets.shape == (1, 6, 6, 2)
    assert offsets[0, 5, 0].tolist() == [1, 2]


def test_a_table_is_made_once_per_grid_and_once_per_shuffle():
    made = []
    pos = Positions.from_grid((4, 5))
    for same in (pos, Positions.from_grid((4, 5)), Positions.from_grid((4, 5), train_grid=(4, 5))):
        same.cached("test", lambda: made.append(1))
    assert len(made) == 1
    pos.permute(torch.arange(20)).cached("test", lambda: made.append(1))
    assert len(made) == 2


def test_a_permutation_must_name_every_token():
    with pytest.raises(ValueError, match="an order of 2 tokens does not permute 4"):
        Positions.from_grid((2, 2)).permute(torch.tensor([0, 1]))


def test_a_mask_says_yes_or_no_for_as_many_images_as_there_are():
    with pytest.raises(InputError, match=r"give mask\.bool"):
        Positions.from_grid((2, 3)).hide(torch.zeros(1, 6))
    model = MODELS.build("vit(patch=2, dim=8, depth=1, heads=2)", (1, 4, 6), 3, "learned")
    with pytest.raises(InputError, match="for 3 images do not fit 2 images"):
        model(torch.zeros(2, 1, 4, 6), Positions.from_grid((2, 3)).hide(torch.zeros(3, 6, dtype=torch.bool)))


def test_a_cache_drops_what_was_used_least_recently():
    cache = TableCache(max_bytes=3000)

    def make():
        return torch.zeros(256)  # 1,024 bytes

    a, b = cache.get("a", make), cache.get("b", make)
    assert cache.get("a", make) is a
    cache.get("c", make)  # b is dropped
    assert cache.get("a", make) is a and cache.get("b", make) is not b
    assert cache.bytes <= 3000


def test_a_value_larger_than_the_cache_is_returned_and_not_kept():
    cache = TableCache(max_bytes=100)
    assert cache.get("large", lambda: torch.zeros(256)).shape == (256,) and cache.bytes == 0


def test_the_repr_is_one_short_line_without_tensors():
    pos = Positions.from_grid((2, 3))
    assert repr(pos) == "Positions(grid=(2, 3), images=1, tokens=6, hidden=0)"
    hidden = pos.hide(torch.arange(6).expand(4, 6) < 2).select(torch.arange(5))
    assert repr(hidden) == "Positions(grid=(2, 3), images=4, tokens=5, hidden=8)"
