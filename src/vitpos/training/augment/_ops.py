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
    """Rescales each channel so that its minimum is 0 and its maximum 255."""
    pixels = images.int()
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    rescaled = (pixels - low) * 255 // (high - low).clamp_min(1)
    return torch.where(high > low, rescaled, pixels).byte()


def equalize(images: Tensor, amount: Tensor) -> Tensor:
    """Equalizes the histogram of each channel."""
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
    """Inverts all values."""
    return 255 - images


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """Sets the ``amount`` lowest bits of each value, 0 to 8, to zero."""
    unit = 2 ** _per_image(amount).int()
    return (images.int() // unit * unit).byte()


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Inverts values of at least 256 − ``amount``."""
    return torch.where(images + _per_image(amount) >= 256, 255 - images, images)


def solarize_add(images: Tensor, amount: Tensor) -> Tensor:
    """Adds ``amount`` to values below 128."""
    return torch.where(images < 128, (images + _per_image(amount)).clamp_max(255).byte(), images)


def saturation(images: Tensor, amount: Tensor) -> Tensor:
    """Scales the saturation by 1 + ``amount``; −1 gives grayscale."""
    return _extrapolate(images, to_gray(images), amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Scales the contrast to the mean gray level by 1 + ``amount``."""
    pixels = images.shape[2] * images.shape[3]
    mean = (2 * to_gray(images).sum((1, 2, 3), keepdim=True) + pixels) // (2 * pixels)
    return _extrapolate(images, mean, amount)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Scales all values by 1 + ``amount``."""
    return _extrapolate(images, torch.zeros_like(images), amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Scales the difference to a 3×3 blur by 1 + ``amount``; pixels at the border are not blurred."""
    pixels = images.float()
    sums = F.avg_pool2d(pixels, 3, stride=1, padding=1, divisor_override=1)
    blurred = ((sums + 4 * pixels) / 13).round()  # kernel 1 1 1, 1 5 1, 1 1 1
    pixels[:, :, 1:-1, 1:-1] = blurred[:, :, 1:-1, 1:-1]
    return _extrapolate(images, pixels, amount)


def rotate(images: Tensor, amount: Tensor) -> Tensor:
    """Rotates images about their centers by ``amount`` degrees counterclockwise."""
    height, width = images.shape[2:]
    angle = -amount.deg2rad()
    cos, sin = angle.cos(), angle.sin()
    shift_x, shift_y = width / 2 - cos * width / 2 - sin * height / 2, height / 2 + sin * width / 2 - cos * height / 2
    return _warp(images, (cos, sin, shift_x), (-sin, cos, shift_y))


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Shifts row y left by ``amount`` · y."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, amount, zero), (zero, one, zero))


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Shifts column x up by ``amount`` · x."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, zero, zero), (amount, one, zero))


def translate_x(images: Tensor, amount: Tensor) -> Tensor:
    """Shifts images left by ``amount`` of their width."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, zero, amount * images.shape[3]), (zero, one, zero))


def translate_y(images: Tensor, amount: Tensor) -> Tensor:
    """Shifts images up by ``amount`` of their height."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, zero, zero), (zero, one, amount * images.shape[2]))


def _per_image(amount: Tensor) -> Tensor:
    """Reshapes amounts (B,) to broadcast with images."""
    return amount.view(-1, 1, 1, 1)


def _extrapolate(images: Tensor, origin: Tensor, amount: Tensor) -> Tensor:
    """Returns ``origin + (1 + amount) · (images − origin)``, clamped to 0…255 and truncated."""
    return (origin + (1 + _per_image(amount)) * (images.float() - origin)).clamp(0, 255).byte()


def _warp(images: Tensor, x: tuple[Tensor, Tensor, Tensor], y: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Warps each image by an affine map, bilinearly: pixel (x, y) gets the value at (``x`` · (x, y, 1), ``y`` · (x, y, 1)).

    ``x`` and ``y`` hold three coefficients (B,) each. Coordinates are in pixels from the upper left corner; the first
    pixel is at 1/2.
    """
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device)[:, None] + 0.5
    columns = torch.arange(width, device=images.device) + 0.5
    at_x, at_y = (a.view(-1, 1, 1) * columns + b.view(-1, 1, 1) * rows + c.view(-1, 1, 1) for a, b, c in (x, y))
    inside = (at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height)  # (B, height, width)
    grid = torch.stack((2 * at_x / width - 1, 2 * at_y / height - 1), 3)
    warped = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return warped.round().where(inside[:, None], FILL).byte()
