"""Everyday augments of small pictures: mirrored, moved a little, in other light."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.shifts import scattered
from vitpos.training.augment._ops import brightness, colour, contrast
from vitpos.training.augment.base import Augment


class Flip(Augment):
    """Left and right exchanged, in each picture with ``probability``."""

    def __init__(self, *, probability: float = 0.5):
        if not 0 <= probability <= 1:
            raise UserError(f"augment 'flip' got probability={probability}; give a share from 0 to 1")
        self.probability = probability

    def paint(self, images: Tensor) -> Tensor:
        """The flipped pictures among the others."""
        chosen = torch.rand(len(images), device=images.device) < self.probability
        return torch.where(chosen.view(-1, 1, 1, 1), images.flip(3), images)


class Crop(Augment):
    """A crop of each picture from a canvas with a black border of ``pad`` pixels: a random move by so many at most."""

    def __init__(self, *, pad: int = 4):
        if pad < 1:
            raise UserError(f"augment 'crop' got pad={pad}; give 1 pixel or more")
        self.pad = pad

    def paint(self, images: Tensor) -> Tensor:
        """The moved pictures."""
        steps = torch.randint(-self.pad, self.pad + 1, (len(images), 2), device=images.device)
        return scattered(images, steps, "black")


class Jitter(Augment):
    """Brightness, contrast and colour of each picture, one after the other, more or less by up to ``strength``."""

    def __init__(self, *, strength: float = 0.3):
        if not 0 <= strength <= 1:
            raise UserError(f"augment 'jitter' got strength={strength}; give a share from 0 to 1")
        self.strength = strength

    def paint(self, images: Tensor) -> Tensor:
        """The pictures in another light; the order of the three is drawn for the batch."""
        changes = (brightness, contrast, colour)
        for number in torch.randperm(3).tolist():
            amount = (2 * torch.rand(len(images), device=images.device) - 1) * self.strength
            images = changes[number](images, amount)
        return images
