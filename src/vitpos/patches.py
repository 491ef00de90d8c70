"""Cutting images into patches, and permuting patches and pixels: pure functions on tensors.

A grid is (rows, columns) of patches, a patch is (height, width) in pixels. An ``order`` (…, N) is a permutation of the
cells of a grid: cell i of the result holds the content of cell ``order[..., i]``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import InputError


def to_2tuple(size: int | tuple[int, int]) -> tuple[int, int]:
    """Returns (height, width) for a size given as one number or as (height, width)."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def patch_grid(size: tuple[int, int], patch: tuple[int, int]) -> tuple[int, int]:
    """Returns (rows, columns) of the patches of an image.

    ``size`` is the (height, width) of the image, ``patch`` that of a patch, both in pixels.
    """
    if min(patch) < 1 or size[0] % patch[0] or size[1] % patch[1]:
        raise InputError(
            f"an image of {size[0]}x{size[1]} pixels cannot be cut into patches of {patch[0]}x{patch[1]}; "
            "choose a patch whose height and width divide the image's"
        )
    return size[0] // patch[0], size[1] // patch[1]


def patchify(images: Tensor, patch: tuple[int, int]) -> Tensor:
    """Cuts images (B, C, height, width) into N patches of ``patch`` = (p, q) pixels: (B, N, C·p·q).

    Patches are in row-major order; within a patch, all pixels of a channel come before those of the next.
    """
    cells = images.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0]))  # (B, C, R, p, C, q)
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def blank_patches(patches: Tensor, channels: int) -> Tensor:
    """Returns a bool mask (…) that is True for patches (…, pixels) of a single color.

    ``pixels`` are those of all ``channels``, one channel after the other, as :func:`patchify` returns them.
    """
    by_channel = patches.unflatten(-1, (channels, -1))  # (…, C, p·q)
    return (by_channel == by_channel[..., :1]).all(-1).all(-1)


def unpatchify(patches: Tensor, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Returns images (B, C, height, width) from patches (B, N, C·p·q), the inverse of :func:`patchify`.

    ``grid`` is (rows, columns) of patches, ``patch`` = (p, q) the height and width of a patch in pixels.
    """
    cells = patches.unflatten(2, (-1, *patch)).unflatten(1, grid)  # (B, R, C, channels, p, q)
    return cells.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def seeded_permutation(count: int, *, seed: int) -> Tensor:
    """Returns a random permutation (count,) of the numbers 0 to count − 1; the same ``seed`` gives the same permutation."""
    return torch.randperm(max(count, 0), generator=make_generator(seed))


def seeded_permutations(images: int, count: int, *, seed: int) -> Tensor:
    """Returns a random permutation of the numbers 0 to count − 1 per image, (images, count), determined by ``seed``."""
    return torch.rand(images, max(count, 0), generator=make_generator(seed)).argsort(1)


def make_generator(seed: int) -> torch.Generator:
    """Returns a torch random generator with the given seed; raises InputError if it is not from 0 to 2⁶³ − 1."""
    if not 0 <= seed < 2**63:
        raise InputError(f"got a seed of {seed}; choose a whole number from 0 to below 2^63")
    return torch.Generator().manual_seed(seed)


def permute_patches(images: Tensor, grid: tuple[int, int], order: Tensor) -> Tensor:
    """Returns images (B, C, height, width) whose patches on a ``grid`` (rows, columns) are permuted.

    ``order`` is (N,) or (1, N) for all images, or (B, N): grid cell i gets patch ``order[..., i]``.
    """
    height, width = images.shape[2:]
    if min(grid) < 1 or height % grid[0] or width % grid[1]:
        raise InputError(
            f"an image of {height}x{width} pixels has no grid of {grid[0]}x{grid[1]} equal patches; "
            "choose rows that divide its height and columns that divide its width"
        )
    patch = height // grid[0], width // grid[1]
    moves = order != torch.arange(order.shape[-1], device=order.device)
    if 2 * int(moves.sum()) < moves.numel():
        return _move_few(images, grid, patch, order.view(-1, moves.shape[-1]), moves.view(-1, moves.shape[-1]))
    patches = patchify(images, patch)  # (B, N, C·p·q)
    if order.numel() == order.shape[-1]:
        return unpatchify(patches[:, order.flatten()], grid, patch)
    return unpatchify(patches.gather(1, order[..., None].expand(-1, -1, patches.shape[2])), grid, patch)


def _move_few(images: Tensor, grid: tuple[int, int], patch: tuple[int, int], order: Tensor, moves: Tensor) -> Tensor:
    """Permutes the patches of images (B, C, height, width) by overwriting only those that move: faster if they are few.

    Args:
        grid: Rows and columns of patches.
        patch: Height and width of a patch in pixels.
        order: (B|1, N), grid cell i gets patch ``order[:, i]``.
        moves: (B|1, N), True where this is another patch.
    """
    changed = images.clone()
    old, new = (x.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0])) for x in (images, changed))
    image, slot = moves.nonzero(as_tuple=True)
    origin = order[image, slot]
    which = slice(None) if len(order) == 1 else image
    new[which, :, slot // grid[1], :, slot % grid[1]] = old[which, :, origin // grid[1], :, origin % grid[1]]
    return changed


def permute_pixels(images: Tensor, grid: tuple[int, int], order: Tensor) -> Tensor:
    """Returns images (B, C, height, width) in which the pixels within each patch are permuted.

    ``grid`` is (rows, columns) of patches. In every patch of p×q pixels, pixel i gets the content of pixel ``order[i]``;
    ``order`` is (p·q,), with pixels in row-major order.
    """
    patch = images.shape[2] // grid[0], images.shape[3] // grid[1]
    patches = patchify(images, patch).unflatten(2, (images.shape[1], -1))  # (B, N, C, p·q)
    return unpatchify(patches[..., order].flatten(2), grid, patch)


def upsample_order(order: Tensor, grid: tuple[int, int], finer: tuple[int, int]) -> Tensor:
    """Converts a permutation ``order`` (…, N) of the cells of ``grid`` to one (…, N') of the cells of a ``finer`` grid.

    Both permute an image in the same way with `permute_patches`. Grids are (rows, columns); the cells of the finer one
    subdivide those of ``grid``.
    """
    check_finer(grid, finer)
    index = torch.arange(finer[0] * finer[1], device=order.device).view(1, 1, *finer)
    batch = index.expand(len(order), -1, -1, -1) if order.ndim == 2 else index
    return permute_patches(batch, grid, order).flatten(1).view(*order.shape[:-1], -1)


def check_finer(grid: tuple[int, int], finer: tuple[int, int]) -> None:
    """Raises InputError unless the rows and columns of ``finer`` are multiples of those of ``grid``."""
    if min(grid) < 1 or finer[0] % grid[0] or finer[1] % grid[1]:
        raise InputError(
            f"cells of a {grid[0]}x{grid[1]} grid do not consist of whole patches of a {finer[0]}x{finer[1]} grid; "
            "choose rows and columns that divide the model's"
        )
