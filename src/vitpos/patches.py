"""Cutting pictures into patches and rearranging them: pure functions on pixels and on tokens.

A grid is always (rows, columns) of cells, a patch (height, width) in pixels. An ``order`` says which cell each slot
receives: slot i of the result holds what was in cell ``order[..., i]``.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError

TRIES = 10  # rectangles that a mask proposes before it gives up


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
    return torch.randperm(max(count, 0), generator=generator_of(seed))


def permutations(images: int, count: int, *, seed: int) -> Tensor:
    """A permutation of its own for each image: (images, count)."""
    return torch.rand(images, max(count, 0), generator=generator_of(seed)).argsort(1)


def generator_of(seed: int) -> torch.Generator:
    """The random numbers that a seed stands for."""
    if not 0 <= seed < 2**63:
        raise UserError(f"a seed of {seed} cannot be; choose a whole number from 0")
    return torch.Generator().manual_seed(seed)


def block_mask(
    grid: tuple[int, int],
    ratio: float,
    *,
    images: int = 1,
    least: int | None = None,
    most: int | None = None,
    exact: bool = False,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Random rectangles that cover int(ratio·N) cells of a grid at most: (images, N), True where covered.

    BEiT's mask as MJP uses it, for all images at once. A rectangle has an area from ``least`` to what is left, at most
    ``most``, and an aspect from 0.3 to 1/0.3; of ten proposals the first that adds something and not too much is taken,
    and a mask that likes none of ten is done. ``least`` and ``most`` are by default 8 and 75 cells of a 14×14 grid,
    scaled to this one. ``exact`` fills up with single cells what the rectangles leave. A ratio of 1 covers everything.
    """
    rows, columns = grid
    count = rows * columns
    if not 0 <= ratio <= 1 or images < 1 or min(grid) < 1:
        raise UserError(f"a mask of ratio {ratio} for {images} images on a grid of {grid} cannot be; ratios are 0 to 1")
    if ratio == 1:
        return torch.ones(images, count, dtype=torch.bool, device=device)
    target = int(ratio * count + 1e-9)
    least, most = least or max(1, round(count * 8 / 196)), most or max(1, round(count * 75 / 196))
    free = F.pad(torch.ones(images, rows, columns, device=device), (1, 0, 1, 0))  # zeros for the sums
    whole, todo = free.clone(), torch.arange(images, device=device)
    left = torch.full((images, 1), float(target), device=device)  # 0 for a mask that is done
    size = torch.tensor([rows, columns], device=device)[:, None, None]
    starts, narrow = size + 1, size == 1  # a side of one cell is filled
    down, across = (torch.arange(side + 1, device=device) for side in grid)
    smallest, alive = left.new_tensor(float(least)), images if target else 0
    while alive:
        room = left.clamp_max(most)
        draw = torch.rand(4, len(left), TRIES, generator=generator, device=device)
        side = torch.lerp(smallest, room, draw[0]).sqrt_()
        stretch = draw[1].sub_(0.5).mul_(-math.log(0.3)).exp_()
        sides = torch.stack([side * stretch, side / stretch]).round_()  # (2, B, tries), height and width
        fits = ((sides < size) | narrow).all(0)
        sides = torch.minimum(sides, size)
        start = draw[2:].mul_(starts - sides).floor_()
        edges = torch.stack([start, start + sides]).long()  # (from or to, row or column, B, tries)
        new = _sums(free, edges)  # cells that each would add
        good = fits & (new > 0) & (new <= room)
        some, first = good.max(1, keepdim=True)
        (top, west), (bottom, east) = edges.gather(3, first.expand(2, 2, -1, -1)) * some  # each (B, 1)
        in_rows, in_columns = ((down > top) & (down <= bottom)).float(), ((across > west) & (across <= east)).float()
        free.addcmul_(in_rows[:, :, None], in_columns[:, None], value=-1).clamp_min_(0)
        left = (left - new.gather(1, first)).mul_(some)
        alive = int(left.count_nonzero())
        if 2 * alive < len(left):
            whole[todo] = free
            kept = left.nonzero()[:, 0]
            todo, free, left = todo[kept], free[kept], left[kept]
    whole[todo] = free
    mask = (whole[:, 1:, 1:] == 0).flatten(1)
    if exact:
        order = torch.rand(images, count, generator=generator, device=device).masked_fill_(mask, -1).argsort(1)
        mask = mask.scatter(1, order[:, :target], torch.ones_like(mask))
    return mask


def _sums(cells: Tensor, edges: Tensor) -> Tensor:
    """What cells (B, R + 1, C + 1), of which the first row and column are zero, sum up to inside rectangles: (B, A).

    ``edges`` (2, 2, B, A): the first row and column of a rectangle, then those behind it. Each sum is four numbers of the
    table of sums above and left of every cell.
    """
    table = cells.cumsum(1).cumsum_(2)
    corners = edges[:, None, 0] * cells.shape[2] + edges[None, :, 1]  # (2 rows, 2 columns, B, A)
    found = table.flatten(1).gather(1, corners.permute(2, 0, 1, 3).flatten(1)).unflatten(1, (4, -1))
    return found[:, 0] + found[:, 3] - found[:, 1] - found[:, 2]


def scramble(mask: Tensor, *, derange: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """The order (B, N) that permutes the True cells of a mask (B, N) among themselves and leaves the others.

    Any permutation is as likely as any other, so that on average one cell stays where it is; with ``derange`` they
    move in one random cycle instead, and none stays unless it is alone.
    """
    index = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    last = mask.shape[1] + index.double()  # cells outside the mask sort behind it, in their own order
    drawn = torch.rand(mask.shape, generator=generator, device=mask.device, dtype=torch.float64)
    random = torch.where(mask, drawn, last).argsort(1)
    if not derange:
        return index.scatter(1, torch.where(mask, index, last).argsort(1), random)
    inside = mask.sum(1, keepdim=True)
    following = torch.where(index < inside, (index + 1) % inside.clamp_min(1), index)
    return index.scatter(1, random, random.gather(1, following))


def rearrange(images: Tensor, grid: tuple[int, int], order: Tensor) -> Tensor:
    """Pictures whose cells are moved: ``order`` (N,) or (1, N) for all images, or (B, N)."""
    height, width = images.shape[2:]
    if min(grid) < 1 or height % grid[0] or width % grid[1]:
        raise UserError(
            f"a picture of {height}x{width} pixels has no grid of {grid[0]}x{grid[1]} equal cells; "
            "choose rows that divide its height and columns that divide its width"
        )
    patch = height // grid[0], width // grid[1]
    moved = order != torch.arange(order.shape[-1], device=order.device)
    if 2 * int(moved.sum()) < moved.numel():
        return _move_some(images, grid, patch, order.view(-1, moved.shape[-1]), moved.view(-1, moved.shape[-1]))
    cells = split(images, patch)  # (B, N, C·p·q)
    if order.numel() == order.shape[-1]:
        return join(cells[:, order.flatten()], grid, patch)
    return join(cells.gather(1, order[..., None].expand(-1, -1, cells.shape[2])), grid, patch)


def _move_some(images: Tensor, grid: tuple[int, int], patch: tuple[int, int], order: Tensor, moved: Tensor) -> Tensor:
    """Copies of pictures in which only the cells that move are written; ``order`` and ``moved`` are (B|1, N)."""
    changed = images.clone()
    old, new = (x.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0])) for x in (images, changed))
    image, slot = moved.nonzero(as_tuple=True)
    origin = order[image, slot]
    which = slice(None) if len(order) == 1 else image
    new[which, :, slot // grid[1], :, slot % grid[1]] = old[which, :, origin // grid[1], :, origin % grid[1]]
    return changed


def stir(images: Tensor, grid: tuple[int, int], order: Tensor) -> Tensor:
    """Pictures whose cells keep their places but whose pixels are moved inside each: one ``order`` (p·q,) for all."""
    patch = images.shape[2] // grid[0], images.shape[3] // grid[1]
    cells = split(images, patch).unflatten(2, (images.shape[1], -1))  # (B, N, C, p·q)
    return join(cells[..., order].flatten(2), grid, patch)


def refine(order: Tensor, grid: tuple[int, int], finer: tuple[int, int]) -> Tensor:
    """The order that moving the cells of ``grid`` means for the cells of a ``finer`` grid: (…, N) → (…, N finer)."""
    _check_finer(grid, finer)
    index = torch.arange(finer[0] * finer[1], device=order.device).view(1, 1, *finer)
    batch = index.expand(len(order), -1, -1, -1) if order.ndim == 2 else index
    return rearrange(batch, grid, order).flatten(1).view(*order.shape[:-1], -1)


def enlarge(mask: Tensor, grid: tuple[int, int], finer: tuple[int, int]) -> Tensor:
    """A mask of the cells of ``grid`` as one of the cells of a ``finer`` grid: (B, N) → (B, N finer)."""
    _check_finer(grid, finer)
    rows, columns = (new // old for old, new in zip(grid, finer, strict=True))
    return mask.unflatten(1, grid).repeat_interleave(rows, 1).repeat_interleave(columns, 2).flatten(1)


def _check_finer(grid: tuple[int, int], finer: tuple[int, int]) -> None:
    if min(grid) < 1 or finer[0] % grid[0] or finer[1] % grid[1]:
        raise UserError(
            f"cells of a {grid[0]}x{grid[1]} grid are not made of whole patches of a {finer[0]}x{finer[1]} grid; "
            "choose rows and columns that divide the model's"
        )
