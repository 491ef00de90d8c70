"""Filters that several corruptions share: Gaussian blur, zoom, and blur along a line, on whole batches."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.float64 import to_float64

Border = Literal["edge", "mirror"]  # padding beyond the border: the last pixel, or the mirrored image
MATRIX_RADIUS = 16  # above this radius, a blur is faster as a matrix product than as a sum of shifted images


def to_uint8(pixels: Tensor) -> Tensor:
    """Clamps floats to 0…255 and truncates them to uint8, as ImageNet-C's code does; ``pixels`` is overwritten."""
    return pixels.clamp_(0, 255).short().byte()  # four times as fast by way of int16


def gaussian(pixels: Tensor, std: tuple[float, float], *, truncate: float, border: Border) -> Tensor:
    """Blurs images (…, height, width) by a Gaussian of ``std`` (vertical, horizontal) pixels, cut at ``truncate`` stds.

    ``border`` is the padding: ``"edge"`` repeats the last pixel, ``"mirror"`` continues with the mirrored image.
    """
    for dim, dim_std in zip((-2, -1), std, strict=True):
        radius = int(truncate * dim_std + 0.5)
        if radius > MATRIX_RADIUS:
            matrix = gaussian_matrix(dim_std, radius, pixels.shape[dim], border).to(pixels.device)
            pixels = pixels @ matrix.T if dim == -1 else matrix @ pixels
        elif radius:
            pixels = correlate1d(pixels, gaussian_kernel1d(dim_std, radius), dim, border)
    return pixels


def gaussian_kernel1d(std: float, radius: int) -> list[float]:
    """Returns 2 · radius + 1 weights of a Gaussian of ``std`` pixels, with sum 1."""
    weights = [math.exp(-0.5 * (step / std) ** 2) for step in range(-radius, radius + 1)]
    return [weight / sum(weights) for weight in weights]


@lru_cache(maxsize=8)
def gaussian_matrix(std: float, radius: int, length: int, border: Border) -> Tensor:
    """Returns a matrix (length, length) that blurs a line of ``length`` pixels by a Gaussian of ``std`` pixels.

    The Gaussian is cut at ``radius`` pixels, which may be more than ``length``.
    ``border`` is the padding: ``"edge"`` repeats the last pixel, ``"mirror"`` continues with the mirrored line.
    """
    index = torch.arange(length)[:, None] + torch.arange(-radius, radius + 1)  # (length, weights)
    folded = index % (2 * length)
    source = torch.minimum(folded, 2 * length - 1 - folded) if border == "mirror" else index.clamp(0, length - 1)
    weights = torch.tensor(gaussian_kernel1d(std, radius)).expand_as(source)
    return torch.zeros(length, length).scatter_add_(1, source, weights)


def correlate1d(pixels: Tensor, weights: list[float], dim: int, border: Border) -> Tensor:
    """Replaces each pixel by the weighted sum of its neighbors along dimension ``dim``; the shape stays the same.

    Args:
        weights: 2 · radius + 1 weights, centered at the pixel.
        border: Padding: ``"edge"`` repeats the last pixel, ``"mirror"`` continues with the mirrored image.
    """
    radius, length = len(weights) // 2, pixels.shape[dim]
    first, last = pixels.narrow(dim, 0, radius), pixels.narrow(dim, length - radius, radius)
    if border == "mirror":  # … c b a | a b c …
        padded = torch.cat((first.flip(dim), pixels, last.flip(dim)), dim)
    else:
        edges = pixels.narrow(dim, 0, 1), pixels.narrow(dim, length - 1, 1)
        padded = torch.cat((edges[0].expand_as(first), pixels, edges[1].expand_as(last)), dim)
    total = weights[radius] * pixels
    for step in range(2 * radius + 1):
        if step != radius:
            total.add_(padded.narrow(dim, step, length), alpha=weights[step])
    return total


def zoom_center(pixels: Tensor, factor: float) -> Tensor:
    """Zooms images (B, C, height, width) into their center: crops 1 / ``factor`` of each side, upscales it by ``factor``.

    The crop is rounded up to whole pixels, so that the result is as large as the images or slightly larger.
    """
    height, width = pixels.shape[2:]
    crop_height, crop_width = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return upscale(pixels[:, :, top : top + crop_height, left : left + crop_width], factor)


def upscale(pixels: Tensor, factor: float) -> Tensor:
    """Resizes images (B, C, height, width) bilinearly by ``factor``, with aligned corners."""
    size = [round(side * factor) for side in pixels.shape[2:]]
    return F.interpolate(pixels, size=size, mode="bilinear", align_corners=True)


def blur_along_line(
    pixels: Tensor, angle: Tensor, angle_range: tuple[float, float], *, radius: int, std: float
) -> Tensor:
    """Applies motion blur to images (B, C, height, width): replaces each pixel by a weighted mean along a line.

    The line begins at the pixel and has 2 · radius + 1 points, weighted by half a Gaussian. Points that are at least a
    whole image height or width away are dropped without renormalizing the weights, as in ImageNet-C's code, so that small
    images get darker.

    Args:
        pixels: The images.
        angle: (B,), direction of the line in each image, in degrees from the horizontal axis; positive is downward.
        angle_range: Minimum and maximum of all angles, which determine the padding.
        radius: Half the length of the line in pixels.
        std: Std of the Gaussian in pixels.
    """
    size = pixels.shape[2:]
    steps = torch.arange(2 * radius + 1, device=pixels.device)
    weights = torch.exp(-0.5 * (steps / std) ** 2)
    rows, columns = _line_offsets(angle, steps)  # (B, points)
    inside = (rows.abs() < size[0]) & (columns.abs() < size[1])
    extremes = torch.tensor([angle_range[0], sum(angle_range) / 2, angle_range[1]])
    bounds = _line_offsets(extremes, steps.cpu())
    low = [max(int(offset.min()), 1 - side) for offset, side in zip(bounds, size, strict=True)]
    high = [min(int(offset.max()), side - 1) for offset, side in zip(bounds, size, strict=True)]
    padded = F.pad(pixels, (-low[1], high[1], -low[0], high[0]), mode="replicate")
    weights = torch.where(inside, weights / weights.sum(), 0.0)
    return correlate_points(padded, rows.where(inside, 0), columns.where(inside, 0), weights, (-low[0], -low[1]), size)


def _line_offsets(angle: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Returns row and column offsets (B, points), in whole pixels, of points on lines through the origin.

    Args:
        angle: (B,), in degrees from the horizontal axis, positive downward; one line per image.
        steps: (points,), distance of each point from the origin in pixels.
    """
    radians = to_float64(angle).deg2rad()[:, None]
    offsets = ((steps.to(radians.device) * part - 0.5).ceil().long() for part in (radians.sin(), radians.cos()))
    rows, columns = (one.to(angle.device) for one in offsets)
    return rows, columns


def correlate_points(
    padded: Tensor, rows: Tensor, columns: Tensor, weights: Tensor, origin: tuple[int, int], size: torch.Size
) -> Tensor:
    """Replaces each pixel by the weighted sum of the pixels at some offsets from it, by FFT: returns (B, C, *size).

    Args:
        padded: Images with padding (B, C, padded height, padded width).
        rows: Row offsets (B, points), one set of points per image, or (1, points) for all images.
        columns: Column offsets, in the shape of ``rows``.
        weights: Weights of the offsets, in the shape of ``rows``.
        origin: Row and column in ``padded`` of the upper left pixel of the result.
        size: Height and width of the result.
    """
    fft_size = [_fast_length(side) for side in padded.shape[2:]]
    kernel = torch.zeros(len(rows), fft_size[0] * fft_size[1], device=padded.device)
    index = rows % fft_size[0] * fft_size[1] + columns % fft_size[1]
    kernel.scatter_add_(1, index, weights.expand(rows.shape).float())
    spectrum = torch.fft.rfft2(padded, s=fft_size)
    spectrum *= torch.fft.rfft2(kernel.view(-1, 1, *fft_size)).conj()
    lines = torch.fft.ifft(spectrum, dim=2)[:, :, origin[0] : origin[0] + size[0]]  # only the rows that are needed
    return torch.fft.irfft(lines, n=fft_size[1], dim=3)[..., origin[1] : origin[1] + size[1]].contiguous()


def _fast_length(length: int) -> int:
    """Returns the smallest FFT length of at least ``length`` that has no prime factor above 5."""
    return next(n for n in range(length, 2 * length + 1) if 30**20 % n == 0)
