"""Pictures seen through frosted glass."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.data.corruptions._filters import gaussian, settled
from vitpos.data.corruptions._random import LEVELS, Draws


def glass_blur(images: Tensor, draws: Draws, deviation: float, farthest: float, rounds: float) -> Tensor:
    """Blurred, its pixels stirred within a short distance, and blurred again.

    The originals go through the pixels from the last to the first and mean to swap each with a neighbour, but what they
    do to an array of colours is to copy the neighbour over it. A pixel that copies from one still to come gets what stood
    there, and one that copies from one already done gets what that one got: whose pixel each gets is found by following
    these references for all pixels at once, in as many steps as the longest chain has doublings. Same copies, same picture.
    """
    height, width = images.shape[2:]
    reach = int(farthest)
    source = torch.arange(images[:, 0].numel(), device=images.device, dtype=torch.int)
    for _ in range(int(rounds)):
        chance = draws.levels(2, height - 2 * reach, width - 2 * reach)
        steps = chance.mul_(2 * reach).floor_divide_(LEVELS).sub_(reach)
        source = source.index_select(0, copied(steps, height, width))
    blurred = settled(_blurred(images, deviation)).transpose(0, 1).flatten(1)  # (C, pixels of all pictures)
    stirred = (
        blurred.gather(1, source.long().expand(len(blurred), -1)).unflatten(1, (-1, height, width)).transpose(0, 1)
    )
    return settled(_blurred(stirred, deviation)).contiguous()


def copied(steps: Tensor, height: int, width: int) -> Tensor:
    """Whose pixel each pixel of all pictures (B · height · width,) has after all copies.

    ``steps`` (B, 2, rows, columns) say how far right and how far down each pixel copies from, from −reach to reach − 1; the
    pixels that copy are those from reach + 1 to side − reach.
    """
    count, _, rows, columns = steps.shape
    top, left = (height - rows) // 2 + 1, (width - columns) // 2 + 1
    pixels = count * height * width
    number = torch.arange(pixels, device=steps.device, dtype=torch.int).view(count, height, width)
    own = number[:, top : top + rows, left : left + columns]
    target = steps[:, 1].mul(width).add_(steps[:, 0]).add_(own)
    wanted = number + pixels  # from here on a pixel as it was, below a pixel as it will be
    wanted[:, top : top + rows, left : left + columns] = target.add_((target <= own) * pixels)
    nodes = torch.cat((wanted.flatten(), number.flatten() + pixels))
    while int(nodes[:pixels].min()) < pixels:
        nodes[:pixels] = nodes.index_select(0, nodes[:pixels])
    return nodes[:pixels] - pixels


def _blurred(images: Tensor, deviation: float) -> Tensor:
    return gaussian(images.float(), (deviation, deviation), truncate=4.0, border="edge")
