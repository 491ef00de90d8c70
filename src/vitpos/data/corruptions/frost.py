"""Frost on a window, made by rule: the originals lay photographs over pictures, which are not ours to ship."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from vitpos.data.corruptions._filters import settled
from vitpos.data.corruptions._random import LEVELS, Draws

LIGHT = (122.0, 177.0, 208.0, 152.0, 123.0, 90.0)  # how bright each pane is on average, as the six photographs are
TINT = (0.9, 1.02, 1.08)  # of red, green and blue: frost is bluish
DEVIATION = 30.0  # of a pane, in grey levels


def frost(images: Tensor, draws: Draws, kept: float, laid: float) -> Tensor:
    """A share of the picture and a share of a frosted pane, cut from one of six at random.

    The panes are procedural, with the brightness, colour and deviation of the photographs but not their shapes: errors
    under this frost are not those under the published one.
    """
    height, width = images.shape[2:]
    panes = _panes(2 * max(height, width)).to(images.device)
    places = panes.unfold(1, height, 1).unfold(2, width, 1)  # (6, places down, places across, height, width)
    which, down, across = (
        draws.levels().mul_(many).div(LEVELS, rounding_mode="floor").long() for many in places.shape[:3]
    )
    ice = places[which, down, across][:, None]
    tint = torch.tensor(TINT if images.shape[1] == 3 else [1.0], device=images.device).view(-1, 1, 1)
    return settled(images.float().mul_(kept).add_(ice * (laid * tint)))


@lru_cache(maxsize=4)
def _panes(side: int) -> Tensor:
    """Six frosted panes (6, side, side): ridges of noise at all scales, finer ones weaker."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.fft.rfft2(torch.randn(2, len(LIGHT), side, side, generator=generator))
    down, across = torch.fft.fftfreq(side)[:, None] * side, torch.fft.rfftfreq(side) * side
    fall = (down**2 + across**2).clamp_min(1) ** -0.65
    fields = torch.fft.irfft2(noise * fall, s=(side, side))
    fields = fields / fields.std((2, 3), keepdim=True)
    ridges = fields[0] - fields[1].abs()  # veils, and sharp lines where the second field changes its sign
    ridges = (ridges - ridges.mean((1, 2), keepdim=True)) / ridges.std((1, 2), keepdim=True)
    return (torch.tensor(LIGHT).view(-1, 1, 1) + DEVIATION * ridges).clamp(0, 255)
