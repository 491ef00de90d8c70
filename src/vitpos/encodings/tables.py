"""Tables on a grid: reading them at any coordinates, and resampling them for good."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError
from vitpos.positions import Positions

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


def across(coords: Tensor, span: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Coordinates (…, 2) in cells of one grid as coordinates in cells of another laid over the same span."""
    if span == grid:
        return coords
    share = coords.new_tensor([new / old for old, new in zip(span, grid, strict=True)])
    at = (coords + 0.5) * share - 0.5
    return torch.where((at - at.round()).abs() < 1e-4, at.round(), at)  # what falls on a cell is the cell


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
    """(R, C, D) → (R', C', D) for good, in float32 or better; the same grid gives the same numbers.

    ``how`` is ``bicubic``, ``bilinear`` or ``area``, with ``-antialias`` for a kernel that widens when shrinking and
    ``-norm`` for vectors scaled to the lengths of the old ones, interpolated alike. Plain ``bicubic`` is what ViT and
    DeiT do, ``bicubic-antialias`` what timm does; they differ even when enlarging, being two kernels (a = −.75 and −.5).
    """
    mode, antialias, norm = parse_how(how)
    if tuple(table.shape[:2]) == tuple(grid):
        return table.clone()
    if grid[1] == 1 != grid[0]:  # torch 2.13 forgets the rows of what it antialiases to a width of 1
        return resample(table.transpose(0, 1), (1, grid[0]), how=how).transpose(0, 1)
    wide = table.to(torch.promote_types(table.dtype, torch.float32)).permute(2, 0, 1)[None]
    options = {} if mode == "area" else {"align_corners": False, "antialias": antialias}
    new = F.interpolate(wide, size=grid, mode=mode, **options)
    if norm:
        lengths = F.interpolate(wide.norm(dim=1, keepdim=True), size=grid, mode=mode, **options).clamp_min(0)
        new = new * lengths / new.norm(dim=1, keepdim=True).clamp_min(torch.finfo(new.dtype).tiny)
    return new[0].permute(1, 2, 0).to(table.dtype)


def resample_rows(
    rows: Tensor, old: tuple[int, int], new: tuple[int, int], *, prefix: int = 0, how: str = "bicubic"
) -> Tensor:
    """A flat table (prefix + R·C, D) of one grid as one of another; the rows of prefix tokens stay as they are."""
    if len(rows) != prefix + old[0] * old[1]:
        raise UserError(
            f"a table of {len(rows)} rows is not {prefix} prefix tokens and {old[0]}x{old[1]} places; name the right grid"
        )
    front, places = rows[:prefix], rows[prefix:]
    return torch.cat([front, resample(places.unflatten(0, old), new, how=how).flatten(0, 1)])


def parse_how(how: str) -> tuple[str, bool, bool]:
    """The kernel of a way to resample, whether it is antialiased, and whether lengths are kept."""
    mode, *more = how.split("-")
    if mode not in ("bicubic", "bilinear", "area") or not set(more) <= {"antialias", "norm"}:
        raise UserError(
            f"cannot resample by {how!r}; take bicubic, bilinear or area, then -antialias and -norm if wanted"
        )
    if mode == "area" and "antialias" in more:
        raise UserError("resampling by 'area' needs no -antialias: it averages already")
    return mode, "antialias" in more, "norm" in more


def unit_coords(pos: Positions, grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Returns coordinates (B|1, N, 2) scaled so that the training grid covers −1 to 1 on each axis, edge to edge."""
    coords = pos.coords.to(dtype)
    return (coords + 0.5) * 2 / coords.new_tensor(grid) - 1
