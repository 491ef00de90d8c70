"""Tables on a grid: reading them at any coordinates, and resampling them for good."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Taps = tuple[Tensor, Tensor | None]  # cells to read (…, K) and their weights; no weights where K is 1 and all are whole


def taps(coords: Tensor, grid: tuple[int, int], *, how: str = "bicubic") -> Taps:
    """Which cells of a grid to read for coordinates (…, 2), and how much of each; beyond the border the border repeats.

    ``bicubic`` is PyTorch's kernel (a = −.75), so that a grid fitted into the table's span reads what ``F.interpolate``
    would compute. At whole coordinates either kernel gives the cell itself, and only that one is read.
    """
    if not torch.compiler.is_compiling() and torch.equal(coords, coords.round()):
        rows, columns = (coords[..., axis].long().clamp(0, grid[axis] - 1) for axis in (0, 1))
        return (rows * grid[1] + columns)[..., None], None
    (rows, by_row), (columns, by_column) = (_axis(coords[..., axis], grid[axis], how) for axis in (0, 1))
    index = rows[..., :, None] * grid[1] + columns[..., None, :]
    return index.flatten(-2), (by_row[..., :, None] * by_column[..., None, :]).flatten(-2)


def read(table: Tensor, where: Taps) -> Tensor:
    """The vectors (…, D) of a table (cells, D) at some taps."""
    index, weight = where
    if weight is None:
        return table[index[..., 0]]
    return torch.einsum("...kd,...k->...d", table[index], weight.to(table.dtype))


def _axis(at: Tensor, size: int, how: str) -> tuple[Tensor, Tensor]:
    """The neighbours (…, k) of each coordinate on one axis, clamped to the border, and their weights."""
    whole = at.floor()
    t = at - whole
    if how == "bilinear":
        around = torch.tensor([0, 1], device=at.device)
        weights = torch.stack([1 - t, t], -1)
    else:
        around = torch.tensor([-1, 0, 1, 2], device=at.device)
        weights = torch.stack([_cubic(1 + t), _cubic(t), _cubic(1 - t), _cubic(2 - t)], -1)
    return (whole[..., None].long() + around).clamp(0, size - 1), weights


def _cubic(x: Tensor, a: float = -0.75) -> Tensor:
    """Keys' cubic convolution kernel at a distance of 0…2."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, far)


def resample(table: Tensor, grid: tuple[int, int], *, how: str = "bicubic") -> Tensor:
    """(R, C, D) → (R', C', D), as ViT and DeiT do it: ``F.interpolate`` without antialiasing, in float32 or better."""
    if tuple(table.shape[:2]) == tuple(grid):
        return table.clone()
    wide = table.to(torch.promote_types(table.dtype, torch.float32)).permute(2, 0, 1)[None]
    return F.interpolate(wide, size=grid, mode=how, align_corners=False)[0].permute(1, 2, 0).to(table.dtype)
