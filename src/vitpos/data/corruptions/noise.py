"""Noise that changes each value of an image independently: gaussian, impulse and shot noise."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from vitpos.data.corruptions._random import LEVELS, BlockRandom, look_up, normal_quantiles

COARSE = 4  # shot noise uses every fourth random level only, so that its table fits into the processor's cache


def gaussian_noise(images: Tensor, rng: BlockRandom, std: float) -> Tensor:
    """Adds normal noise to every value of uint8 images (B, C, height, width); ``std`` is a fraction of white (255)."""
    return _add_noise(images, rng, (255 * std * normal_quantiles()).floor())


def impulse_noise(images: Tensor, rng: BlockRandom, amount: float) -> Tensor:
    """Sets a random fraction ``amount`` of the values of uint8 images (B, C, height, width) to 0 or 255, half each."""
    replaced = round(LEVELS * amount / 2)
    noise = torch.zeros(LEVELS)
    noise[:replaced], noise[LEVELS - replaced :] = -255, 255
    return _add_noise(images, rng, noise)


def shot_noise(images: Tensor, rng: BlockRandom, photons: float) -> Tensor:
    """Replaces each value of uint8 images (B, C, height, width) by a random photon count, scaled back to 0…255.

    The count has a Poisson distribution. Its mean is proportional to the value, and ``photons`` for white (255).
    """
    level = rng.levels(*images.shape[1:]) // COARSE
    return look_up(_shot_table(photons).to(images.device), level.add_(images, alpha=LEVELS // COARSE))


def _add_noise(images: Tensor, rng: BlockRandom, noise: Tensor) -> Tensor:
    """Adds to each value of uint8 images (B, C, height, width) a random entry of ``noise``, clamped to 0…255.

    ``noise`` (65536,) has integer values, which are equally likely. ImageNet-C's code adds floats and then truncates;
    truncating the noise first gives the same result.
    """
    added = look_up(noise.short().to(images.device), rng.levels(*images.shape[1:]))
    return added.add_(images).clamp_(0, 255).byte()


@lru_cache(maxsize=5)  # one per severity
def _shot_table(photons: float) -> Tensor:
    """Returns the table of shot noise, uint8 (256 · 16384,): for each value 0…255, 16,384 equally likely noisy values.

    ``photons`` is the mean photon count of white.
    """
    max_count = math.ceil(photons + 6 * math.sqrt(photons) + 6)
    count = torch.arange(max_count + 1, dtype=torch.float64)
    mean = torch.arange(256, dtype=torch.float64)[:, None] * photons / 255
    probability = (torch.xlogy(count, mean) - mean - torch.lgamma(count + 1)).exp()  # (256, counts)
    cumulative = (probability.cumsum(1) * (LEVELS // COARSE)).round().long()
    cumulative[:, -1] = LEVELS // COARSE
    values = (255 * count / photons).floor().clamp_max(255).byte()
    repeats = cumulative.diff(dim=1, prepend=cumulative.new_zeros(256, 1))
    return values.repeat(256).repeat_interleave(repeats.flatten())
