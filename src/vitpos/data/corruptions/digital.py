"""Contrast, elastic stretching and large pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.corruptions._filters import gaussian, settled
from vitpos.data.corruptions._random import Draws


def contrast(images: Tensor, draws: Draws, kept: float) -> Tensor:
    """Each channel nearer to its mean."""
    pixels = images.float()
    mean = pixels.mean((2, 3), keepdim=True)
    return settled(pixels.mul_(kept).add_(mean * (1 - kept)))


def elastic_transform(images: Tensor, draws: Draws, farthest: float, smooth: float, warp: float) -> Tensor:
    """Pulled about: the whole picture by a random affine map, then each pixel by smoothed random steps.

    Three corners of a square about the middle move by up to ``warp`` of the side; steps are up to ``farthest`` of the
    height before a bell of ``smooth`` of the side makes them smooth (and smaller).
    """
    height, width = images.shape[2:]
    pixels = images.float()
    if warp:
        pixels = _warped(pixels, draws.uniform(-warp * min(height, width), warp * min(height, width), 3, 2))
    if farthest:
        steps = draws.uniform(-farthest * height, farthest * height, 2, height, width)
        steps = gaussian(steps, (smooth * height, smooth * width), truncate=3.0, border="mirror")
        across = steps[:, 0].add_(torch.arange(width, device=images.device) + 0.5).mul_(2 / width).sub_(1)
        down = steps[:, 1].add_(torch.arange(height, device=images.device)[:, None] + 0.5).mul_(2 / height).sub_(1)
        pixels = F.grid_sample(pixels, torch.stack((across, down), 3), padding_mode="reflection", align_corners=False)
    return settled(pixels)


def pixelate(images: Tensor, draws: Draws, kept: float) -> Tensor:
    """Fewer and larger pixels, each the mean of those it covers; where PIL rounds across and again down, we round once."""
    height, width = images.shape[2:]
    high, down = _merged(images, int(height * kept))
    total, across = _merged(high.mT.contiguous(), int(width * kept))  # (B, C, columns, rows) of large pixels
    mean = total.float().div_(across[:, None] * down).add_(0.5).short().byte()
    columns, rows = (_covering(side, int(side * kept), images.device) for side in (width, height))
    return mean.index_select(2, columns).mT.contiguous().index_select(2, rows)


def _merged(images: Tensor, large: int) -> tuple[Tensor, Tensor]:
    """The sums (B, C, large, columns) of the rows of pictures that make up each of so many large ones, and their counts."""
    rows = images.shape[2]
    centres = torch.arange(rows, dtype=torch.float64, device=images.device) + 0.5
    counts = torch.bincount((centres / (rows / large)).ceil().long() - 1, minlength=large)
    first = counts.cumsum(0) - counts
    total = images.index_select(2, first).short()
    for number in range(1, int(counts.max())):
        row = images.index_select(2, (first + number).clamp_max(rows - 1))
        total += row * (counts > number).to(row.dtype)[:, None]
    return total, counts


def _covering(rows: int, large: int, device: torch.device) -> Tensor:
    """Which of so many large rows covers each row."""
    centres = torch.arange(rows, dtype=torch.float64, device=device) + 0.5
    return (centres / (rows / large)).long()


def _warped(pixels: Tensor, moves: Tensor) -> Tensor:
    """Pictures under the affine map that moves three corners of a square about the middle by ``moves`` (B, 3, 2)."""
    height, width = pixels.shape[2:]
    middle = torch.tensor((width // 2, height // 2), device=pixels.device, dtype=torch.float64)
    reach = min(height, width) // 3
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=pixels.device)
    corners = middle + reach * signs  # (3, 2) x and y
    moved = F.pad(corners + moves.double(), (0, 1), value=1.0)  # (B, 3, 3) x, y and 1
    back = torch.linalg.solve(moved, corners.expand(len(moved), 3, 2)).float()  # (B, 3, 2)
    to_x, to_y, shift = back[:, None, None].unbind(3)  # (B, 1, 1, 2) what each place (x, y) adds to where it looks
    x = torch.arange(width, device=pixels.device)[:, None]
    y = torch.arange(height, device=pixels.device)[:, None, None]
    places = x * to_x + (y * to_y + shift)  # (B, height, width, 2) in pixels
    grid = places.mul_(2 / (torch.tensor((width, height), device=pixels.device) - 1)).sub_(1)
    return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=True)
