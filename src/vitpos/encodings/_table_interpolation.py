"""Tables with one vector per grid cell: interpolation at any coordinates, and resampling for another grid."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError
from vitpos.positions import Positions

NAMED_MODES = {"timm": "bicubic-antialias", "hf": "bicubic", "dino": "bicubic-offset"}
"""Modes that other libraries use by default, by name: timm, Hugging Face, and the published code of DINO and DINOv2."""
OFFSET = 0.1  # cells that DINO adds to the size of the new grid

Taps = tuple[Tensor, Tensor | None]
"""Indices (…, K) of the K grid cells to interpolate from, and their weights (…, K), which are None if K is 1."""


def interpolation_weights(coords: Tensor, grid: tuple[int, int], *, mode: str = "bicubic") -> Taps:
    """Returns, for coordinates (…, 2), the indices (…, K) of the grid cells to interpolate from and their weights (…, K).

    K is 16 for ``bicubic`` and 4 for ``bilinear``; if all coordinates are integers, K is 1 and the weights are None.
    Outside the grid the border is repeated. ``bicubic`` is PyTorch's kernel (a = −0.75): on a finer grid over the same
    area it gives the result of ``F.interpolate``.
    """
    if not torch.compiler.is_compiling() and torch.equal(coords, coords.round()):
        rows, columns = (coords[..., axis].long().clamp(0, grid[axis] - 1) for axis in (0, 1))
        return (rows * grid[1] + columns)[..., None], None
    (rows, by_row), (columns, by_column) = (_axis_weights(coords[..., axis], grid[axis], mode) for axis in (0, 1))
    index = rows[..., :, None] * grid[1] + columns[..., None, :]
    return index.flatten(-2), (by_row[..., :, None] * by_column[..., None, :]).flatten(-2)


def rescale_coords(coords: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Converts coordinates (…, 2) in cells of grid ``old`` to cells of grid ``new`` that covers the same area."""
    if old == new:
        return coords
    scale = coords.new_tensor([b / a for a, b in zip(old, new, strict=True)])
    at = (coords + 0.5) * scale - 0.5
    return torch.where((at - at.round()).abs() < 1e-4, at.round(), at)  # removes rounding errors at cell centers


def gather(table: Tensor, weights: Taps) -> Tensor:
    """Returns vectors (…, D), each a weighted sum of K rows of a table (cells, D): interpolation between grid cells.

    ``weights`` is a tuple of two tensors (…, K), the indices of the rows and their weights. Weights of None mean K = 1:
    the row itself.
    """
    index, weight = weights
    if weight is None:
        return table[index[..., 0]]
    return torch.einsum("...kd,...k->...d", table[index], weight.to(table.dtype))


def _axis_weights(at: Tensor, size: int, mode: str) -> tuple[Tensor, Tensor]:
    """Returns the indices (…, k) of the cells next to ``at`` (…) on an axis of ``size`` cells, and their weights (…, k).

    k is 2 for ``mode="bilinear"`` and 4 for ``"bicubic"``.
    """
    whole = at.floor()
    t = at - whole
    if mode == "bilinear":
        around = torch.tensor([0, 1], device=at.device)
        weights = torch.stack([1 - t, t], -1)
    else:
        around = torch.tensor([-1, 0, 1, 2], device=at.device)
        weights = torch.stack([_cubic(1 + t), _cubic(t), _cubic(1 - t), _cubic(2 - t)], -1)
    return (whole[..., None].long() + around).clamp(0, size - 1), weights


def _cubic(x: Tensor, a: float = -0.75) -> Tensor:
    """Returns Keys' cubic convolution kernel with parameter ``a`` at distances x from 0 to 2."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, far)


def resize_table(table: Tensor, grid: tuple[int, int], *, mode: str = "bicubic") -> Tensor:
    """Resamples a table (R, C, D) to ``grid`` = (R', C'): (R', C', D), computed in float32 or better.

    A table that already has this grid is copied exactly. ``mode`` is ``bicubic``, ``bilinear`` or ``area`` (the mean of
    the old cells that a new cell overlaps), optionally followed by

    - ``-antialias``: smooths when shrinking;
    - ``-align_corners``: corner cells keep their values, as with ``align_corners=True`` in PyTorch; by default the outer
      edges of old and new grid coincide. A side of one new cell takes the first old cell. Not with ``-antialias``, which
      torch 2.13 does not align;
    - ``-offset``: samples as for a grid of 0.1 rows and columns more, as DINO and DINOv2 do;
    - ``-norm``: rescales each new vector to the interpolated norm of the old ones.

    Plain ``bicubic`` is what ViT, DeiT and Hugging Face use (``hf``), ``bicubic-antialias`` what timm uses (``timm``);
    they differ even when enlarging, because PyTorch uses another kernel with antialiasing (a = −0.5 instead of −0.75).
    ``dino`` is ``bicubic-offset``.
    """
    how = parse_mode(mode)
    if tuple(table.shape[:2]) == tuple(grid):
        return table.clone()
    if grid[1] == 1 != grid[0]:  # torch 2.13 drops rows when it antialiases to a width of 1
        return resize_table(table.transpose(0, 1), (1, grid[0]), mode=mode).transpose(0, 1)
    wide = table.to(torch.promote_types(table.dtype, torch.float32)).permute(2, 0, 1)[None]
    new = _interpolate(wide, grid, how)
    if how.norm:
        lengths = _interpolate(wide.norm(dim=1, keepdim=True), grid, how).clamp_min(0)
        new = new * lengths / new.norm(dim=1, keepdim=True).clamp_min(torch.finfo(new.dtype).tiny)
    return new[0].permute(1, 2, 0).to(table.dtype)


def _interpolate(image: Tensor, grid: tuple[int, int], how: ResizeMode) -> Tensor:
    """Returns ``F.interpolate`` of an image (1, D, R, C) to (1, D, R', C'), ``grid`` = (R', C')."""
    options: dict[str, Any] = {} if how.kernel == "area" else {"align_corners": how.align_corners}
    options |= {"antialias": how.antialias} if how.kernel != "area" else {}
    if not how.offset:
        return F.interpolate(image, size=grid, mode=how.kernel, **options)
    scale = [(new + OFFSET) / old for new, old in zip(grid, image.shape[2:], strict=True)]
    return F.interpolate(image, scale_factor=scale, mode=how.kernel, **options)


def resize_flat_table(
    rows: Tensor, old: tuple[int, int], new: tuple[int, int], *, prefix: int = 0, mode: str = "bicubic"
) -> Tensor:
    """Resamples ``rows`` (prefix + R·C, D) from grid ``old`` = (R, C) to ``new`` = (R', C'): (prefix + R'·C', D).

    The first ``prefix`` rows, which belong to prefix tokens such as CLS, are kept. ``mode`` is the interpolation, such
    as ``bicubic`` or ``bicubic-antialias``.
    """
    if len(rows) != prefix + old[0] * old[1]:
        raise InputError(
            f"a table of {len(rows)} rows does not have {prefix} prefix tokens and a {old[0]}x{old[1]} grid; "
            "name the right grid"
        )
    patches = resize_table(rows[prefix:].unflatten(0, old), new, mode=mode)
    return torch.cat([rows[:prefix], patches.flatten(0, 1)])


class ResizeMode(NamedTuple):
    """An interpolation: its kernel, and the options that `resize_table` explains."""

    kernel: str
    antialias: bool
    align_corners: bool
    offset: bool
    norm: bool


def parse_mode(mode: str) -> ResizeMode:
    """Returns the kernel and the options of an interpolation, such as ``"bicubic-antialias"`` or ``"timm"``.

    Raises InputError for an unknown name.
    """
    kernel, *more = NAMED_MODES.get(mode, mode).split("-")
    options = ("antialias", "align_corners", "offset", "norm")
    if kernel not in ("bicubic", "bilinear", "area") or not set(more) <= set(options):
        raise InputError(
            f"cannot resample with mode {mode!r}; use bicubic, bilinear or area, with -antialias, -align_corners, "
            f"-offset and -norm if wanted, or the default of a library: {', '.join(NAMED_MODES)}"
        )
    if kernel == "area" and set(more) - {"norm"}:
        raise InputError(
            f"mode {mode!r}: area takes no -antialias and no -align_corners or -offset, it averages whole cells; "
            "leave it out"
        )
    if {"antialias", "align_corners"} <= set(more):
        raise InputError(f"mode {mode!r}: torch does not align corners when it antialiases; leave one of the two out")
    if {"offset", "align_corners"} <= set(more):
        raise InputError(f"mode {mode!r}: with aligned corners an offset has no effect; leave one of the two out")
    return ResizeMode(kernel, *(option in more for option in options))


def unit_coords(pos: Positions, grid: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Returns coordinates (B|1, N, 2) scaled so that the training ``grid`` covers −1 to 1 on each axis, edge to edge."""
    coords = pos.coords.to(dtype)
    return (coords + 0.5) * 2 / coords.new_tensor(grid) - 1
