"""JPEG without its lossless part: what quantised cosines leave of a picture."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.corruptions._filters import settled
from vitpos.data.corruptions._random import Draws
from vitpos.data.image_ops import grey

LUMA = (  # the standard's steps for brightness (ITU T.81, annex K), from low to high frequencies
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMA = (  # and for colour
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
)


def jpeg_compression(images: Tensor, draws: Draws, quality: float) -> Tensor:
    """Pictures written as JPEG of some ``quality``, 1 to 100, with half the colour in both directions, and read again.

    Done on tensors, in floating point; libjpeg's whole-number arithmetic may round a coefficient the other way.
    """
    height, width = images.shape[2:]
    pixels = images.float()
    if height % 2 or width % 16:
        pixels = F.pad(pixels, (0, -width % 16, 0, height % 2), mode="replicate")
    if images.shape[1] == 1:
        return settled(_coded(pixels.sub_(128), LUMA, quality).add_(128)[:, :, :height, :width])
    light, red, blue = grey(pixels), pixels[:, :1], pixels[:, 2:]
    chroma = torch.cat(((blue - light).mul_(0.5 / 0.886), (red - light).mul_(0.5 / 0.701)), 1).round_()
    light = _coded(light.round_().sub_(128), LUMA, quality)[:, :, :height, :width].add_(128.5)
    chroma = _coded(_halved(chroma), CHROMA, quality)[:, :, : (height + 1) // 2, : (width + 1) // 2]
    to_blue, to_red = F.interpolate(chroma, scale_factor=2, mode="bilinear")[:, :, :height, :width].round_().split(1, 1)
    colours = (
        light.add(to_red, alpha=1.402),
        light.sub(to_blue, alpha=0.344136).sub_(to_red, alpha=0.714136),
        light.add_(to_blue, alpha=1.772),
    )
    return torch.cat([settled(colour) for colour in colours], 1)


def _halved(planes: Tensor) -> Tensor:
    """The means of two by two pixels, of which those that end in a half are rounded up in every second column."""
    tall = planes[:, :, ::2] + planes[:, :, 1::2]
    total = tall[..., ::2] + tall[..., 1::2]
    uneven = torch.arange(total.shape[3], device=planes.device) % 2
    return total.add_(uneven + 1).mul_(0.25).floor_()


def _coded(planes: Tensor, table: tuple[tuple[int, ...], ...], quality: float) -> Tensor:
    """Planes (B, C, height, width) around 0, of a width that 8 divides, after their cosines were quantised."""
    forth, back = (matrix.to(planes.device) for matrix in _cosines(table, quality))
    if planes.shape[2] % 8:
        planes = F.pad(planes, (0, 0, 0, -planes.shape[2] % 8), mode="replicate")
    blocks = planes.unflatten(3, (-1, 8)).unflatten(2, (-1, 8)).transpose(3, 4)  # (B, C, rows, columns, 8, 8)
    coded = (blocks.flatten(4) @ forth).round_() @ back
    whole = coded.unflatten(4, (8, 8)).transpose(3, 4).flatten(4).flatten(2, 3)
    return whole.round_().clamp_(-128, 127)


@lru_cache(maxsize=32)
def _cosines(table: tuple[tuple[int, ...], ...], quality: float) -> tuple[Tensor, Tensor]:
    """The matrices (64, 64) from a block to its cosines in steps of the table, and back."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = ((torch.tensor(table) * scale + 50) // 100).clamp(1, 255).flatten().double()
    place = torch.arange(8, dtype=torch.float64)
    line = torch.cos(math.pi / 8 * (place[:, None] + 0.5) * place) / 2  # (8 places, 8 frequencies)
    line[:, 0] /= math.sqrt(2)
    square = torch.kron(line, line)  # its own inverse when transposed
    return (square / steps).float(), (square.T * steps[:, None]).float()
