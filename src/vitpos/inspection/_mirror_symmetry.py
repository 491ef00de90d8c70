"""Block-diagonalizes matrices over a grid that are unchanged when the grid is mirrored, to speed up the null models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class MirrorSymmetry:
    """Orthogonal change of basis of functions on a grid: even or odd under flipping rows, and under flipping columns.

    A symmetric matrix (N, N) that is unchanged by both flips has no entries between the four parity classes. Its
    eigenvectors cost a sixteenth and its products a quarter of the time; sampling null tables is 1.5–1.7 times faster
    from 24×24 positions.
    """

    def __init__(self, grid: tuple[int, int]):
        self.grid = grid
        self.bases = [_parity_basis(side) for side in grid]
        odd = [torch.arange(side) >= (side + 1) // 2 for side in grid]
        parity = (2 * odd[0][:, None] + odd[1].long()).flatten()
        self.order = parity.argsort(stable=True)
        self.sizes = [size for size in parity.bincount().tolist() if size]

    def split(self, x: Tensor) -> list[Tensor]:
        """(…, N, q) → up to four (…, n, q): coefficients of the q columns in each parity class."""
        rows, columns = (basis.to(x.dtype) for basis in self.bases)
        y = columns @ (rows @ x.unflatten(-2, self.grid).flatten(-2)).unflatten(-1, (self.grid[1], x.shape[-1]))
        return list(y.flatten(-3, -2)[..., self.order, :].split(self.sizes, -2))

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Up to four (…, n, q) → (…, N, q): the inverse of :meth:`split`."""
        x = torch.cat(list(parts), -2)[..., self.order.argsort(), :].unflatten(-2, self.grid)
        rows, columns = (basis.mT.to(x.dtype) for basis in self.bases)
        y = rows @ (columns @ x).flatten(-2)
        return y.unflatten(-1, (self.grid[1], x.shape[-1])).flatten(-3, -2)

    def blocks(self, matrix: Tensor) -> list[Tensor]:
        """Up to four diagonal blocks (…, n, n) of symmetric matrices (…, N, N) that both flips leave unchanged."""
        return [self.split(part.mT)[parity] for parity, part in enumerate(self.split(matrix))]


def _parity_basis(side: int) -> Tensor:
    """(side, side): orthogonal matrix whose first rows are even and last rows odd under reversal."""
    half, identity = side // 2, torch.eye(side, dtype=torch.float64)
    reversed_ = identity.flip(1)
    even, odd = ((identity + sign * reversed_)[:half] / math.sqrt(2) for sign in (1, -1))
    return torch.cat([even, identity[half : side - half], odd])
