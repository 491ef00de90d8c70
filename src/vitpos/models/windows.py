"""Partition of a token grid into shifted windows and back (Swin; Liu et al., ICCV 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.positions import Positions


@dataclass(frozen=True)
class Windows:
    """A partition of a token grid into W windows of n tokens each, with the attention mask that Swin uses inside them.

    Args:
        grid: Rows and columns of the grid.
        size: Rows and columns of a window.
        shift: Rows and columns by which the windows are shifted, cyclically.
    """

    grid: tuple[int, int]
    size: tuple[int, int]
    shift: tuple[int, int]  # rows and columns by which windows are shifted, cyclically

    @staticmethod
    def of(grid: tuple[int, int], window: tuple[int, int], *, shifted: bool) -> Windows:
        """Returns the partition of a grid into windows of ``window`` (rows, columns), or smaller if the grid is smaller.

        ``shifted`` shifts them by half a window, along axes with more than one window.
        """
        rows, columns = (side // 2 if shifted and cells > side else 0 for cells, side in zip(grid, window, strict=True))
        size = min(window[0], grid[0]), min(window[1], grid[1])
        return Windows(grid, size, (rows, columns))

    def partition(self, x: Tensor) -> Tensor:
        """Cuts tokens (B, R, C, D) into windows (B·W, n, D), after the cyclic shift and zero padding to whole windows."""
        if any(self.shift):
            x = x.roll((-self.shift[0], -self.shift[1]), (1, 2))
        rows, columns = (size - cells for size, cells in zip(self._padded, self.grid, strict=True))
        return self._tile(F.pad(x, (0, 0, 0, columns, 0, rows)) if rows or columns else x)

    def reverse(self, x: Tensor) -> Tensor:
        """Puts windows (B·W, n, D) back on the grid (B, R, C, D): the inverse of ``partition``; padding is removed."""
        many = tuple(cells // side for cells, side in zip(self._padded, self.size, strict=True))
        x = x.unflatten(1, self.size).unflatten(0, (-1, *many)).transpose(2, 3)
        x = x.flatten(3, 4).flatten(1, 2)[:, : self.grid[0], : self.grid[1]]
        return x.roll(self.shift, (1, 2)) if any(self.shift) else x

    def mask(self, x: Tensor) -> Tensor | None:
        """Returns the attention mask (W, 1, n, n) in the dtype of x, or None if windows are neither shifted nor padded.

        It is −∞ between tokens of a window that are not neighbors in the image (the cyclic shift brought them together)
        and between tokens and padding, and 0 elsewhere.
        """
        if not any(self.shift) and self._padded == self.grid:
            return None
        grid = Positions.from_grid(self.grid, device=x.device)
        return grid.cached(("windows", self.size, self.shift, x.dtype), lambda: self._mask(x.device, x.dtype))

    def _mask(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        rows, columns = (self._regions(axis, device) for axis in (0, 1))
        regions = self._tile((3 * rows[:, None] + columns)[None, ..., None])  # (W, n, 1)
        different = regions != regions.mT  # (W, n, n)
        return torch.zeros_like(different, dtype=dtype).masked_fill(different, -torch.inf)[:, None]

    def _regions(self, axis: int, device: torch.device) -> Tensor:
        """Returns the region of each row (``axis`` 0) or column (``axis`` 1) of the grid after shift and padding.

        0: tokens in their original order, 1: tokens that the shift moved to the end, 2: padding. Tokens attend only to
        tokens of the same region.
        """
        at, cells = torch.arange(self._padded[axis], device=device), self.grid[axis]
        return (at >= cells - self.shift[axis]).long() + (at >= cells)

    def _tile(self, x: Tensor) -> Tensor:
        """Cuts x (B, rows, columns, D), whose sides are multiples of the window, into windows (B·W, n, D)."""
        x = x.unflatten(2, (-1, self.size[1])).unflatten(1, (-1, self.size[0]))
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)

    @property
    def _padded(self) -> tuple[int, int]:
        rows, columns = (-(-cells // side) * side for cells, side in zip(self.grid, self.size, strict=True))
        return rows, columns
