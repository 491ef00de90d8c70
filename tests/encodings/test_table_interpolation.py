"""Tables are read between their entries and resampled as by torch and timm."""

import pytest
import torch
import torch.nn.functional as F

from tests.encodings.inputs import GRID, N
from tests.references import peer
from vitpos.encodings._table_interpolation import gather, interpolation_weights, resize_flat_table, resize_table
from vitpos.positions import Positions


def sample(table, pos, mode):
    return gather(table.flatten(0, 1), interpolation_weights(pos.coords, tuple(table.shape[:2]), mode=mode))


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


@pytest.mark.parametrize("new", [(6, 10), (5, 3), (2, 2), (7, 4)])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_resampling_agrees_with_timm(new, antialias, mode):
    timm = peer("timm.layers.pos_embed")
    table = torch.randn(1 + N, 8)
    theirs = timm.resample_abs_pos_embed(
        table[None], list(new), list(GRID), num_prefix_tokens=1, interpolation=mode, antialias=antialias
    )[0]
    ours = resize_flat_table(table, GRID, new, prefix=1, mode=mode + ("-antialias" if antialias else ""))
    assert (ours - theirs).abs().max() < 1e-5


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "area", "bicubic-antialias", "bilinear-antialias"])
@pytest.mark.parametrize("grid", [(8, 12), (2, 3), (3, 8), (24, 1)])
def test_every_resampling_mode_serves_every_grid_and_can_keep_norms(mode, grid):
    table = torch.randn(*GRID, 8)
    plain, kept = resize_table(table, grid, mode=mode), resize_table(table, grid, mode=f"{mode}-norm")
    assert plain.shape == (*grid, 8)
    assert torch.allclose(torch.nn.functional.cosine_similarity(plain, kept, -1), torch.ones(grid), atol=1e-4)
    lengths = resize_table(table.norm(dim=-1, keepdim=True), grid, mode=mode).clamp_min(0)
    assert torch.allclose(kept.norm(dim=-1, keepdim=True), lengths, atol=1e-4)
    same = resize_table(table, GRID, mode=mode)
    assert torch.equal(same, table)
    constant = torch.ones(*GRID, 2)
    assert torch.allclose(resize_table(constant, grid, mode=mode), torch.ones(*grid, 2), atol=1e-5)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "area", "bicubic-antialias", "bilinear-antialias"])
@pytest.mark.parametrize("rows", [14, 3])
def test_a_table_one_cell_wide_is_resampled_as_one_of_several_equal_columns(mode, rows):
    table = torch.randn(7, 1, 8)
    for more in ("", "-norm"):
        several = resize_table(table.expand(-1, 4, -1), (rows, 4), mode=mode + more)
        assert torch.allclose(resize_table(table, (rows, 1), mode=mode + more), several[:, :1], atol=1e-5)
    wide = torch.randn(7, 3, 8)
    narrow = resize_table(resize_table(wide, (7, 1), mode=mode).expand(-1, 4, -1), (rows, 4), mode=mode)[:, :1]
    assert torch.allclose(resize_table(wide, (rows, 1), mode=mode), narrow, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("nearest", "cannot resample with mode 'nearest'"),
        ("bicubic-sharp", "cannot resample with mode 'bicubic-sharp'"),
        ("area-antialias", "'area' takes no -antialias"),
    ],
)
def test_an_unknown_resampling_mode_is_refused(mode, message):
    with pytest.raises(ValueError, match=message):
        resize_table(torch.randn(2, 2, 2), (4, 4), mode=mode)
