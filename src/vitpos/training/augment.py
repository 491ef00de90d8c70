"""What is done to a batch of pictures before a model sees it in training."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.patches import block_mask, rearrange, scramble, stir
from vitpos.training import AUGMENTS


class Augment:
    """A change of pictures (B, C, height, width), drawn anew for each batch; ``one + other`` does both in order."""

    def __call__(self, images: Tensor) -> Tensor:
        """The changed pictures; this one changes nothing."""
        return images

    def __add__(self, other: Augment) -> Augment:
        return Both(self, other)


def augmenting(spec: str) -> Augment:
    """What a recipe's spec stands for; nothing is done for an empty one."""
    augment: Augment = AUGMENTS.build(spec) if spec else Augment()
    return augment


class Both(Augment):
    """One after the other."""

    def __init__(self, first: Augment, second: Augment):
        self.first, self.second = first, second

    def __call__(self, images: Tensor) -> Tensor:
        """The second's change of the first's."""
        return self.second(self.first(images))


class Jigsaw(Augment):
    """Patches under a block-wise mask shuffled among themselves, in pixels: MJP for models without tokens.

    The same as ``mjp(unknown=False, dal=None)`` does to tokens: one mask and permutation for a batch or for each image,
    ``ratio`` of the cells of ``grid`` at most, and a batch is left alone with 1 − ``probability``.
    """

    def __init__(
        self,
        *,
        grid: tuple[int, int] = (14, 14),
        ratio: float = 0.27,
        per: Literal["batch", "image"] = "batch",
        probability: float = 1.0,
        derange: bool = False,
    ):
        if not 0 <= ratio <= 1 or not 0 <= probability <= 1 or min(grid) < 1:
            raise UserError(
                f"augment 'jigsaw' got grid={grid}, ratio={ratio}, probability={probability}; shares are from 0 to 1"
            )
        self.grid, self.ratio, self.per, self.probability, self.derange = grid, ratio, per, probability, derange

    def __call__(self, images: Tensor) -> Tensor:
        """The shuffled pictures."""
        if self.probability < 1 and torch.rand(()) >= self.probability:
            return images
        mask = block_mask(self.grid, self.ratio, images=1 if self.per == "batch" else len(images), device=images.device)
        order = scramble(mask, derange=self.derange)
        return rearrange(images, self.grid, order[0] if self.per == "batch" else order)


class SPP(Augment):
    """All patches shuffled, and the pixels within them: one permutation of each kind for a batch (MJP, Table 4, SPP)."""

    def __init__(self, *, grid: tuple[int, int] = (14, 14)):
        if min(grid) < 1:
            raise UserError(f"augment 'spp' got grid={grid}; give (rows, columns)")
        self.grid = grid

    def __call__(self, images: Tensor) -> Tensor:
        """The shuffled pictures."""
        cells = self.grid[0] * self.grid[1]
        moved = rearrange(images, self.grid, torch.randperm(cells, device=images.device))
        pixels = moved.shape[2] * moved.shape[3] // cells
        return stir(moved, self.grid, torch.randperm(pixels, device=images.device))
