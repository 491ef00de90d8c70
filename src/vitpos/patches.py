"""Cutting pictures into patches and rearranging them: pure functions on pixels and on tokens.

A grid is always (rows, columns) of cells, a patch (height, width) in pixels. An ``order`` says which cell each slot
receives: slot i of the result holds what was in cell ``order[..., i]``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """A side, or (height, width), as (height, width)."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def grid_of(size: tuple[int, int], patch: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of patches in a picture of ``size`` (height, width)."""
    if min(patch) < 1 or size[0] % patch[0] or size[1] % patch[1]:
        raise UserError(
            f"a picture of {size[0]}x{size[1]} pixels cannot be cut into patches of {patch[0]}x{patch[1]}; "
            "choose a patch whose height and width divide the picture's"
        )
    return size[0] // patch[0], size[1] // patch[1]


def split(images: Tensor, patch: tuple[int, int]) -> Tensor:
    """(B, C, height, width) → (B, N, C·p·q): the pixels of each patch, channel by channel, patches row-major."""
    cells = images.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0]))  # (B, C, R, p, C, q)
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def join(patches: Tensor, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """(B, N, C·p·q) → (B, C, height, width): the inverse of :func:`split`."""
    cells = patches.unflatten(2, (-1, *patch)).unflatten(1, grid)  # (B, R, C, channels, p, q)
    return cells.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def permutation(count: int, *, seed: int) -> Tensor:
    """The one fixed permutation (count,) that a seed stands for, the same in data and in evaluations."""
    return torch.randperm(max(count, 0), generator=_generator(seed))


def permutations(images: int, count: int, *, seed: int) -> Tensor:
    """A permutation of its own for each image: (images, count)."""
    return torch.rand(images, max(count, 0), generator=_generator(seed)).argsort(1)


def _generator(seed: int) -> torch.Generator:
    if not 0 <= seed < 2**63:
        raise UserError(f"a seed of {seed} cannot be; choose a whole number from 0")
    return torch.Generator().manual_seed(seed)


def rearrange(images: Tensor, grid: tuple[int, int], order: Tensor) -> Tensor:
    """Pictures whose cells are moved: ``order`` (N,) for all images, or (B, N)."""
    height, width = images.shape[2:]
    if min(grid) < 1 or height % grid[0] or width % grid[1]:
        raise UserError(
            f"a picture of {height}x{width} pixels has no grid of {grid[0]}x{grid[1]} equal cells; "
            "choose rows that divide its height and columns that divide its width"
        )
    patch = height // grid[0], width // grid[1]
    cells = split(images, patch)  # (B, N, C·p·q)
    if order.ndim == 1:
        return join(cells[:, order], grid, patch)
    return join(cells.gather(1, order[..., None].expand(-1, -1, cells.shape[2])), grid, patch)


def refine(order: Tensor, grid: tuple[int, int], finer: tuple[int, int]) -> Tensor:
    """The order that moving the cells of ``grid`` means for the cells of a ``finer`` grid: (…, N) → (…, N finer)."""
    if min(grid) < 1 or finer[0] % grid[0] or finer[1] % grid[1]:
        raise UserError(
            f"cells of a {grid[0]}x{grid[1]} grid are not made of whole patches of a {finer[0]}x{finer[1]} grid; "
            "choose rows and columns that divide the model's"
        )
    index = torch.arange(finer[0] * finer[1], device=order.device).view(1, 1, *finer)
    batch = index.expand(len(order), -1, -1, -1) if order.ndim == 2 else index
    return rearrange(batch, grid, order).flatten(1).view(*order.shape[:-1], -1)
