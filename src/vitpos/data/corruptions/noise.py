"""Noise: each value of a picture by itself."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from vitpos.data.corruptions._random import LEVELS, Draws, look_up, quantiles

COARSE = 4  # shot noise takes one of so many levels for the next, so that its table stays in the processor's cache


def gaussian_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Normal noise on every value; ``deviation`` is a share of white."""
    return _added(images, draws, (255 * deviation * quantiles()).floor())


def impulse_noise(images: Tensor, draws: Draws, amount: float) -> Tensor:
    """A share of the values lost, half of them to black and half to white."""
    lost = round(LEVELS * amount / 2)
    steps = torch.zeros(LEVELS)
    steps[:lost], steps[LEVELS - lost :] = -255, 255
    return _added(images, draws, steps)


def shot_noise(images: Tensor, draws: Draws, photons: float) -> Tensor:
    """As many photons as a Poisson distribution gives, where white is ``photons`` on average."""
    level = draws.levels(*images.shape[1:]) // COARSE
    return look_up(_counted(photons).to(images.device), level.add_(images, alpha=LEVELS // COARSE))


def _added(images: Tensor, draws: Draws, steps: Tensor) -> Tensor:
    """The bytes with one of the whole ``steps`` (LEVELS,) added to each, all equally likely.

    A whole number and a fraction, cut off, is the whole number and the fraction cut off: steps may be cut beforehand.
    """
    step = look_up(steps.short().to(images.device), draws.levels(*images.shape[1:]))
    return step.add_(images).clamp_(0, 255).byte()


@lru_cache(maxsize=5)  # one for each severity
def _counted(photons: float) -> Tensor:
    """The bytes that come of each byte (256 · LEVELS / COARSE), at each level of chance."""
    most = math.ceil(photons + 6 * math.sqrt(photons) + 6)
    count = torch.arange(most + 1, dtype=torch.float64)
    mean = torch.arange(256, dtype=torch.float64)[:, None] * photons / 255
    chance = (torch.xlogy(count, mean) - mean - torch.lgamma(count + 1)).exp()  # (256, counts)
    below = (chance.cumsum(1) * (LEVELS // COARSE)).round().long()
    below[:, -1] = LEVELS // COARSE
    values = (255 * count / photons).floor().clamp_max(255).byte()
    return values.repeat(256).repeat_interleave(below.diff(dim=1, prepend=below.new_zeros(256, 1)).flatten())
