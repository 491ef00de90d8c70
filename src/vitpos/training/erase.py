"""Boxes of noise over pictures: random erasing."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.training.augment.base import Augment

PROPOSALS = 10  # boxes drawn for each picture, of which the first that fits is taken


class Erase(Augment):
    """A box of noise N(0, 1) per pixel and channel over each picture, with ``probability``, targets as they are.

    Its share of the picture is uniform in ``area`` and its height to width, from ``aspect`` to 1 / ``aspect``, uniform in
    the logarithm; it is less high and less wide than the picture, and its place is any. As timm's RandomErasing in the mode
    "pixel" (Zhong et al., 1708.04896).
    """

    def __init__(
        self,
        *,
        probability: float = 0.25,
        area: tuple[float, float] = (0.02, 0.3333333333333333),
        aspect: float = 0.3,
    ):
        if not 0 <= probability <= 1 or not 0 <= area[0] <= area[1] <= 1 or not 0 < aspect <= 1:
            raise UserError(
                f"augment 'erase' got probability={probability}, area={area}, aspect={aspect}; "
                "shares are from 0 to 1, the smaller area first"
            )
        self.probability, self.area, self.aspect = probability, area, aspect

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The pictures with noise in their boxes."""
        box = self.boxes(len(images), images.shape[2:], images.device)[:, None]
        noise = torch.randn(images.shape[1] * int(box.sum()), device=images.device, dtype=images.dtype)
        return images.masked_scatter(box, noise), targets

    def boxes(self, count: int, size: tuple[int, ...], device: torch.device) -> Tensor:
        """Where pictures are erased: (count, height, width)."""
        rows, columns = size
        least, most = self.area
        area, aspect, top, start = torch.rand(4, count, PROPOSALS, device=device)
        area, aspect = (least + area * (most - least)) * rows * columns, self.aspect ** (2 * aspect - 1)
        height, width = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
        fits = (height < rows) & (width < columns)
        fits &= torch.rand(count, 1, device=device) < self.probability
        some, first = fits.max(1)
        chosen = torch.arange(count, device=device), first
        in_rows = _between(rows, ((rows - height + 1) * top).floor()[chosen], height[chosen])  # (count, rows)
        in_columns = _between(columns, ((columns - width + 1) * start).floor()[chosen], width[chosen])
        return in_rows[:, :, None] & in_columns[:, None] & some[:, None, None]


def _between(places: int, start: Tensor, length: Tensor) -> Tensor:
    """Whether each place 0 … P − 1 lies within intervals (…): (…, P)."""
    at = torch.arange(places, device=start.device)
    return (at >= start[..., None]) & (at < (start + length)[..., None])
