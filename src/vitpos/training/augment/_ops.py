"""Changes of pictures as bytes (B, C, height, width), each by its own amount (B,), of which 0 changes nothing.

They are PIL's ``ImageOps``, ``ImageEnhance`` and affine ``transform`` for a whole batch; pictures are grey (C = 1) or
red, green and blue. Where an amount has a sign, it goes either way. AutoContrast, equalize and invert have no amount.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FILL = 128  # what stands where a moved picture was not


def autocontrast(images: Tensor, amount: Tensor) -> Tensor:
    """Each channel stretched so that its darkest pixel is 0 and its brightest 255."""
    pixels = images.int()
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    stretched = (pixels - low) * 255 // (high - low).clamp_min(1)
    return torch.where(high > low, stretched, pixels).byte()


def equalize(images: Tensor, amount: Tensor) -> Tensor:
    """Each channel with its values spread so that all are about as frequent."""
    values = images.flatten(2).long()  # (B, C, pixels)
    channels = torch.arange(values[..., 0].numel(), device=images.device).view(*values.shape[:2], 1)
    counts = torch.bincount((256 * channels + values).flatten(), minlength=256 * channels.numel())
    counts = counts.view(*values.shape[:2], 256)
    below = counts.cumsum(2) - counts  # (B, C, 256) how many pixels are darker than each value
    brightest = values.amax(2, keepdim=True)
    step = below.gather(2, brightest) // 255  # pixels that share a value afterwards
    spread = ((step // 2 + below) // step.clamp_min(1)).clamp_max(255)
    return torch.where(step > 0, spread.gather(2, values), values).byte().view_as(images)


def invert(images: Tensor, amount: Tensor) -> Tensor:
    """Dark for bright."""
    return 255 - images


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """Without their ``amount`` lowest bits, 0 to 8."""
    unit = 2 ** _each(amount).int()
    return (images.int() // unit * unit).byte()


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Inverted where they are within ``amount`` of 256."""
    return torch.where(images + _each(amount) >= 256, 255 - images, images)


def lighten(images: Tensor, amount: Tensor) -> Tensor:
    """With ``amount`` added where they are below 128, called SolarizeAdd elsewhere."""
    return torch.where(images < 128, (images + _each(amount)).clamp_max(255).byte(), images)


def colour(images: Tensor, amount: Tensor) -> Tensor:
    """Further from their greys, or nearer with a negative ``amount``: at −1 grey."""
    return _away(images, grey(images), amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Further from their mean grey, or nearer."""
    pixels = images.shape[2] * images.shape[3]
    mean = (2 * grey(images).sum((1, 2, 3), keepdim=True) + pixels) // (2 * pixels)
    return _away(images, mean, amount)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Further from black, or nearer."""
    return _away(images, torch.zeros_like(images), amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Further from their blur, or nearer; the blur leaves the pixels at the border."""
    pixels = images.float()
    around = F.avg_pool2d(pixels, 3, stride=1, padding=1, divisor_override=1)
    blurred = ((around + 4 * pixels) / 13).round()  # 1 1 1, 1 5 1, 1 1 1
    pixels[:, :, 1:-1, 1:-1] = blurred[:, :, 1:-1, 1:-1]
    return _away(images, pixels, amount)


def grey(images: Tensor) -> Tensor:
    """The brightness (B, 1, height, width) of bytes, as whole numbers."""
    if images.shape[1] == 1:
        return images.int()
    weights = torch.tensor((19595, 38470, 7471), device=images.device, dtype=torch.int).view(3, 1, 1)  # of 2¹⁶
    return (images.int() * weights).sum(1, keepdim=True).add(2**15) >> 16


def rotate(images: Tensor, amount: Tensor) -> Tensor:
    """Turned about their centres by ``amount`` degrees against the clock."""
    height, width = images.shape[2:]
    angle = -amount.deg2rad()
    cos, sin = angle.cos(), angle.sin()
    right, down = width / 2 - cos * width / 2 - sin * height / 2, height / 2 + sin * width / 2 - cos * height / 2
    return _warp(images, (cos, sin, right), (-sin, cos, down))


def shear_x(images: Tensor, amount: Tensor) -> Tensor:
    """Rows moved left by ``amount`` of their depth."""
    one, none = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, amount, none), (none, one, none))


def shear_y(images: Tensor, amount: Tensor) -> Tensor:
    """Columns moved up by ``amount`` of their distance from the left."""
    one, none = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, none, none), (amount, one, none))


def translate_x(images: Tensor, amount: Tensor) -> Tensor:
    """Moved left by ``amount`` of their width."""
    one, none = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, none, amount * images.shape[3]), (none, one, none))


def translate_y(images: Tensor, amount: Tensor) -> Tensor:
    """Moved up by ``amount`` of their height."""
    one, none = torch.ones_like(amount), torch.zeros_like(amount)
    return _warp(images, (one, none, none), (none, one, amount * images.shape[2]))


def _each(amount: Tensor) -> Tensor:
    """An amount per picture (B,), to stand beside pictures."""
    return amount.view(-1, 1, 1, 1)


def _away(images: Tensor, origin: Tensor, amount: Tensor) -> Tensor:
    """Pictures moved away from others by ``amount`` of their difference, fractions cut off."""
    return (origin + (1 + _each(amount)) * (images.float() - origin)).clamp(0, 255).byte()


def _warp(images: Tensor, x: tuple[Tensor, Tensor, Tensor], y: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Pictures that at (x, y) show what was at ``x · (x, y, 1)`` and ``y · (x, y, 1)``, the coefficients (B,) each.

    Coordinates are in pixels from the upper left corner, and pixels are half a pixel from it.
    """
    height, width = images.shape[2:]
    down = torch.arange(height, device=images.device)[:, None] + 0.5
    right = torch.arange(width, device=images.device) + 0.5
    at_x, at_y = (a.view(-1, 1, 1) * right + b.view(-1, 1, 1) * down + c.view(-1, 1, 1) for a, b, c in (x, y))
    inside = (at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height)  # (B, height, width)
    places = torch.stack((2 * at_x / width - 1, 2 * at_y / height - 1), 3)
    moved = F.grid_sample(images.float(), places, padding_mode="border", align_corners=False)
    return moved.round().where(inside[:, None], FILL).byte()
