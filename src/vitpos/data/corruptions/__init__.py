"""The fifteen corruptions of ImageNet-C (Hendrycks and Dietterich, 1903.12261), on batches of uint8 images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitpos.data.corruptions._random import BlockRandom
from vitpos.data.corruptions.blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from vitpos.data.corruptions.digital import contrast, elastic_transform, jpeg_compression, pixelate
from vitpos.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise
from vitpos.data.corruptions.parameters import PARAMETERS
from vitpos.data.corruptions.weather import brightness, fog, frost, snow
from vitpos.errors import InputError

CORRUPTIONS: dict[str, Callable[..., Tensor]] = {  # name → function of uint8 images, random numbers and parameters
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}
PROCEDURAL = ("frost",)  # generated here; the published images blend in photographs
MIN_SIDE = 16  # pixels
BLOCK_VALUES = 2**19  # values that are processed together, about what fits into the processor's cache


def corrupt(
    images: Tensor, kind: str, severity: int, *, parameters: str = "imagenet", seed: int = 0, start: int = 0
) -> Tensor:
    """Returns grayscale or RGB uint8 images (B, C, height, width) with one corruption applied.

    The result depends on the seed and on the index of an image in the data set, but not on its batch.

    Args:
        kind: Name of the corruption, such as ``"fog"``.
        severity: 1 to 5.
        parameters: Strength as in ImageNet-C (``"imagenet"``) or CIFAR-10-C (``"cifar"``).
        seed: Seed of the random numbers.
        start: Index in the data set of the first image of the batch.
    """
    _check(images, kind, severity, parameters)
    strength = PARAMETERS[parameters][kind][severity - 1]
    size = _block_size(images)
    result = torch.empty_like(images)
    for first in range(start - start % size, start + len(images), size):
        begin, end = max(first, start), min(first + size, start + len(images))
        block = images[begin - start : end - start]
        if end - begin < size:  # pad to a full block, so that not even rounding depends on the batch
            block = block.new_zeros(size, *images.shape[1:])
            block[begin - first : end - first] = images[begin - start : end - start]
        rng = BlockRandom(f"{seed} {kind} {severity} {first}", size, images.device)
        result[begin - start : end - start] = CORRUPTIONS[kind](block, rng, *strength)[begin - first : end - first]
    return result


def _block_size(images: Tensor) -> int:
    """Returns how many images of the size of ``images`` (B, C, height, width) are corrupted together, a power of 2."""
    return 1 << min((BLOCK_VALUES // images[0].numel()).bit_length(), 7)


def _check(images: Tensor, kind: str, severity: int, parameters: str) -> None:
    if kind not in CORRUPTIONS:
        raise InputError(f"no corruption {kind!r}; available: {', '.join(CORRUPTIONS)}")
    if severity not in range(1, 6):
        raise InputError(f"corruption {kind!r} got severity {severity}; choose 1 to 5")
    if parameters not in PARAMETERS:
        raise InputError(f"no corruption parameters {parameters!r}; available: {', '.join(PARAMETERS)}")
    channels, height, width = images.shape[1:]
    if images.dtype != torch.uint8 or channels not in (1, 3) or min(height, width) < MIN_SIDE:
        raise InputError(
            f"corruptions take grayscale or RGB uint8 images of {MIN_SIDE} pixels a side or more, not "
            f"{channels} channels of {height}x{width} as {images.dtype}"
        )
