"""Reproducible random numbers for one block of images."""

from __future__ import annotations

import random
from functools import cache

import torch
from torch import Tensor

LEVELS = 2**16  # number of different random values, enough for uint8 images


class BlockRandom:
    """Random numbers for ``count`` images, sampled on the CPU so that they are the same on every device.

    ``name`` is a text that serves as the seed: the same name gives the same numbers.
    """

    def __init__(self, name: str, count: int, device: torch.device):
        self.generator = torch.Generator().manual_seed(random.Random(name).getrandbits(63))
        self.count, self.device = count, device

    def levels(self, *shape: int) -> Tensor:
        """Samples integers (count, *shape) uniformly from 0 to LEVELS − 1."""
        size = torch.Size((self.count, *shape))
        words = torch.empty((size.numel() + 3) // 4, dtype=torch.int64)  # four numbers per word: sampling is the cost
        words.random_(-(2**63), None, generator=self.generator)
        return words.view(torch.int16)[: size.numel()].to(self.device).int().add_(LEVELS // 2).view(size)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Samples floats (count, *shape) uniformly from ``low`` to ``high``."""
        return self.levels(*shape).float().mul_((high - low) / LEVELS).add_(low + (high - low) / LEVELS / 2)

    def normal(self, mean: float, std: float, *shape: int) -> Tensor:
        """Samples floats (count, *shape) from a normal distribution."""
        return look_up(normal_quantiles().to(self.device) * std + mean, self.levels(*shape))


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Returns the entries of ``table`` (n,) at integers of any shape."""
    return table.index_select(0, index.flatten()).view(index.shape)


@cache
def normal_quantiles() -> Tensor:
    """Returns LEVELS equally likely values of the standard normal distribution (LEVELS,), in ascending order."""
    probability = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.special.ndtri(probability).float()
