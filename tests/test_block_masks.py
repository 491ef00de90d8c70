"""Block masks and permutations within them."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.references import published_mask
from vitpos.block_masks import block_mask, permute_masked, upsample_mask
from vitpos.errors import InputError
from vitpos.patches import patchify, permute_patches, upsample_order

GRIDS = st.tuples(st.integers(1, 9), st.integers(1, 9))
GRID = (4, 5)


@given(GRIDS, st.floats(0, 1), st.integers(1, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_masks_never_exceed_their_ratio(grid, ratio, images, exact):
    mask = block_mask(grid, ratio, batch=images, exact_count=exact)
    count = mask.sum(1)
    target = int(ratio * grid[0] * grid[1] + 1e-9)
    assert mask.shape == (images, grid[0] * grid[1])
    assert (count == target).all() if exact or ratio == 1 else (count <= target).all()


@pytest.mark.parametrize(("grid", "ratio"), [((14, 14), 0.03), ((14, 14), 0.15), ((14, 14), 0.9), ((6, 11), 0.27)])
def test_masks_are_distributed_as_those_of_the_published_sampler(grid, ratio):
    random.seed(0)
    cells = grid[0] * grid[1]
    published = torch.from_numpy(np.stack([published_mask(grid, ratio, 8, 75) for _ in range(1500)])).float()
    batch = block_mask(
        grid, ratio, batch=1500, min_area=8, max_area=75, generator=torch.Generator().manual_seed(0)
    ).float()
    batch = batch.unflatten(1, grid)
    counts = [x.sum((1, 2)) for x in (published, batch)]
    spread = max(counts[0].std().item(), 0.1)
    assert abs(counts[0].mean() - counts[1].mean()) < 5 * spread * (2 / 1500) ** 0.5
    assert abs(counts[0].std() - counts[1].std()) < 0.2 * spread + 0.1
    empty = [(c == 0).double().mean() for c in counts]
    assert abs(empty[0] - empty[1]) < 0.05
    error = (ratio * (1 - ratio) * 2 / 1500) ** 0.5  # of the frequency with which a cell is masked
    assert (published.mean(0) - batch.mean(0)).abs().max() < 5 * error + 0.01
    edges = [(x.diff(dim=1).abs().sum(), x.diff(dim=2).abs().sum()) for x in (published, batch)]  # shape of the blocks
    assert all(abs(a / b - 1) < 0.08 for a, b in zip(*edges, strict=True)), (edges, cells)


def test_a_ratio_of_1_masks_everything_and_a_ratio_above_1_is_refused():
    assert block_mask((3, 4), 1.0, batch=2).all()
    with pytest.raises(InputError, match=r"ratio 1\.5"):
        block_mask((3, 4), 1.5)


@given(GRIDS, st.floats(0, 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_order_permutes_the_masked_cells_alone(grid, ratio, derangement):
    mask = block_mask(grid, ratio, batch=3)
    order = permute_masked(mask, derangement=derangement)
    index = torch.arange(mask.shape[1]).expand_as(order)
    assert (order.sort(1).values == index).all()
    assert (order == index)[~mask].all() and mask.gather(1, order)[mask].all()
    if derangement:
        alone = mask.sum(1, keepdim=True) == 1
        assert ((order != index) | ~mask | alone).all()


def test_all_permutations_of_three_cells_are_equally_likely():
    mask = torch.tensor([True, False, True, True]).expand(6000, -1)
    orders = permute_masked(mask, generator=torch.Generator().manual_seed(0))
    counts = orders.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 6 and (counts - 1000).abs().max() < 150


def test_permuting_patches_of_pixels_equals_permuting_tokens():
    images = torch.randn(3, 2, 8, 15)
    order = permute_masked(block_mask(GRID, 0.5, batch=3))
    tokens = patchify(images, (2, 3))
    moved = tokens.gather(1, order[..., None].expand_as(tokens))
    assert torch.equal(patchify(permute_patches(images, GRID, order), (2, 3)), moved)


def test_masks_of_a_single_row_or_column_reach_their_ratio():
    counts = block_mask((1, 20), 0.5, batch=100).sum(1)
    assert counts.max() <= 10 and counts.float().mean() > 5
    assert block_mask((20, 1), 0.5, batch=100).sum(1).max() <= 10


def test_an_upsampled_mask_covers_the_cells_that_an_upsampled_order_moves():
    mask = block_mask((2, 3), 0.7, batch=4, exact_count=True)
    order = permute_masked(mask, derangement=True)
    finer = upsample_order(order, (2, 3), (4, 9))
    assert torch.equal(upsample_mask(mask, (2, 3), (4, 9)), finer != torch.arange(36))
