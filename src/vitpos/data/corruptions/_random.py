"""The random numbers of one block of pictures."""

from __future__ import annotations

import random
from functools import cache

import torch
from torch import Tensor

LEVELS = 2**16  # a random number is one of so many, which is enough for bytes


class Draws:
    """Random numbers for ``count`` pictures, drawn on the CPU so that every device sees the same."""

    def __init__(self, name: str, count: int, device: torch.device):
        self.generator = torch.Generator().manual_seed(random.Random(name).getrandbits(63))
        self.count, self.device = count, device

    def levels(self, *shape: int) -> Tensor:
        """Whole numbers (count, *shape) from 0 to LEVELS − 1, all equally likely."""
        size = torch.Size((self.count, *shape))
        words = torch.empty((size.numel() + 3) // 4, dtype=torch.int64)  # four numbers to a word: drawing is the cost
        words.random_(-(2**63), None, generator=self.generator)
        return words.view(torch.int16)[: size.numel()].to(self.device).int().add_(LEVELS // 2).view(size)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers (count, *shape) between two bounds."""
        return self.levels(*shape).float().mul_((high - low) / LEVELS).add_(low + (high - low) / LEVELS / 2)

    def normal(self, mean: float, deviation: float, *shape: int) -> Tensor:
        """Normal numbers (count, *shape)."""
        return look_up(quantiles().to(self.device) * deviation + mean, self.levels(*shape))


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """The entries of a table (n,) at whole numbers of any shape."""
    return table.index_select(0, index.flatten()).view(index.shape)


@cache
def quantiles() -> Tensor:
    """The normal numbers (LEVELS,) that cut the distribution into equal parts, each part's middle."""
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.special.ndtri(middles).float()
