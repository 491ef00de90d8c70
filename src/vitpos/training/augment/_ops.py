"""Image operations on batches of uint8 images (B, C, height, width), each with its own amount (B,); 0 changes nothing.

They reproduce PIL's ``ImageOps``, ``ImageEnhance`` and affine ``transform``. Images are grayscale or RGB. Amounts with a
sign work in both directions. Autocontrast, equalize and invert ignore the amount.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.image_ops import to_gray

FILL = 128  # gray level outside a transformed image


def autocontrast(images: Tensor, amount: Tensor) -> Tensor:
    """Rescales each channel of uint8 images (B, C, height, width) to minimum 0 and maximum 255; ``amount`` is ignored."""
    pixels = images.int()
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    rescaled = (pixels - low) * 255 // (high - low).clamp_min(1)
    return torch.where(high > low, rescaled, pixels).byte()


def equalize(images: Tensor, amount: Tensor) -> Tensor:
    """Equalizes the histogram of each channel of uint8 images (B, C, height, width); ``amount`` is ignored."""
    values = images.flatten(2).long()  # (B, C, pixels)
    channels = torch.arange(values[..., 0].numel(), device=images.device).view(*values.shape[:2], 1)
    counts = torch.bincount((256 * channels + values).flatten(), minlength=256 * channels.numel())
    counts = counts.view(*values.shape[:2], 256)
    below = counts.cumsum(2) - counts  # (B, C, 256) pixels that are darker than each value
    brightest = values.amax(2, keepdim=True)
    step = below.gather(2, brightest) // 255  # pixels per value afterwards
    spread = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255)
    return torch.where(step > 0, spread.gather(2, values), values).byte().view_as(images)


def invert(images: Tensor, amount: Tensor) -> Tensor:
    """Returns 255 − ``images`` for uint8 images (B, C, height, width); ``amount`` is ignored."""
    return 255 - images


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """Sets the lowest ``amount`` (B,) bits, 0 to 8, of each value of uint8 images (B, C, height, width) to zero."""
    unit = 2 ** _per_image(amount).int()
    return (images.int() // unit * unit).byte()


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Inverts the values of uint8 images (B, C, height, width) that are at least 256 − ``amount`` (B,)."""
    return torch.where(images + _per_image(amount) >= 256, 255 - images, images)


def solarize_add(images: Tensor, amount: Tensor) -> Tensor:
    """Adds ``amount`` (B,) to the values of uint8 images (B, C, height, width) that are below 128."""
    return torch.where(images < 128, (images + _per_image(amount)).clamp_max(255).byte(), images)


def saturation(images: Tensor, amount: Tensor) -> Tensor:
    """Scales the saturation of uint8 images (B, C, height, width) by 1 + ``amount`` (B,); −1 gives grayscale."""
    return _extrapolate(images, to_gray(images), amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Scales differences to the mean gray level of each uint8 image (B, C, height, width) by 1 + ``amount`` (B,)."""
    pixels = images.shape[2] * images.shape[3]
    mean = (2 * to_gray(images).sum((1, 2, 3), keepdim=True) + pixels) // (2 * pixels)
    return _extrapolate(images, mean, amount)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Scales all values of uint8 images (B, C, height, width) by 1 + ``amount`` (B,), clamped to 0…255."""
    return _extrapolate(images, torch.zeros_like(images), amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Scales the difference of uint8 images (B, C, height, width) to their 3×3 blur by 1 + ``amount`` (B,).

    Pixels at the border are not blurred and do not change.
    """
    pixels = images.float()
    sums = F.avg_pool2d(pixels, 3, stride=1, padding=1, divisor_override=1)
    blurred = ((sums + 4 * pixels) / 13).round()  # kernel 1 1 1, 1 5 1, 1 1 1
    pixels[:, :, 1:-1, 1:-1] = blurred[:, :, 1:-1, 1:-1]
    return _extrapolate(images, pixels, amount)


def rotate(images: Tensor, amount: Tensor) -> Tensor:
    """Rotates uint8 images (B, C, height, width) about their centers by ``amount`` (B,) degrees counterclockwise."""
    height, width = images.shape[2:]
    angle = -amount.deg2rad()
    cos, sin = angle.cos(), angle.sin()
    shift_x, shift_y = width / 2 - cos * width / 2 - sin * height / 2, height / 2 + sin * width / 2 - cos * height / 2
    return _warp(images, (cos, sin, shift_x), (-sin, cos, shift_y))


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Shears uint8 images (B, C, height, width) horizontally: shifts row y left by ``amount`` (B,) · y pixels."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, amount, zero), (zero, one, zero))


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Shears uint8 images (B, C, height, width) vertically: shifts column x up by ``amount`` (B,) · x pixels."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, zero, zero), (amount, one, zero))


def translate_x(images: Tensor, amount: Tensor) -> Tensor:
    """Shifts uint8 images (B, C, height, width) left by the fraction ``amount`` (B,) of their width."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, zero, amount * images.shape[3]), (zero, one, zero))


def translate_y(images: Tensor, amount: Tensor) -> Tensor:
    """Shifts uint8 images (B, C, height, width) up by the fraction ``amount`` (B,) of their height."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, zero, zero), (zero, one, amount * images.shape[2]))


def _per_image(amount: Tensor) -> Tensor:
    """Reshapes amounts (B,) to (B, 1, 1, 1), to broadcast with images (B, C, height, width)."""
    return amount.view(-1, 1, 1, 1)


def _extrapolate(images: Tensor, origin: Tensor, amount: Tensor) -> Tensor:
    """Returns ``origin + (1 + amount) · (images − origin)`` as uint8, clamped to 0…255 and truncated.

    ``images`` are (B, C, height, width), ``origin`` broadcasts with them, and ``amount`` is (B,).
    """
    return (origin + (1 + _per_image(amount)) * (images.float() - origin)).clamp(0, 255).byte()


def _warp(images: Tensor, x: tuple[Tensor, Tensor, Tensor], y: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Warps uint8 images (B, C, height, width) by affine maps with bilinear interpolation; outside them is gray 128.

    The pixel at column u and row v gets the value at column x₀ u + x₁ v + x₂ and row y₀ u + y₁ v + y₂ of the image.
    Coordinates are in pixels from the upper left corner; the center of the first pixel is at 1/2.

    Args:
        x: The coefficients x₀, x₁ and x₂, each (B,).
        y: The coefficients y₀, y₁ and y₂, each (B,).
    """
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device)[:, None] + 0.5
    columns = torch.arange(width, device=images.device) + 0.5
    at_x, at_y = (a.view(-1, 1, 1) * columns + b.view(-1, 1, 1) * rows + c.view(-1, 1, 1) for a, b, c in (x, y))
    inside = (at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height)  # (B, height, width)
    grid = torch.stack((2 * at_x / width - 1, 2 * at_y / height - 1), 3)
    warped = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return warped.round().where(inside[:, None], FILL).byte()
