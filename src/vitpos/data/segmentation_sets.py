"""Scenes: pictures in which every pixel has a class, in the shape that a model takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Split
from vitpos.data.image_ops import in_shape
from vitpos.data.mnist import mnist
from vitpos.data.synthetic import halves, paste
from vitpos.errors import UserError
from vitpos.patches import permutations

IGNORED = 255  # in a mask: this pixel has no class
INK = 64  # a pixel this bright belongs to its digit, and so do its neighbours
SMALLEST = 8  # height and width of a digit that can still be read


@dataclass(frozen=True)
class Scenes:
    """Pictures (n, C, height, width) and the classes of their pixels (n, height, width), all as bytes."""

    images: Tensor
    masks: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def first(self, count: int) -> Self:
        """The first scenes alone."""
        return type(self)(self.images[:count], self.masks[:count])


@dataclass(frozen=True)
class SceneSet:
    """Scenes to train and to test, and how many classes they have."""

    train: Scenes
    test: Scenes
    classes: int


def digits(
    shape: tuple[int, int, int],
    *,
    count: int = 1000,
    grid: tuple[int, int] = (2, 2),
    filled: int = 3,
    seed: int = 0,
) -> SceneSet:
    """Digits of MNIST in some cells of a grid, on black: class 0 is the background, 1 to 10 are the digits 0 to 9.

    ``count`` scenes to train, a quarter as many to test, of training and test digits. ``filled`` cells of ``grid``, drawn
    for each scene, have a digit each, of 6/7 of the cell's shorter side, anywhere in the cell. The pixels of a digit are
    its ink and what touches it.
    """
    _, height, width = shape
    cell = torch.tensor([height, width]) // torch.tensor(grid).clamp_min(1)
    side = int(cell.min()) * 6 // 7
    if min(grid) < 1 or not 1 <= filled <= grid[0] * grid[1] or side < SMALLEST:
        raise UserError(
            f"scenes 'digits' got grid={grid}, filled={filled} for pictures of {height}x{width}; "
            "choose cells of 10 pixels or more and fill 1 or more of them"
        )

    def make(split: Split, count: int, stream: int) -> Scenes:
        draw = torch.Generator().manual_seed(stream)
        chosen = torch.randint(len(split), (filled, count), generator=draw)
        cells = permutations(count, grid[0] * grid[1], seed=stream)[:, :filled].T
        images = masks = torch.zeros(count, 1, height, width, dtype=torch.uint8)
        for which, where in zip(chosen, cells, strict=True):
            corner = torch.stack([where // grid[1], where % grid[1]], 1) * cell
            corner += (torch.rand(count, 2, generator=draw) * (cell - side + 1)).long()
            ink = in_shape(split.images[which], (1, side, side))
            own = F.max_pool2d(ink.float(), 3, stride=1, padding=1) >= INK
            images = paste(images, ink[:, 0], (side, side), corner)
            masks = paste(masks, own[:, 0] * (split.labels[which] + 1).view(-1, 1, 1), (side, side), corner)
        return Scenes(in_shape(images, shape), masks[:, 0])

    whole = mnist()
    first, second = halves("scenes 'digits'", count, seed)
    return SceneSet(make(whole.train, *first), make(whole.test, *second), 11)
