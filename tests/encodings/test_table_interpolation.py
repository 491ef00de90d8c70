"""Tables are read between their entries and resampled as by torch and timm."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from tests.encodings.inputs import GRID, N
from tests.references import peer
from vitpos.encodings._table_interpolation import gather, interpolation_weights, resize_flat_table, resize_table
from vitpos.positions import Positions

MODES = [
    "bicubic",
    "bilinear",
    "area",
    "bicubic-antialias",
    "bilinear-antialias",
    "bicubic-align_corners",
    "bilinear-align_corners",
]


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


def weights_by_loop(old, new, mode):
    """The matrix (new, old) that resamples one axis, written out: a sum over the old cells for each new one."""
    kernel, *more = mode.split("-")
    a = -0.5 if "antialias" in more else -0.75

    def cubic(x):
        x = abs(x)
        if x <= 1:
            return (a + 2) * x**3 - (a + 3) * x**2 + 1
        return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0

    def triangle(x):
        return max(0.0, 1 - abs(x))

    matrix = torch.zeros(new, old, dtype=torch.float64)
    for row in range(new):
        if kernel == "area":
            first, last = math.floor(row * old / new), math.ceil((row + 1) * old / new)
            matrix[row, first:last] = 1 / (last - first)
            continue
        weight = cubic if kernel == "bicubic" else triangle
        if "align_corners" in more:
            center = row * (old - 1) / (new - 1) if new > 1 else 0.0
        else:
            center = (row + 0.5) * old / new - 0.5
        if "antialias" in more:  # a wider kernel when shrinking; nothing beyond the border
            wide = max(1.0, old / new)
            found = torch.tensor([weight((cell - center) / wide) for cell in range(old)], dtype=torch.float64)
            matrix[row] = found / found.sum()
            continue
        for cell in range(math.floor(center) - 1, math.floor(center) + 3):  # beyond the border it is repeated
            matrix[row, min(max(cell, 0), old - 1)] += weight(cell - center)
    return matrix


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("new", [(6, 10), (12, 20), (5, 3), (2, 2), (2, 3), (7, 4), (1, 9)])
def test_each_mode_is_its_formula_along_rows_and_columns(mode, new):
    table = torch.randn(*GRID, 4, dtype=torch.float64)
    by_row, by_column = (weights_by_loop(old, side, mode) for old, side in zip(GRID, new, strict=True))
    expected = torch.einsum("ri,cj,ijd->rcd", by_row, by_column, table)
    assert torch.allclose(resize_table(table, new, mode=mode), expected, atol=1e-9)


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_aligned_corners_keep_the_corner_vectors_and_otherwise_they_move(mode):
    table = torch.randn(*GRID, 8)
    aligned, plain = (resize_table(table, (8, 11), mode=mode + more) for more in ("-align_corners", ""))
    for row, column in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        assert torch.allclose(aligned[row, column], table[row, column], atol=1e-6)
    assert mode == "bilinear" or not torch.allclose(plain[0, 0], table[0, 0], atol=1e-3)
    assert not torch.allclose(aligned, plain, atol=1e-3)


@pytest.mark.parametrize(("mode", "filter"), [("bicubic", "BICUBIC"), ("bilinear", "BILINEAR")])
@pytest.mark.parametrize("new", [(6, 10), (2, 3), (7, 4)])
def test_antialiased_resampling_agrees_with_pillow(mode, filter, new):
    table = torch.randn(*GRID, 2)
    theirs = [
        np.asarray(Image.fromarray(channel.numpy()).resize(new[::-1], Image.Resampling[filter]))
        for channel in table.unbind(-1)
    ]
    ours = resize_table(table, new, mode=f"{mode}-antialias")
    assert np.allclose(ours.numpy(), np.stack(theirs, -1), atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
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


@pytest.mark.parametrize("mode", MODES)
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
        ("area-antialias", "area takes no -antialias and no -align_corners"),
        ("area-align_corners", "area takes no -antialias and no -align_corners"),
        ("bicubic-antialias-align_corners", "torch does not align corners when it antialiases; leave one"),
    ],
)
def test_an_unknown_resampling_mode_is_refused(mode, message):
    with pytest.raises(ValueError, match=message):
        resize_table(torch.randn(2, 2, 2), (4, 4), mode=mode)
