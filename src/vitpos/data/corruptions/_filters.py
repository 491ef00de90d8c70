"""What several corruptions are made of: bytes and numbers, blurs, zooms and slides of whole batches."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Border = Literal["edge", "mirror"]  # what stands beyond a picture: its last pixel, or the picture mirrored
WIDE = 16  # from this radius on, a blur is faster as a matrix than step by step


def settled(pixels: Tensor) -> Tensor:
    """Numbers as bytes, their fractions cut off as the originals do; they may be overwritten."""
    return pixels.clamp_(0, 255).short().byte()  # by way of 16 bits, four times as fast


def gaussian(pixels: Tensor, deviation: tuple[float, float], *, truncate: float, border: Border) -> Tensor:
    """Pictures (…, height, width) blurred down and across, by a bell cut at ``truncate`` deviations."""
    for side, width in zip((-2, -1), deviation, strict=True):
        radius = int(truncate * width + 0.5)
        if radius > WIDE:
            mixing = _mixing(width, radius, pixels.shape[side], border).to(pixels.device)
            pixels = pixels @ mixing.T if side == -1 else mixing @ pixels
        elif radius:
            pixels = _along(pixels, bell(width, radius), side, border)
    return pixels


def bell(deviation: float, radius: int) -> list[float]:
    """The weights (2 · radius + 1,) of a normal distribution that add up to 1."""
    weights = [math.exp(-0.5 * (step / deviation) ** 2) for step in range(-radius, radius + 1)]
    return [weight / sum(weights) for weight in weights]


@lru_cache(maxsize=8)
def _mixing(deviation: float, radius: int, length: int, border: Border) -> Tensor:
    """The matrix (length, length) that blurs a line by a bell, which may be wider than the line."""
    steps = torch.arange(length)[:, None] + torch.arange(-radius, radius + 1)  # (length, weights)
    folded = steps % (2 * length)
    places = torch.minimum(folded, 2 * length - 1 - folded) if border == "mirror" else steps.clamp(0, length - 1)
    return torch.zeros(length, length).scatter_add_(1, places, torch.tensor(bell(deviation, radius)).expand_as(places))


def _along(pixels: Tensor, weights: list[float], side: int, border: Border) -> Tensor:
    """Pictures with each pixel the weighted mean of its neighbours along one side."""
    radius, length = len(weights) // 2, pixels.shape[side]
    first, last = pixels.narrow(side, 0, radius), pixels.narrow(side, length - radius, radius)
    if border == "mirror":  # … c b a | a b c …
        wide = torch.cat((first.flip(side), pixels, last.flip(side)), side)
    else:
        edges = pixels.narrow(side, 0, 1), pixels.narrow(side, length - 1, 1)
        wide = torch.cat((edges[0].expand_as(first), pixels, edges[1].expand_as(last)), side)
    total = weights[radius] * pixels
    for step in range(2 * radius + 1):
        if step != radius:
            total.add_(wide.narrow(side, step, length), alpha=weights[step])
    return total


def zoomed(pixels: Tensor, factor: float) -> Tensor:
    """The middle of pictures (B, C, height, width), enlarged to the whole or a little more."""
    height, width = pixels.shape[2:]
    high, wide = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - high) // 2, (width - wide) // 2
    return enlarged(pixels[:, :, top : top + high, left : left + wide], factor)


def enlarged(pixels: Tensor, factor: float) -> Tensor:
    """Pictures (B, C, height, width) enlarged bilinearly, corner pixels on corner pixels."""
    size = [round(side * factor) for side in pixels.shape[2:]]
    return F.interpolate(pixels, size=size, mode="bilinear", align_corners=True)


def slid(pixels: Tensor, angle: Tensor, within: tuple[float, float], *, radius: int, deviation: float) -> Tensor:
    """Pictures (B, C, height, width) blurred along a line, each at its own ``angle`` (B,) in degrees, ``within`` bounds.

    The line begins at the pixel and has 2 · radius + 1 points whose weights are half a bell. What would look beyond the
    opposite border is left out and not made up for, so that small pictures get darker.
    """
    size = pixels.shape[2:]
    steps = torch.arange(2 * radius + 1, device=pixels.device)
    weights = torch.exp(-0.5 * (steps / deviation) ** 2)
    rows, columns = _line(angle, steps)  # (B, points)
    seen = (rows.abs() < size[0]) & (columns.abs() < size[1])
    ends = _line(torch.tensor([within[0], sum(within) / 2, within[1]]), steps.cpu())
    low = [max(int(end.min()), 1 - side) for end, side in zip(ends, size, strict=True)]
    high = [min(int(end.max()), side - 1) for end, side in zip(ends, size, strict=True)]
    wide = F.pad(pixels, (-low[1], high[1], -low[0], high[0]), mode="replicate")
    weighted = torch.where(seen, weights / weights.sum(), 0.0)
    return correlated(wide, rows.where(seen, 0), columns.where(seen, 0), weighted, (-low[0], -low[1]), size)


def _line(angle: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """How far down and right (B, points) the points of a line are at each angle (B,) in degrees."""
    turn = angle.double().deg2rad()[:, None]
    return (steps * turn.sin() - 0.5).ceil().long(), (steps * turn.cos() - 0.5).ceil().long()


def correlated(
    wide: Tensor, rows: Tensor, columns: Tensor, weights: Tensor, origin: tuple[int, int], size: torch.Size
) -> Tensor:
    """Each pixel as the weighted sum of those ``rows`` below and ``columns`` right of it (B|1, points), by Fourier.

    ``wide`` (B, C, …) is the picture with its borders; the result is of ``size``, from ``origin`` on.
    """
    torus = [_fast(side) for side in wide.shape[2:]]
    kernel = torch.zeros(len(rows), torus[0] * torus[1], device=wide.device)
    kernel.scatter_add_(1, rows % torus[0] * torus[1] + columns % torus[1], weights.expand(rows.shape).float())
    spectrum = torch.fft.rfft2(wide, s=torus)
    spectrum *= torch.fft.rfft2(kernel.view(-1, 1, *torus)).conj()
    lines = torch.fft.ifft(spectrum, dim=2)[:, :, origin[0] : origin[0] + size[0]]  # no more rows than are wanted
    return torch.fft.irfft(lines, n=torus[1], dim=3)[..., origin[1] : origin[1] + size[1]].contiguous()


def _fast(length: int) -> int:
    """The smallest length from this one on that has no prime factor above 5."""
    return next(n for n in range(length, 2 * length + 1) if 30**20 % n == 0)
