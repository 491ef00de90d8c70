"""Defocus, glass, motion and zoom blur."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.corruptions._filters import (
    blur_along_line,
    correlate_points,
    gaussian,
    gaussian_kernel1d,
    to_uint8,
    zoom_center,
)
from vitpos.data.corruptions._random import LEVELS, BlockRandom


def defocus_blur(images: Tensor, rng: BlockRandom, radius: float, std: float) -> Tensor:
    """Convolves uint8 images (B, C, height, width) with a smoothed disc, as an unfocused lens does.

    ``radius`` is that of the disc and ``std`` that of the Gaussian that smooths it, both in pixels. ``rng`` is not used,
    because nothing is random.
    """
    disc = _disc(radius, std).to(images.device)
    half = len(disc) // 2
    padded = F.pad(images.float(), (half,) * 4, mode="reflect")
    points = disc.nonzero()
    rows, columns = (points - half).T[:, None]  # (1, points) each
    weights = disc[points[:, 0], points[:, 1]][None]
    return to_uint8(correlate_points(padded, rows, columns, weights, (half, half), images.shape[2:]))


def glass_blur(images: Tensor, rng: BlockRandom, std: float, max_shift: float, rounds: float) -> Tensor:
    """Blurs uint8 images (B, C, height, width), copies to each pixel a random neighbor, and blurs the images again.

    ImageNet-C's code visits pixels from the last to the first to swap each with a random neighbor, but on RGB arrays its
    swap only copies the neighbor. :func:`copy_sources` computes the same copies for all pixels at once.

    Args:
        images: The images.
        rng: Random numbers.
        std: Std of both Gaussian blurs in pixels.
        max_shift: Maximum distance of the neighbor in rows and columns.
        rounds: Number of times that the neighbors are copied.
    """
    height, width = images.shape[2:]
    reach = int(max_shift)
    source = torch.arange(images[:, 0].numel(), device=images.device, dtype=torch.int)
    for _ in range(int(rounds)):
        levels = rng.levels(2, height - 2 * reach, width - 2 * reach)
        shifts = levels.mul_(2 * reach).floor_divide_(LEVELS).sub_(reach)
        source = source.index_select(0, copy_sources(shifts, height, width))
    blurred = to_uint8(_blur(images, std)).transpose(0, 1).flatten(1)  # (C, pixels of all images)
    copied = blurred.gather(1, source.long().expand(len(blurred), -1))
    return to_uint8(_blur(copied.unflatten(1, (-1, height, width)).transpose(0, 1), std)).contiguous()


def motion_blur(images: Tensor, rng: BlockRandom, radius: float, std: float) -> Tensor:
    """Blurs each of the uint8 images (B, C, height, width) along a line, at a random angle of −45° to 45° to the rows.

    The line begins at the pixel and has 2 · ``radius`` + 1 points, weighted by half a Gaussian of ``std`` pixels.
    """
    angle_range = (-45.0, 45.0)
    return to_uint8(
        blur_along_line(images.float(), rng.uniform(*angle_range), angle_range, radius=int(radius), std=std)
    )


def zoom_blur(images: Tensor, rng: BlockRandom, count: float, step: float) -> Tensor:
    """Averages each of the uint8 images (B, C, height, width) with ``count`` versions zoomed into its center.

    The zoom factors are 1, 1 + ``step``, 1 + 2 · ``step``, … ``rng`` is not used, because nothing is random.
    """
    height, width = images.shape[2:]
    pixels = images.float().contiguous(memory_format=torch.channels_last)  # in which interpolation is twice as fast
    total = 2 * pixels
    for number in range(1, int(count)):
        factor = 1 + number * ((1 + step) - 1)  # as numpy.arange computes it, to the last bit
        total += zoom_center(pixels, factor)[:, :, :height, :width]
    return to_uint8(total.div_(count + 1)).contiguous()


def copy_sources(shifts: Tensor, height: int, width: int) -> Tensor:
    """Returns for each pixel the index of the pixel whose value it has after a round of glass blur: (B · height · width,).

    Indices number the pixels of all images, image by image and row by row. Glass blur visits pixels from the last to the
    first; each copies the current value of a neighbor. A neighbor that is visited later still has its original value; one
    that was visited earlier has what it copied. Chains of such copies are resolved by pointer doubling, in a number of
    steps that is the logarithm of the longest chain.

    Args:
        shifts: Offsets (B, 2, height − 2 · reach, width − 2 · reach) from each pixel that copies to its neighbor: first
            columns, then rows, from −reach to reach − 1. reach is the maximum shift in pixels. The pixels that copy are
            those in rows reach + 1 to height − reach and columns reach + 1 to width − reach, counted from 0.
        height: Height of the images.
        width: Width of the images.
    """
    count, _, rows, columns = shifts.shape
    top, left = (height - rows) // 2 + 1, (width - columns) // 2 + 1
    pixels = count * height * width
    number = torch.arange(pixels, device=shifts.device, dtype=torch.int).view(count, height, width)
    own = number[:, top : top + rows, left : left + columns]
    target = shifts[:, 1].mul(width).add_(shifts[:, 0]).add_(own)
    pointer = number + pixels  # pixels + n is the original value of pixel n; n is its final value
    pointer[:, top : top + rows, left : left + columns] = target.add_((target <= own) * pixels)
    nodes = torch.cat((pointer.flatten(), number.flatten() + pixels))
    while int(nodes[:pixels].min()) < pixels:
        nodes[:pixels] = nodes.index_select(0, nodes[:pixels])
    return nodes[:pixels] - pixels


def _blur(images: Tensor, std: float) -> Tensor:
    return gaussian(images.float(), (std, std), truncate=4.0, border="edge")


@lru_cache(maxsize=5)
def _disc(radius: float, std: float) -> Tensor:
    """Returns the weights of a disc of ``radius`` pixels, smoothed by a Gaussian of ``std`` pixels.

    They are a square matrix, from which rows and columns of zeros around the disc are cut off.
    """
    half, blur_radius = (8, 1) if radius <= 8 else (int(radius), 2)
    squares = torch.arange(-half, half + 1) ** 2
    disc = (squares[:, None] + squares <= radius**2).float()
    padded = F.pad((disc / disc.sum())[None, None], (blur_radius,) * 4, mode="reflect")
    kernel = torch.tensor(gaussian_kernel1d(std, blur_radius))
    disc = F.conv2d(padded, torch.outer(kernel, kernel)[None, None])[0, 0]
    used = int((disc.amax(1) > 0).nonzero().min())
    return disc[used : len(disc) - used, used : len(disc) - used]
