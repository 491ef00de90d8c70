"""Weights, images and permutations that depend on a name alone and are the same on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def draw(name: str, *shape: int) -> Tensor:
    """Uniform numbers of mean 0 and variance 1 in float64, drawn by a name; exact on every machine."""
    uniform = np.random.RandomState(zlib.crc32(name.encode())).random_sample(shape)
    return torch.as_tensor((uniform - 0.5) * 12**0.5)


def weights(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Large random values for every float tensor of an old state dict, each drawn by its old name."""
    made = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            made[name] = torch.zeros(shape, dtype=torch.long)
            continue
        size = min(0.5, 1.5 * shape[1] ** -0.5) if len(shape) == 2 else 0.5
        value = size * draw(name, *shape)
        made[name] = value.abs() + 0.5 if name.endswith("running_var") else value
    return made


def order(images: int, count: int) -> Tensor:
    """(images, count): a permutation for each image."""
    return draw("order", images, count).argsort(1)


def hidden(images: int, count: int) -> Tensor:
    """(images, count): True for four positions of each image."""
    return draw("hidden", images, count).argsort(1) < 4


def next_numbers() -> list[int]:
    """What torch's generator would draw next; the generator is left as it is."""
    with torch.random.fork_rng(devices=[]):
        return torch.randint(2**31, (4,)).tolist()
