"""Block-diagonalizes matrices over grid positions that flipping the grid leaves unchanged; speeds up ``null_models``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class MirrorSymmetry:
    """Orthogonal change of basis for vectors with one entry per position of a grid (N = R·C entries).

    Each new basis vector is even or odd under flipping the rows, and even or odd under flipping the columns: four
    groups. A symmetric matrix (N, N) that both flips leave unchanged has no entries between groups in this basis, so it
    has four diagonal blocks. Computing its eigenvectors takes a sixteenth of the time, and a product with it a quarter.
    The random tables of ``null_models``, which need both, are sampled 1.5–1.7 times faster from 24×24 positions.

    Args:
        grid: number of rows R and columns C.
    """

    def __init__(self, grid: tuple[int, int]):
        self.grid = grid
        self.bases = [_parity_basis(side) for side in grid]
        odd = [torch.arange(side) >= (side + 1) // 2 for side in grid]
        parity = (2 * odd[0][:, None] + odd[1].long()).flatten()
        self.order = parity.argsort(stable=True)
        self.sizes = [size for size in parity.bincount().tolist() if size]

    def split(self, x: Tensor) -> list[Tensor]:
        """Splits x (…, N, q), q columns with one entry per grid position, into parts even or odd under flips of the grid.

        Returns the coefficients of x in an orthogonal basis: up to four tensors (…, n, q), one for each combination of
        even or odd under flipping the rows and even or odd under flipping the columns. Their lengths n add up to N.
        """
        rows, columns = (basis.to(x.dtype) for basis in self.bases)
        y = columns @ (rows @ x.unflatten(-2, self.grid).flatten(-2)).unflatten(-1, (self.grid[1], x.shape[-1]))
        return list(y.flatten(-3, -2)[..., self.order, :].split(self.sizes, -2))

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Returns x (…, N, q), with one row per grid position, from its ``parts``: the inverse of :meth:`split`.

        ``parts`` are the up to four tensors (…, n, q) that ``split`` returned; their lengths n add up to N.
        """
        x = torch.cat(list(parts), -2)[..., self.order.argsort(), :].unflatten(-2, self.grid)
        rows, columns = (basis.mT.to(x.dtype) for basis in self.bases)
        y = rows @ (columns @ x).flatten(-2)
        return y.unflatten(-1, (self.grid[1], x.shape[-1])).flatten(-3, -2)

    def blocks(self, matrix: Tensor) -> list[Tensor]:
        """Returns the up to four diagonal blocks (…, n, n) of matrices (…, N, N) over grid positions in another basis.

        Each new basis vector is even or odd under flipping the rows of the grid, and even or odd under flipping its
        columns; there is one block per combination, and the sizes n add up to N. The matrices must be equal to their
        transpose and stay the same if the grid is flipped; all entries outside the blocks are then zero.
        """
        return [self.split(part.mT)[parity] for parity, part in enumerate(self.split(matrix))]


def _parity_basis(side: int) -> Tensor:
    """Returns an orthogonal matrix (side, side) whose rows are even (equal to their reverse) or odd (minus it).

    The first ``(side + 1) // 2`` rows are even, the others odd.
    """
    half, identity = side // 2, torch.eye(side, dtype=torch.float64)
    reversed_ = identity.flip(1)
    even, odd = ((identity + sign * reversed_)[:half] / math.sqrt(2) for sign in (1, -1))
    return torch.cat([even, identity[half : side - half], odd])
