"""Tables of vectors on a grid: reading them between their places, and resampling them for good."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.positions import Positions


def sample(table: Tensor, pos: Positions, *, how: str = "bicubic") -> Tensor:
    """(R, C, D) read at each token's coordinates → (B|1, N, D); beyond the border the border repeats.

    At whole coordinates this gives the table's rows exactly. ``bicubic`` is PyTorch's kernel (a = −.75), so that a grid
    fitted into the table's span reads what ``F.interpolate`` would compute.
    """
    rows, columns = table.shape[:2]
    index, weight = pos.table(("taps", rows, columns, how), lambda: _taps(pos.coords, (rows, columns), how))
    vectors = table.flatten(0, 1)[index]  # (B|1, N, K, D)
    return torch.einsum("bnkd,bnk->bnd", vectors, weight.to(table.dtype))


def _taps(coords: Tensor, grid: tuple[int, int], how: str) -> tuple[Tensor, Tensor]:
    """The cells (B|1, N, K) to read for each place, and their weights; K = taps² of the two axes' neighbours."""
    places, weights = zip(*(_axis_taps(coords[..., axis], grid[axis], how) for axis in (0, 1)), strict=True)
    index = places[0][..., :, None] * grid[1] + places[1][..., None, :]
    return index.flatten(2), (weights[0][..., :, None] * weights[1][..., None, :]).flatten(2)


def _axis_taps(at: Tensor, size: int, how: str) -> tuple[Tensor, Tensor]:
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
