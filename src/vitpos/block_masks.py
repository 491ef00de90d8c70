"""Random block masks of a grid, permutations within a mask, and when Masked Jigsaw Puzzle (MJP) training uses them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError, Notice
from vitpos.patches import check_finer

PROPOSALS = 10  # rectangles that are sampled before a mask is taken as it is
BlockSize = Literal["scaled", "published", "exact"]
BLOCK_OPTIONS: dict[BlockSize, dict[str, Any]] = {
    "scaled": {},
    "published": {"min_area": 8, "max_area": 75},
    "exact": {"exact_count": True},
}


@dataclass(frozen=True)
class BlockMaskSampler:
    """Samples the patches that Masked Jigsaw Puzzle (MJP) training masks, and the order in which it permutes them.

    Used by the encoding ``mjp``, which permutes tokens, and the augmentation ``jigsaw``, which permutes pixels.

    Args:
        name: Name of the encoding or augmentation, for error messages.
        mask_ratio: Maximum fraction of the grid cells that are masked.
        mask_per: One mask for the ``"batch"``, or one per ``"image"``.
        mask_prob: Probability that a batch is masked.
        mask_warmup: Fraction of training, from the start, without masks.
        block_size: Areas of the masked rectangles: ``"published"`` is 8 to 75 cells, made for a 14×14 grid;
            ``"scaled"`` scales these areas with the number of cells of the grid; ``"exact"`` is ``"scaled"``, plus
            random single cells until the mask reaches ``mask_ratio``.
        derangement: Whether every masked patch must change its position.
    """

    name: str
    mask_ratio: float
    mask_per: Literal["batch", "image"]
    mask_prob: float
    mask_warmup: float
    block_size: BlockSize
    derangement: bool

    def __post_init__(self) -> None:
        for option in ("mask_ratio", "mask_prob", "mask_warmup"):
            if not 0 <= getattr(self, option) <= 1:
                raise InputError(f"{self.name} got {option}={getattr(self, option)}; choose a number from 0 to 1")

    def check(self, grid: tuple[int, int], *, shuffle: bool = True) -> None:
        """Raises InputError if ``mask_ratio`` is above 0 but too small to mask one cell of ``grid`` (rows, columns).

        Warns if it masks one cell only, whose patch cannot be shuffled; not if ``shuffle`` is False, i.e. if the masked
        patches keep their order anyway.
        """
        cells = grid[0] * grid[1]
        masked = int(self.mask_ratio * cells + 1e-9)
        given = f"{self.name} got mask_ratio={self.mask_ratio}, which masks"
        where = f"of the {cells} cells of a {grid[0]}x{grid[1]} grid"
        if self.mask_ratio and not masked:
            raise InputError(f"{given} none {where}; take 0, or {_round_up(1 / cells)} and more")
        if masked == 1 < cells and shuffle:
            warnings.warn(f"{given} 1 {where} and shuffles nothing; take {_round_up(2 / cells)} or more", Notice, 2)

    def sample_mask(self, grid: tuple[int, int], images: int, progress: float, device: torch.device) -> Tensor | None:
        """Returns random masks (images|1, N) of the N grid cells, True where masked; None if this batch is not masked.

        The first dimension is 1 if all images share a mask.

        Args:
            grid: Rows and columns; N is their product.
            images: Number of images in the batch.
            progress: Fraction of training that is done, 0 to 1.
            device: Device of the masks.
        """
        if not self.mask_ratio or progress < self.mask_warmup:
            return None
        if self.mask_prob < 1 and torch.rand(()) >= self.mask_prob:
            return None
        batch = 1 if self.mask_per == "batch" else images
        return block_mask(grid, self.mask_ratio, batch=batch, device=device, **BLOCK_OPTIONS[self.block_size])

    def sample_order(self, mask: Tensor) -> Tensor:
        """Returns a random permutation ``order`` (images|1, N) of the cells where ``mask`` (images|1, N) is True.

        Cell i gets the content of cell ``order[:, i]``; cells outside the mask keep theirs.
        """
        return permute_masked(mask, derangement=self.derangement)


def _round_up(ratio: float) -> float:
    """Returns a ratio above 0, rounded up to three significant digits, so that it masks as many cells as the exact one."""
    digits = 2 - math.floor(math.log10(ratio))
    return math.ceil(ratio * 10**digits - 1e-9) / 10**digits


def block_mask(
    grid: tuple[int, int],
    ratio: float,
    *,
    batch: int = 1,
    min_area: int | None = None,
    max_area: int | None = None,
    exact_count: bool = False,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Returns random masks (batch, N) of rectangles that cover at most int(ratio·N) of the N grid cells; True is masked.

    BEiT's block-wise masking as Masked Jigsaw Puzzle (MJP) uses it, vectorized over the batch. Rectangles are added one by
    one. The area of each is uniform from ``min_area`` to the number of cells that may still be masked, at most
    ``max_area``; its aspect ratio is log-uniform from 0.3 to 1/0.3. Of ten sampled rectangles the first is added that masks
    a new cell without exceeding the maximum; if there is none, the mask is complete.

    Args:
        grid: Rows and columns.
        ratio: Maximum fraction of masked cells; 1 masks all.
        batch: Number of masks.
        min_area: Minimum area of a rectangle, by default 8 cells of a 14×14 grid, scaled to this grid.
        max_area: Maximum area of a rectangle, by default 75 cells of a 14×14 grid, scaled to this grid.
        exact_count: Adds random single cells until int(ratio·N) are masked.
        generator: Random generator; torch's global one by default.
        device: Device of the masks.
    """
    rows, columns = grid
    count = rows * columns
    if not 0 <= ratio <= 1 or batch < 1 or min(grid) < 1:
        raise InputError(
            f"cannot make {batch} masks of ratio {ratio} on a grid of {grid}; choose a ratio from 0 to 1 and 1 or more "
            "masks, rows and columns"
        )
    if ratio == 1:
        return torch.ones(batch, count, dtype=torch.bool, device=device)
    target = int(ratio * count + 1e-9)
    min_area = min_area or max(1, round(count * 8 / 196))
    max_area = max_area or max(1, round(count * 75 / 196))
    free = F.pad(torch.ones(batch, rows, columns, device=device), (1, 0, 1, 0))  # zeros for the cumulative sums
    result, active = free.clone(), torch.arange(batch, device=device)
    left = torch.full((batch, 1), float(target), device=device)  # cells still to mask; 0 if a mask is complete
    size = torch.tensor([rows, columns], device=device)[:, None, None]
    starts, single = size + 1, size == 1  # a rectangle is smaller than the grid, unless the grid has one row or column
    row_index, column_index = (torch.arange(side + 1, device=device) for side in grid)
    smallest, num_active = left.new_tensor(float(min_area)), batch if target else 0
    while num_active:
        room = left.clamp_max(max_area)
        uniform = torch.rand(4, len(left), PROPOSALS, generator=generator, device=device)
        side = torch.lerp(smallest, room, uniform[0]).sqrt_()
        stretch = uniform[1].sub_(0.5).mul_(-math.log(0.3)).exp_()
        sides = torch.stack([side * stretch, side / stretch]).round_()  # (2, B, proposals), height and width
        fits = ((sides < size) | single).all(0)
        sides = torch.minimum(sides, size)
        start = uniform[2:].mul_(starts - sides).floor_()
        edges = torch.stack([start, start + sides]).long()  # (from or to, row or column, B, proposals)
        added = _rectangle_sums(free, edges)  # cells that each proposal would mask
        valid = fits & (added > 0) & (added <= room)
        found, first = valid.max(1, keepdim=True)
        (top, west), (bottom, east) = edges.gather(3, first.expand(2, 2, -1, -1)) * found  # each (B, 1)
        in_rows = ((row_index > top) & (row_index <= bottom)).float()
        in_columns = ((column_index > west) & (column_index <= east)).float()
        free.addcmul_(in_rows[:, :, None], in_columns[:, None], value=-1).clamp_min_(0)
        left = (left - added.gather(1, first)).mul_(found)
        num_active = int(left.count_nonzero())
        if 2 * num_active < len(left):  # go on with the incomplete masks alone
            result[active] = free
            kept = left.nonzero()[:, 0]
            active, free, left = active[kept], free[kept], left[kept]
    result[active] = free
    mask = (result[:, 1:, 1:] == 0).flatten(1)
    if exact_count:
        order = torch.rand(batch, count, generator=generator, device=device).masked_fill_(mask, -1).argsort(1)
        mask = mask.scatter(1, order[:, :target], torch.ones_like(mask))
    return mask


def _rectangle_sums(cells: Tensor, edges: Tensor) -> Tensor:
    """Returns the sums (B, A) of ``cells`` (B, R + 1, C + 1) inside A rectangles per image, by a summed-area table.

    Args:
        cells: Values of the grid cells, after a first row and a first column of zeros.
        edges: (2, 2, B, A), first row and column of each rectangle, then the row and column after its last.
    """
    table = cells.cumsum(1).cumsum_(2)
    corners = edges[:, None, 0] * cells.shape[2] + edges[None, :, 1]  # (2 rows, 2 columns, B, A)
    found = table.flatten(1).gather(1, corners.permute(2, 0, 1, 3).flatten(1)).unflatten(1, (4, -1))
    return found[:, 0] + found[:, 3] - found[:, 1] - found[:, 2]


def permute_masked(mask: Tensor, *, derangement: bool = False, generator: torch.Generator | None = None) -> Tensor:
    """Returns a random permutation ``order`` (B, N) of the cells where ``mask`` (B, N) is True.

    Cell i of image b gets the content of cell ``order[b, i]``; cells outside the mask keep theirs. All permutations are
    equally likely, so that on average one masked cell keeps its content. With ``derangement`` the cells move along one
    random cycle instead, and none keeps its content unless it is the only one.
    """
    index = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    last = mask.shape[1] + index.double()  # unmasked cells are sorted behind the masked ones, in their own order
    uniform = torch.rand(mask.shape, generator=generator, device=mask.device, dtype=torch.float64)
    shuffled = torch.where(mask, uniform, last).argsort(1)
    if not derangement:
        return index.scatter(1, torch.where(mask, index, last).argsort(1), shuffled)
    inside = mask.sum(1, keepdim=True)
    successor = torch.where(index < inside, (index + 1) % inside.clamp_min(1), index)
    return index.scatter(1, shuffled, shuffled.gather(1, successor))


def upsample_mask(mask: Tensor, grid: tuple[int, int], finer: tuple[int, int]) -> Tensor:
    """Converts a mask (B, N) of the cells of ``grid`` to a mask (B, N') of the cells of a ``finer`` grid.

    Grids are (rows, columns). The cells of the finer grid subdivide those of ``grid``.
    """
    check_finer(grid, finer)
    rows, columns = (new // old for old, new in zip(grid, finer, strict=True))
    return mask.unflatten(1, grid).repeat_interleave(rows, 1).repeat_interleave(columns, 2).flatten(1)
