"""Blurs of a lens, a moving camera and a zoom."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.corruptions._filters import bell, correlated, settled, slid, zoomed
from vitpos.data.corruptions._random import Draws


def defocus_blur(images: Tensor, draws: Draws, radius: float, deviation: float) -> Tensor:
    """Out of focus: every point a disc of some ``radius``, itself blurred a little."""
    disc = _disc(radius, deviation).to(images.device)
    reach = len(disc) // 2
    wide = F.pad(images.float(), (reach,) * 4, mode="reflect")
    places = disc.nonzero()
    rows, columns = (places - reach).T[:, None]  # (1, points) each
    weights = disc[places[:, 0], places[:, 1]][None]
    return settled(correlated(wide, rows, columns, weights, (reach, reach), images.shape[2:]))


def motion_blur(images: Tensor, draws: Draws, radius: float, deviation: float) -> Tensor:
    """Moved while it was taken, at an angle of at most 45° to the right."""
    within = (-45.0, 45.0)
    return settled(slid(images.float(), draws.uniform(*within), within, radius=int(radius), deviation=deviation))


def zoom_blur(images: Tensor, draws: Draws, count: float, step: float) -> Tensor:
    """Zoomed while it was taken: the mean of the picture and of ``count`` enlargements by 1, 1 + ``step`` …"""
    height, width = images.shape[2:]
    pixels = images.float().contiguous(memory_format=torch.channels_last)  # which is enlarged twice as fast
    total = 2 * pixels
    for number in range(1, int(count)):
        factor = 1 + number * ((1 + step) - 1)  # as numpy counts, to the last bit
        total += zoomed(pixels, factor)[:, :, :height, :width]
    return settled(total.div_(count + 1)).contiguous()


@lru_cache(maxsize=5)
def _disc(radius: float, deviation: float) -> Tensor:
    """The weights (k, k) of a disc, of which what is 0 all around is left out."""
    reach, blur = (8, 1) if radius <= 8 else (int(radius), 2)
    square = torch.arange(-reach, reach + 1) ** 2
    disc = (square[:, None] + square <= radius**2).float()
    wide = F.pad((disc / disc.sum())[None, None], (blur,) * 4, mode="reflect")
    line = torch.tensor(bell(deviation, blur))
    disc = F.conv2d(wide, torch.outer(line, line)[None, None])[0, 0]
    used = int((disc.amax(1) > 0).nonzero().min())
    return disc[used : len(disc) - used, used : len(disc) - used]
