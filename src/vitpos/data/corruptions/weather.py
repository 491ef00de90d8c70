"""Snow, fog and bright light."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitpos.data.corruptions._filters import enlarged, settled, slid
from vitpos.data.corruptions._random import Draws
from vitpos.data.image_ops import grey


def snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    size: float,
    least: float,
    radius: float,
    fall: float,
    kept: float,
) -> Tensor:
    """Flakes of enlarged noise that fall, once as they are and once turned about, over a picture that gets paler."""
    height, width = images.shape[2:]
    noise = draws.normal(mean, deviation, 1, math.ceil(height / size), math.ceil(width / size))
    flakes = enlarged(noise, size)
    flakes = flakes.where(flakes >= least, 0.0).clamp_(0, 1)
    within = (-135.0, -45.0)
    flakes = slid(flakes, draws.uniform(*within), within, radius=int(radius), deviation=fall)
    flakes = flakes[:, :, :height, :width].mul(255).round_()
    pixels = images.float()
    pale = torch.maximum(pixels, 1.5 * grey(pixels) + 127.5)
    return settled(pixels.lerp_(pale, 1 - kept).add_(flakes).add_(flakes.flip(2, 3)))


def fog(images: Tensor, draws: Draws, thickness: float, decay: float) -> Tensor:
    """Clouds over a picture, which keeps its brightest value."""
    height, width = images.shape[2:]
    clouds = plasma(draws, 1 << (max(height, width) - 1).bit_length(), decay)[:, None, :height, :width]
    pixels = images.float()
    brightest = pixels.amax((1, 2, 3), keepdim=True)
    share = brightest / (brightest + 255 * thickness)
    return settled(pixels.mul_(share).add_(clouds * (share * 255 * thickness)))


def brightness(images: Tensor, draws: Draws, added: float) -> Tensor:
    """A share of white added to each pixel's brightest channel; its colour stays, and black becomes grey."""
    pixels = images.float()
    value = pixels.amax(1, keepdim=True)
    lifted = (value + 255 * added).clamp_max_(255)
    black = lifted.where(value == 0, 0.0)
    return settled(pixels.mul_(lifted / value.clamp_min(1)).add_(black))


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """Clouds (B, side, side) from 0 to 1, by the diamond-square algorithm on a torus; ``side`` is a power of 2.

    At each halving of the step, centres of squares and then of diamonds are the mean of their four corners and a random
    number within ± rough², and ``rough`` is divided by ``decay``.
    """
    chance = draws.uniform(-1, 1, side**2)
    clouds = torch.zeros(draws.count, 1, 1, device=draws.device)
    rough = 100.0
    while (known := clouds.shape[1]) < side:
        fresh = chance[:, known**2 : 4 * known**2].unflatten(1, (3, known, known)).mul_(rough**2)
        centre, above, left = fresh.unbind(1)
        pair = clouds + clouds.roll(-1, 1)
        centre.add_(pair + pair.roll(-1, 2), alpha=0.25)
        above.add_(centre + centre.roll(1, 1) + clouds + clouds.roll(-1, 2), alpha=0.25)
        left.add_(centre + centre.roll(1, 2) + pair, alpha=0.25)
        finer = clouds.new_empty(draws.count, known, 2, known, 2)
        finer[:, :, 0, :, 0], finer[:, :, 0, :, 1], finer[:, :, 1, :, 0], finer[:, :, 1, :, 1] = (
            clouds,
            above,
            left,
            centre,
        )
        clouds = finer.flatten(3).flatten(1, 2)
        rough /= decay
    low, high = clouds.amin((1, 2), keepdim=True), clouds.amax((1, 2), keepdim=True)
    return clouds.sub_(low).div_(high - low)
