"""Reproducible random numbers for one block of images."""

from __future__ import annotations

import random
from functools import cache

import torch
from torch import Tensor

LEVELS = 2**16  # number of different random values, enough for uint8 images


class BlockRandom:
    """A source of random numbers for a block of ``count`` images, returned as tensors on ``device``.

    They are sampled on the CPU, so that they are the same on every device. ``name`` is a text that serves as the seed: the
    same name gives the same numbers.
    """

    def __init__(self, name: str, count: int, device: torch.device):
        self.generator = torch.Generator().manual_seed(random.Random(name).getrandbits(63))
        self.count, self.device = count, device

    def levels(self, *shape: int) -> Tensor:
        """Samples integers uniformly from 0 to 65,535: returns (count, *shape), where count is the number of images."""
        size = torch.Size((self.count, *shape))
        words = torch.empty((size.numel() + 3) // 4, dtype=torch.int64)  # four numbers per word: sampling is the cost
        words.random_(-(2**63), None, generator=self.generator)
        return words.view(torch.int16)[: size.numel()].to(self.device).int().add_(LEVELS // 2).view(size)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Samples floats uniformly from ``low`` to ``high``: (count, *shape), where count is the number of images."""
        return self.levels(*shape).float().mul_((high - low) / LEVELS).add_(low + (high - low) / LEVELS / 2)

    def normal(self, mean: float, std: float, *shape: int) -> Tensor:
        """Samples floats from a normal distribution: (count, *shape), where count is the number of images."""
        return look_up(normal_quantiles().to(self.device) * std + mean, self.levels(*shape))


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Returns the entries of ``table`` (n,) at the integers ``index``, in the shape of ``index``."""
    return table.index_select(0, index.flatten()).view(index.shape)


@cache
def normal_quantiles() -> Tensor:
    """Returns 65,536 equally likely values of the standard normal distribution, (65536,), in ascending order."""
    probability = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.special.ndtri(probability).float()
