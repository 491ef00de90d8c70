"""Flip, crop, color jitter and random erasing."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.shifts import shift_each
from vitpos.training.augment._ops import brightness, contrast, saturation
from vitpos.training.augment.base import Augment

PROPOSALS = 10  # boxes that are sampled per image in random erasing; the first that fits is taken


class Flip(Augment):
    """Mirrors each image horizontally with probability ``prob``."""

    def __init__(self, *, prob: float = 0.5):
        if not 0 <= prob <= 1:
            raise InputError(f"augmentation 'flip' got prob={prob}; give a number from 0 to 1")
        self.prob = prob

    def on_uint8(self, images: Tensor) -> Tensor:
        """Returns uint8 images (B, C, height, width), each mirrored with probability ``prob``."""
        chosen = torch.rand(len(images), device=images.device) < self.prob
        return torch.where(chosen.view(-1, 1, 1, 1), images.flip(3), images)


class Crop(Augment):
    """Pads each image with ``pad`` black pixels on every side and takes a random crop of the original size."""

    def __init__(self, *, pad: int = 4):
        if pad < 1:
            raise InputError(f"augmentation 'crop' got pad={pad}; give 1 pixel or more")
        self.pad = pad

    def on_uint8(self, images: Tensor) -> Tensor:
        """Returns crops of uint8 images (B, C, height, width), each at its own random offset, with the same shape."""
        steps = torch.randint(-self.pad, self.pad + 1, (len(images), 2), device=images.device)
        return shift_each(images, steps, "zeros")


class ColorJitter(Augment):
    """Scales brightness, contrast and saturation of each image by random factors.

    Args:
        strength: The factors are uniform from 1 − ``strength`` to 1 + ``strength``.
    """

    def __init__(self, *, strength: float = 0.3):
        if not 0 <= strength <= 1:
            raise InputError(f"augmentation 'color_jitter' got strength={strength}; give a number from 0 to 1")
        self.strength = strength

    def on_uint8(self, images: Tensor) -> Tensor:
        """Changes brightness, contrast and saturation of uint8 images (B, C, height, width), in random order per batch."""
        changes = (brightness, contrast, saturation)
        for number in torch.randperm(3).tolist():
            amount = (2 * torch.rand(len(images), device=images.device) - 1) * self.strength
            images = changes[number](images, amount)
        return images


class Erase(Augment):
    """Replaces a random box of each image by normal noise, as timm's RandomErasing in mode "pixel" (arXiv 1708.04896).

    Args:
        prob: Probability that an image is erased.
        area: Minimum and maximum area of the box as a fraction of the image, sampled uniformly.
        aspect: Minimum ratio of height to width; the ratio is log-uniform from ``aspect`` to 1 / ``aspect``.
    """

    def __init__(
        self,
        *,
        prob: float = 0.25,
        area: tuple[float, float] = (0.02, 0.3333333333333333),
        aspect: float = 0.3,
    ):
        if not 0 <= prob <= 1 or not 0 <= area[0] <= area[1] <= 1 or not 0 < aspect <= 1:
            raise InputError(
                f"augmentation 'erase' got prob={prob}, area={area}, aspect={aspect}; "
                "give numbers from 0 to 1, the smaller area first"
            )
        self.prob, self.area, self.aspect = prob, area, aspect

    def on_inputs(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Writes noise N(0, 1) into random boxes of inputs (B, C, height, width); returns inputs and unchanged targets."""
        box = self.sample_boxes(len(inputs), inputs.shape[2:], inputs.device)[:, None]
        noise = torch.randn(inputs.shape[1] * int(box.sum()), device=inputs.device, dtype=inputs.dtype)
        return inputs.masked_scatter(box, noise), targets

    def sample_boxes(self, count: int, size: tuple[int, ...], device: torch.device) -> Tensor:
        """Samples the boxes of ``count`` images: a mask (count, height, width) that is True inside the box of each image.

        The mask of an image that is not erased is False everywhere. ``size`` is the height and width.
        """
        rows, columns = size
        min_area, max_area = self.area
        area, aspect, top, left = torch.rand(4, count, PROPOSALS, device=device)
        area, aspect = (min_area + area * (max_area - min_area)) * rows * columns, self.aspect ** (2 * aspect - 1)
        height, width = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
        fits = (height < rows) & (width < columns)
        fits &= torch.rand(count, 1, device=device) < self.prob
        erased, first = fits.max(1)
        chosen = torch.arange(count, device=device), first
        in_rows = _interval(rows, ((rows - height + 1) * top).floor()[chosen], height[chosen])  # (count, rows)
        in_columns = _interval(columns, ((columns - width + 1) * left).floor()[chosen], width[chosen])
        return in_rows[:, :, None] & in_columns[:, None] & erased[:, None, None]


def _interval(count: int, start: Tensor, length: Tensor) -> Tensor:
    """Returns masks (…, count), True at indices from ``start`` (…) to before ``start + length``."""
    index = torch.arange(count, device=start.device)
    return (index >= start[..., None]) & (index < (start + length)[..., None])
