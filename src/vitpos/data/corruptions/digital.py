"""Contrast, elastic transform, pixelation and JPEG compression."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.corruptions._filters import gaussian, to_uint8
from vitpos.data.corruptions._random import BlockRandom
from vitpos.data.image_ops import to_gray
from vitpos.float64 import to_float64

LUMA_STEPS = (  # the standard's quantization steps of luma (ITU T.81, annex K), from low to high frequencies
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMA_STEPS = (  # and of chroma
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99),
)


def contrast(images: Tensor, rng: BlockRandom, kept: float) -> Tensor:
    """Interpolates each channel of uint8 images (B, C, height, width) toward its mean over the image.

    ``kept`` is the weight of the image, 1 − ``kept`` that of the mean. ``rng`` is not used, because nothing is random.
    """
    pixels = images.float()
    mean = pixels.mean((2, 3), keepdim=True)
    return to_uint8(pixels.mul_(kept).add_(mean * (1 - kept)))


def elastic_transform(images: Tensor, rng: BlockRandom, max_shift: float, smoothing: float, warp: float) -> Tensor:
    """Applies a random affine map to each image and then a smooth random displacement field.

    Args:
        images: uint8 images (B, C, height, width).
        rng: Random numbers.
        max_shift: Maximum displacement before smoothing, as a fraction of the height.
        smoothing: Std of the Gaussian that smooths displacements, as a fraction of the height (vertically) and of the width
            (horizontally).
        warp: Maximum shift of three corners of a central square by the affine map, as a fraction of the shorter side.
    """
    height, width = images.shape[2:]
    pixels = images.float()
    if warp:
        pixels = affine_warp(pixels, rng.uniform(-warp * min(height, width), warp * min(height, width), 3, 2))
    if max_shift:
        field = rng.uniform(-max_shift * height, max_shift * height, 2, height, width)
        field = gaussian(field, (smoothing * height, smoothing * width), truncate=3.0, border="mirror")
        x = field[:, 0].add_(torch.arange(width, device=images.device) + 0.5).mul_(2 / width).sub_(1)
        y = field[:, 1].add_(torch.arange(height, device=images.device)[:, None] + 0.5).mul_(2 / height).sub_(1)
        pixels = F.grid_sample(pixels, torch.stack((x, y), 3), padding_mode="reflection", align_corners=False)
    return to_uint8(pixels)


def pixelate(images: Tensor, rng: BlockRandom, scale: float) -> Tensor:
    """Downscales uint8 images (B, C, height, width) to ``scale`` (0 to 1) of their size and upscales them again.

    Box averaging downscales, nearest-neighbor interpolation upscales. Values are rounded once, where PIL rounds twice.
    ``rng`` is not used, because nothing is random.
    """
    height, width = images.shape[2:]
    row_sums, row_counts = _sum_rows(images, int(height * scale))
    sums, column_counts = _sum_rows(row_sums.mT.contiguous(), int(width * scale))  # (B, C, columns, rows), transposed
    mean = sums.float().div_(column_counts[:, None] * row_counts).add_(0.5).short().byte()
    columns, rows = (_covering(side, int(side * scale), images.device) for side in (width, height))
    return mean.index_select(2, columns).mT.contiguous().index_select(2, rows)


def jpeg_compression(images: Tensor, rng: BlockRandom, quality: float) -> Tensor:
    """Compresses and decompresses uint8 images (B, C, height, width) as JPEG of ``quality`` 1 to 100.

    Chroma is subsampled (4:2:0). Only the lossy part is done, in floating point; libjpeg's integer arithmetic may round a
    coefficient the other way. ``rng`` is not used, because nothing is random.
    """
    height, width = images.shape[2:]
    pixels = images.float()
    if height % 2 or width % 16:
        pixels = F.pad(pixels, (0, -width % 16, 0, height % 2), mode="replicate")
    if images.shape[1] == 1:
        return to_uint8(_quantize(pixels.sub_(128), LUMA_STEPS, quality).add_(128)[:, :, :height, :width])
    luma, red, blue = to_gray(pixels), pixels[:, :1], pixels[:, 2:]
    chroma = torch.cat(((blue - luma).mul_(0.5 / 0.886), (red - luma).mul_(0.5 / 0.701)), 1).round_()
    luma = _quantize(luma.round_().sub_(128), LUMA_STEPS, quality)[:, :, :height, :width].add_(128.5)
    chroma = _quantize(_subsample(chroma), CHROMA_STEPS, quality)[:, :, : (height + 1) // 2, : (width + 1) // 2]
    cb, cr = F.interpolate(chroma, scale_factor=2, mode="bilinear")[:, :, :height, :width].round_().split(1, 1)
    rgb = (
        luma.add(cr, alpha=1.402),
        luma.sub(cb, alpha=0.344136).sub_(cr, alpha=0.714136),
        luma.add_(cb, alpha=1.772),
    )
    return torch.cat([to_uint8(channel) for channel in rgb], 1)


def affine_warp(pixels: Tensor, shifts: Tensor) -> Tensor:
    """Warps each of the images (B, C, height, width) by an affine map, given by the shifts of three points.

    Args:
        shifts: Shifts (B, 3, 2), as x and y in pixels, of the lower right, upper right and upper left corner of a central
            square.
    """
    height, width = pixels.shape[2:]
    shifts = to_float64(shifts)
    center = torch.tensor((width // 2, height // 2), device=shifts.device, dtype=torch.float64)
    half = min(height, width) // 3
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=shifts.device)
    corners = center + half * signs  # (3, 2)
    shifted = F.pad(corners + shifts, (0, 1), value=1.0)  # (B, 3, 3) x, y and 1
    inverse = torch.linalg.solve(shifted, corners.expand(len(shifted), 3, 2)).float().to(pixels.device)  # (B, 3, 2)
    of_x, of_y, offset = inverse[:, None, None].unbind(3)  # (B, 1, 1, 2) each
    x = torch.arange(width, device=pixels.device)[:, None]
    y = torch.arange(height, device=pixels.device)[:, None, None]
    source = x * of_x + (y * of_y + offset)  # (B, height, width, 2) in pixels
    grid = source.mul_(2 / (torch.tensor((width, height), device=pixels.device) - 1)).sub_(1)
    return F.grid_sample(pixels, grid, padding_mode="reflection", align_corners=True)


def _sum_rows(images: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Divides the rows of images (B, C, rows, columns) into ``count`` groups of adjacent rows and sums each group.

    Returns the sums (B, C, count, columns) and the number of rows in each group (count,).
    """
    rows = images.shape[2]
    centers = torch.arange(rows, dtype=torch.float64) + 0.5
    counts = torch.bincount((centers / (rows / count)).ceil().long() - 1, minlength=count).to(images.device)
    first = counts.cumsum(0) - counts
    total = images.index_select(2, first).short()
    for number in range(1, int(counts.max())):
        row = images.index_select(2, (first + number).clamp_max(rows - 1))
        total += row * (counts > number).to(row.dtype)[:, None]
    return total, counts


def _covering(rows: int, count: int, device: torch.device) -> Tensor:
    """Returns for each of ``rows`` rows the index of the coarse row that contains its center: (rows,).

    The ``count`` coarse rows are of equal height and together as high as the ``rows`` rows.
    """
    centers = torch.arange(rows, dtype=torch.float64) + 0.5
    return (centers / (rows / count)).long().to(device)


def _subsample(planes: Tensor) -> Tensor:
    """Averages 2×2 pixels of planes (B, C, height, width): returns (B, C, height / 2, width / 2).

    As in libjpeg, halves are rounded up in every second column only.
    """
    row_pairs = planes[:, :, ::2] + planes[:, :, 1::2]
    total = row_pairs[..., ::2] + row_pairs[..., 1::2]
    odd = torch.arange(total.shape[3], device=planes.device) % 2
    return total.add_(odd + 1).mul_(0.25).floor_()


def _quantize(planes: Tensor, steps: tuple[tuple[int, ...], ...], quality: float) -> Tensor:
    """Quantizes the cosine transform of 8×8 blocks of images as JPEG does; returns the decoded images.

    Their height is rounded up to a multiple of 8.

    Args:
        planes: Float images (B, C, height, width) with values centered at 0; 8 divides the width.
        steps: The 8×8 quantization steps at quality 50.
        quality: JPEG quality, 1 to 100.
    """
    transform, inverse = (matrix.to(planes.device) for matrix in _dct_matrices(steps, quality))
    if planes.shape[2] % 8:
        planes = F.pad(planes, (0, 0, 0, -planes.shape[2] % 8), mode="replicate")
    blocks = planes.unflatten(3, (-1, 8)).unflatten(2, (-1, 8)).transpose(3, 4)  # (B, C, rows, columns, 8, 8)
    decoded = (blocks.flatten(4) @ transform).round_() @ inverse
    merged = decoded.unflatten(4, (8, 8)).transpose(3, 4).flatten(4).flatten(2, 3)
    return merged.round_().clamp_(-128, 127)


@lru_cache(maxsize=32)
def _dct_matrices(steps: tuple[tuple[int, ...], ...], quality: float) -> tuple[Tensor, Tensor]:
    """Returns two matrices (64, 64) by which flattened 8×8 blocks (…, 64) are multiplied from the right.

    The first maps pixels to cosine coefficients in units of the quantization steps, the second maps these back to pixels.

    Args:
        steps: The 8×8 quantization steps at quality 50.
        quality: JPEG quality, 1 to 100, to which the steps are scaled.
    """
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    scaled = ((torch.tensor(steps) * scale + 50) // 100).clamp(1, 255).flatten().double()
    index = torch.arange(8, dtype=torch.float64)
    cosines = torch.cos(math.pi / 8 * (index[:, None] + 0.5) * index) / 2  # (8 pixels, 8 frequencies)
    cosines[:, 0] /= math.sqrt(2)
    matrix = torch.kron(cosines, cosines)  # orthogonal: its transpose is its inverse
    return (matrix / scaled).float(), (matrix.T * scaled[:, None]).float()
