"""Pictures moved by some pixels, in the ways that evaluations of translation tell apart."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Edge = Literal["black", "wrap", "crop"]


def moved(images: Tensor, by: tuple[int, int], edge: Edge) -> tuple[Tensor, Tensor]:
    """Pictures (B, C, height, width) as they are compared: before, and moved down and right by some pixels.

    ``black``: what leaves is lost and what comes in is black. ``wrap``: what leaves comes in on the other side. ``crop``:
    the pictures are enlarged, bilinearly, by as much as they move, and both are crops of that: nothing is made up.
    """
    (down, right), (height, width) = by, images.shape[2:]
    if edge == "wrap":
        return images, images.roll((down, right), (2, 3))
    high, wide = abs(down), abs(right)
    if edge == "black":
        canvas = F.pad(images, (wide, wide, high, high))
        return images, canvas[:, :, high - down : high - down + height, wide - right : wide - right + width]
    large = F.interpolate(images.float(), size=(height + high, width + wide), mode="bilinear", align_corners=False)
    canvas = large.round_().clamp_(0, 255).to(images.dtype)
    (top, other_top), (left, other_left) = (
        ((side, 0) if step > 0 else (0, side)) for step, side in ((down, high), (right, wide))
    )
    return (
        canvas[:, :, top : top + height, left : left + width],
        canvas[:, :, other_top : other_top + height, other_left : other_left + width],
    )


def scattered(images: Tensor, steps: Tensor, edge: Edge) -> Tensor:
    """Pictures each moved by a step (B, 2) of its own, down and right in pixels."""
    (height, width), device = images.shape[2:], images.device
    most = int(steps.abs().max())
    canvas = F.pad(images.float(), (most,) * 4, mode="circular" if edge == "wrap" else "constant").to(images.dtype)
    rows = (most - steps[:, :1]) + torch.arange(height, device=device)  # (B, height)
    columns = (most - steps[:, 1:]) + torch.arange(width, device=device)
    image = torch.arange(len(images), device=device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=device)[:, None, None]
    return canvas[image, channel, rows[:, None, :, None], columns[:, None, None]]


def shared(grid: tuple[int, int], by: tuple[int, int], edge: Edge) -> tuple[Tensor, Tensor]:
    """The places (n,) that show the same before and after a move by whole patches: before it, and after it."""
    rows, columns = grid
    cells = torch.arange(rows * columns).view(grid)
    (down, right) = by
    if edge == "wrap":
        return cells.flatten(), cells.roll((-down, -right), (0, 1)).flatten()
    before = cells[max(-down, 0) : rows - max(down, 0), max(-right, 0) : columns - max(right, 0)]
    after = cells[max(down, 0) : rows + min(down, 0), max(right, 0) : columns + min(right, 0)]
    return before.flatten(), after.flatten()
