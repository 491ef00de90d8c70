"""Shifting images by whole pixels, with three rules for what comes in at the border."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Border = Literal["zeros", "wrap", "crop"]


def shift_pair(images: Tensor, by: tuple[int, int], border: Border) -> tuple[Tensor, Tensor]:
    """Returns two tensors of images (B, C, height, width): before a shift and after it.

    Args:
        images: (B, C, height, width), values 0 to 255.
        by: Pixels down and right; negative numbers shift up and left.
        border: ``"zeros"`` fills with black, ``"wrap"`` with the pixels that leave on the other side. ``"crop"``
            upscales the images bilinearly by as many pixels as they shift, and returns two crops of the result, so that
            no pixel is filled in.
    """
    (down, right), (height, width) = by, images.shape[2:]
    if border == "wrap":
        return images, images.roll((down, right), (2, 3))
    rows, columns = abs(down), abs(right)
    if border == "zeros":
        canvas = F.pad(images, (columns, columns, rows, rows))
        top, left = rows - down, columns - right
        return images, canvas[:, :, top : top + height, left : left + width]
    size = (height + rows, width + columns)
    upscaled = F.interpolate(images.float(), size=size, mode="bilinear", align_corners=False)
    canvas = upscaled.round_().clamp_(0, 255).to(images.dtype)
    (top, shifted_top), (left, shifted_left) = (
        ((side, 0) if step > 0 else (0, side)) for step, side in ((down, rows), (right, columns))
    )
    return (
        canvas[:, :, top : top + height, left : left + width],
        canvas[:, :, shifted_top : shifted_top + height, shifted_left : shifted_left + width],
    )


def shift_each(images: Tensor, steps: Tensor, border: Literal["zeros", "wrap"]) -> Tensor:
    """Returns images (B, C, height, width), each shifted by its own number of pixels, ``steps`` (B, 2): down and right.

    The border is filled with black (``"zeros"``) or with the pixels that leave on the other side (``"wrap"``).
    """
    (height, width), device = images.shape[2:], images.device
    pad = int(steps.abs().max())
    mode = "circular" if border == "wrap" else "constant"
    canvas = F.pad(images.float(), (pad,) * 4, mode=mode).to(images.dtype)
    rows = (pad - steps[:, :1]) + torch.arange(height, device=device)  # (B, height)
    columns = (pad - steps[:, 1:]) + torch.arange(width, device=device)
    image = torch.arange(len(images), device=device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=device)[:, None, None]
    return canvas[image, channel, rows[:, None, :, None], columns[:, None, None]]


def overlapping_cells(grid: tuple[int, int], by: tuple[int, int], border: Border) -> tuple[Tensor, Tensor]:
    """Returns the grid cells of n patches before a shift by whole patches, and their cells after it.

    Both are tensors (n,) of row-major cell indices: cell ``after[i]`` has the content that cell ``before[i]`` had.

    Args:
        grid: Rows and columns.
        by: Number of patches down and right; negative numbers shift up and left.
        border: With ``"wrap"``, patches that leave on one side enter on the other, and n is the number of all cells. With
            ``"zeros"`` and ``"crop"``, n is the number of patches that stay visible.
    """
    rows, columns = grid
    cells = torch.arange(rows * columns).view(grid)
    (down, right) = by
    if border == "wrap":
        return cells.flatten(), cells.roll((-down, -right), (0, 1)).flatten()
    before = cells[max(-down, 0) : rows - max(down, 0), max(-right, 0) : columns - max(right, 0)]
    after = cells[max(down, 0) : rows + min(down, 0), max(right, 0) : columns + min(right, 0)]
    return before.flatten(), after.flatten()
