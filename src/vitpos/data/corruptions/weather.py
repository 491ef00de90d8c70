"""Snow, frost, fog and brightness."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from vitpos.data.corruptions._filters import blur_along_line, to_uint8, upscale
from vitpos.data.corruptions._random import LEVELS, BlockRandom
from vitpos.data.image_ops import to_gray

FROST_MEANS = (122.0, 177.0, 208.0, 152.0, 123.0, 90.0)  # mean gray levels of the six published photographs of frost
FROST_TINT = (0.9, 1.02, 1.08)  # factors of red, green and blue: frost is bluish
FROST_STD = 30.0  # of a texture, in gray levels


def snow(
    images: Tensor,
    rng: BlockRandom,
    mean: float,
    std: float,
    size: float,
    threshold: float,
    radius: float,
    blur_std: float,
    kept: float,
) -> Tensor:
    """Adds motion-blurred flakes, and the same flakes rotated by 180°, to uint8 images that are whitened.

    Args:
        images: uint8 images (B, C, height, width).
        rng: Random numbers.
        mean: Mean of the normal noise that flakes are made of; 1 is white.
        std: Std of that noise.
        size: Factor by which the noise is upscaled.
        threshold: Noise below it is set to 0.
        radius: Radius of the motion blur in pixels.
        blur_std: Std of the motion blur in pixels.
        kept: Weight of the original image, 0 to 1; the whitened image has the weight 1 − ``kept``.
    """
    height, width = images.shape[2:]
    noise = rng.normal(mean, std, 1, math.ceil(height / size), math.ceil(width / size))
    flakes = upscale(noise, size)
    flakes = flakes.where(flakes >= threshold, 0.0).clamp_(0, 1)
    angle_range = (-135.0, -45.0)
    flakes = blur_along_line(flakes, rng.uniform(*angle_range), angle_range, radius=int(radius), std=blur_std)
    flakes = flakes[:, :, :height, :width].mul(255).round_()
    pixels = images.float()
    whitened = torch.maximum(pixels, 1.5 * to_gray(pixels) + 127.5)
    return to_uint8(pixels.lerp_(whitened, 1 - kept).add_(flakes).add_(flakes.flip(2, 3)))


def frost(images: Tensor, rng: BlockRandom, image_weight: float, frost_weight: float) -> Tensor:
    """Returns ``image_weight`` · image + ``frost_weight`` · frost for each of the uint8 images (B, C, height, width).

    The frost is a random crop of one of six textures. ImageNet-C uses photographs, which cannot be redistributed. The
    textures here are procedural, with the mean, color and std of the photographs but not their shapes: classification
    errors are not comparable with published ones.
    """
    height, width = images.shape[2:]
    textures = _frost_textures(2 * max(height, width)).to(images.device)
    crops = textures.unfold(1, height, 1).unfold(2, width, 1)  # (6, tops, lefts, height, width)
    texture, top, left = (
        rng.levels().mul_(choices).div(LEVELS, rounding_mode="floor").long() for choices in crops.shape[:3]
    )
    crop = crops[texture, top, left][:, None]
    tint = torch.tensor(FROST_TINT if images.shape[1] == 3 else [1.0], device=images.device).view(-1, 1, 1)
    return to_uint8(images.float().mul_(image_weight).add_(crop * (frost_weight * tint)))


def fog(images: Tensor, rng: BlockRandom, thickness: float, decay: float) -> Tensor:
    """Adds random clouds to uint8 images (B, C, height, width) and scales the sum down.

    After scaling, no value exceeds the maximum of the original image. ``thickness`` is the weight of the clouds; before
    scaling, 1 adds 0 to 255. A larger ``decay`` makes the clouds smoother at fine scales.
    """
    height, width = images.shape[2:]
    clouds = plasma(rng, 1 << (max(height, width) - 1).bit_length(), decay)[:, None, :height, :width]
    pixels = images.float()
    maximum = pixels.amax((1, 2, 3), keepdim=True)
    scale = maximum / (maximum + 255 * thickness)
    return to_uint8(pixels.mul_(scale).add_(clouds * (scale * 255 * thickness)))


def brightness(images: Tensor, rng: BlockRandom, added: float) -> Tensor:
    """Adds ``added``, a fraction of white, to the value channel (HSV) of uint8 images.

    Hue and saturation are kept; black becomes gray. ``rng`` is not used, because nothing is random.
    """
    pixels = images.float()
    value = pixels.amax(1, keepdim=True)
    brighter = (value + 255 * added).clamp_max_(255)
    of_black = brighter.where(value == 0, 0.0)
    return to_uint8(pixels.mul_(brighter / value.clamp_min(1)).add_(of_black))


def plasma(rng: BlockRandom, side: int, decay: float) -> Tensor:
    """Generates random clouds (B, side, side) with values from 0 to 1, which are periodic; ``side`` is a power of 2.

    The diamond-square algorithm doubles the resolution in each step. A new pixel is the mean of its four neighbors plus
    a random number from −r² to r². r is 100 in the first step and is divided by ``decay`` after each step. B is the
    number of images of ``rng``.
    """
    noise = rng.uniform(-1, 1, side**2)
    clouds = torch.zeros(rng.count, 1, 1, device=rng.device)
    roughness = 100.0
    while (size := clouds.shape[1]) < side:
        new = noise[:, size**2 : 4 * size**2].unflatten(1, (3, size, size)).mul_(roughness**2)
        center, above, left = new.unbind(1)
        pair = clouds + clouds.roll(-1, 1)
        center.add_(pair + pair.roll(-1, 2), alpha=0.25)
        above.add_(center + center.roll(1, 1) + clouds + clouds.roll(-1, 2), alpha=0.25)
        left.add_(center + center.roll(1, 2) + pair, alpha=0.25)
        finer = clouds.new_empty(rng.count, size, 2, size, 2)
        finer[:, :, 0, :, 0], finer[:, :, 0, :, 1], finer[:, :, 1, :, 0], finer[:, :, 1, :, 1] = (
            clouds,
            above,
            left,
            center,
        )
        clouds = finer.flatten(3).flatten(1, 2)
        roughness /= decay
    low, high = clouds.amin((1, 2), keepdim=True), clouds.amax((1, 2), keepdim=True)
    return clouds.sub_(low).div_(high - low)


@lru_cache(maxsize=4)
def _frost_textures(side: int) -> Tensor:
    """Generates six frost textures (6, side, side), gray levels from 0 to 255: ridges of noise, weaker at finer scales."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.fft.rfft2(torch.randn(2, len(FROST_MEANS), side, side, generator=generator))
    rows, columns = torch.fft.fftfreq(side)[:, None] * side, torch.fft.rfftfreq(side) * side
    falloff = (rows**2 + columns**2).clamp_min(1) ** -0.65
    fields = torch.fft.irfft2(noise * falloff, s=(side, side))
    fields = fields / fields.std((2, 3), keepdim=True)
    ridges = fields[0] - fields[1].abs()  # smooth veils, and sharp lines where the second field changes its sign
    ridges = (ridges - ridges.mean((1, 2), keepdim=True)) / ridges.std((1, 2), keepdim=True)
    return (torch.tensor(FROST_MEANS).view(-1, 1, 1) + FROST_STD * ridges).clamp(0, 255)
