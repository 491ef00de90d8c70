"""A grid and its mirror images: what treats them alike falls into four blocks, each of a quarter of the places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Mirrors:
    """Orthogonal coordinates of numbers on a grid: even or odd under a mirror of rows, and under one of columns.

    A symmetric matrix (N, N) that stays the same when the grid is mirrored has no entries between the four kinds: its
    eigenvectors are found, and sums of its products are made, in a sixteenth and in a quarter of the time.
    """

    def __init__(self, grid: tuple[int, int]):
        self.grid = grid
        self.turns = [_even_and_odd(side) for side in grid]
        kinds = [torch.arange(side) >= (side + 1) // 2 for side in grid]
        kind = (2 * kinds[0][:, None] + kinds[1].long()).flatten()
        self.order = kind.argsort(stable=True)
        self.sizes = [size for size in kind.bincount().tolist() if size]

    def split(self, x: Tensor) -> list[Tensor]:
        """(…, N, q) → up to four (…, n, q): what is even and odd of q columns."""
        rows, columns = (turn.to(x.dtype) for turn in self.turns)
        turned = columns @ (rows @ x.unflatten(-2, self.grid).flatten(-2)).unflatten(-1, (self.grid[1], x.shape[-1]))
        return list(turned.flatten(-3, -2)[..., self.order, :].split(self.sizes, -2))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Up to four (…, n, q) → (…, N, q), as they were before ``split``."""
        x = torch.cat(list(parts), -2)[..., self.order.argsort(), :].unflatten(-2, self.grid)
        rows, columns = (turn.mT.to(x.dtype) for turn in self.turns)
        turned = rows @ (columns @ x).flatten(-2)
        return turned.unflatten(-1, (self.grid[1], x.shape[-1])).flatten(-3, -2)

    def blocks(self, matrix: Tensor) -> list[Tensor]:
        """Up to four (…, n, n): all that there is of symmetric matrices (…, N, N) that mirrors do not change."""
        return [self.split(part.mT)[kind] for kind, part in enumerate(self.split(matrix))]


def _even_and_odd(side: int) -> Tensor:
    """(side, side): the orthogonal matrix that takes numbers to their even parts, then to their odd ones."""
    half, same = side // 2, torch.eye(side, dtype=torch.float64)
    mirrored = same.flip(1)
    even, odd = ((same + sign * mirrored)[:half] / math.sqrt(2) for sign in (1, -1))
    return torch.cat([even, same[half : side - half], odd])
