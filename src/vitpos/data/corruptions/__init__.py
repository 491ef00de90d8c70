"""The fifteen corruptions of ImageNet-C, on batches of bytes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitpos.data.corruptions._random import Draws
from vitpos.data.corruptions.blur import defocus_blur, motion_blur, zoom_blur
from vitpos.data.corruptions.digital import contrast, elastic_transform, pixelate
from vitpos.data.corruptions.frost import frost
from vitpos.data.corruptions.glass import glass_blur
from vitpos.data.corruptions.jpeg import jpeg_compression
from vitpos.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise
from vitpos.data.corruptions.parameters import PARAMETERS
from vitpos.data.corruptions.weather import brightness, fog, snow
from vitpos.errors import UserError

CORRUPTIONS: dict[str, Callable[..., Tensor]] = {  # name → function of bytes, draws and its parameters
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
PROCEDURAL = ("frost",)  # not what the published pictures were made with
SMALLEST = 16  # pixels of a side
AT_ONCE = 2**19  # values that are worked on together, as many as the processor keeps near


def corrupt(
    images: Tensor, kind: str, severity: int, *, parameters: str = "imagenet", seed: int = 0, start: int = 0
) -> Tensor:
    """Bytes (B, C, height, width), grey or coloured, under one corruption of severity 1 to 5.

    ``start`` is the number of the first picture in its set. Pictures are worked on in blocks that begin at fixed numbers,
    so that what becomes of a picture depends on its number and the seed, and not on the batch it comes in.
    """
    _check(images, kind, severity, parameters)
    strength = PARAMETERS[parameters][kind][severity - 1]
    size = _block(images)
    done = torch.empty_like(images)
    for first in range(start - start % size, start + len(images), size):
        begin, end = max(first, start), min(first + size, start + len(images))
        block = images[begin - start : end - start]
        if end - begin < size:  # always the same work, so that not even rounding depends on the batch
            block = block.new_zeros(size, *images.shape[1:])
            block[begin - first : end - first] = images[begin - start : end - start]
        draws = Draws(f"{seed} {kind} {severity} {first}", size, images.device)
        done[begin - start : end - start] = CORRUPTIONS[kind](block, draws, *strength)[begin - first : end - first]
    return done


def _block(images: Tensor) -> int:
    """How many pictures of this size are worked on together: a power of 2."""
    return 1 << min((AT_ONCE // images[0].numel()).bit_length(), 7)


def _check(images: Tensor, kind: str, severity: int, parameters: str) -> None:
    if kind not in CORRUPTIONS:
        raise UserError(f"no corruption {kind!r}; there is {', '.join(CORRUPTIONS)}")
    if severity not in range(1, 6):
        raise UserError(f"corruption {kind!r} got severity {severity}; choose 1 to 5")
    if parameters not in PARAMETERS:
        raise UserError(f"no corruption parameters {parameters!r}; there is {', '.join(PARAMETERS)}")
    channels, height, width = images.shape[1:]
    if images.dtype != torch.uint8 or channels not in (1, 3) or min(height, width) < SMALLEST:
        raise UserError(
            f"corruptions take grey or coloured bytes of {SMALLEST} pixels a side or more, not "
            f"{channels} channels of {height}x{width} as {images.dtype}"
        )
