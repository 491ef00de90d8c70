"""What is done to a batch of pictures, and to what is asked of them, before a model sees it in training."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.masks import Puzzle
from vitpos.patches import rearrange, stir
from vitpos.training import AUGMENTS


class Augment:
    """A change of pictures, drawn anew for each batch; ``one + other`` does both in order.

    It may change their bytes (``paint``) and then the normalised inputs with their targets (``__call__``). Targets are
    class numbers (B,), or the shares of all classes (B, classes) if any of a sum ``mixes``. What is drawn comes from
    torch's global generators, so that a seed tells a whole training.
    """

    mixes: bool = False

    def advance(self, progress: float) -> None:
        """Told how far training is, 0 to 1, before each step."""

    def paint(self, images: Tensor) -> Tensor:
        """The changed bytes (B, C, height, width); this one changes nothing."""
        return images

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The changed inputs (B, C, height, width) and targets; this one changes nothing."""
        return images, targets

    def batch(self, data: Dataset, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Bytes and labels (B,) as inputs and targets to train on: painted, normalised, changed."""
        targets = F.one_hot(labels, len(data.classes)).float() if self.mixes else labels
        return self(data.inputs(self.paint(images)), targets)

    def __add__(self, other: Augment) -> Augment:
        return Both(self, other)


def augmenting(spec: str) -> Augment:
    """What a recipe's spec stands for; nothing is done for an empty one."""
    augment: Augment = AUGMENTS.build(spec) if spec else Augment()
    return augment


class Both(Augment):
    """One after the other, in bytes and then in inputs."""

    def __init__(self, first: Augment, second: Augment):
        self.first, self.second = first, second
        self.mixes = first.mixes or second.mixes

    def advance(self, progress: float) -> None:
        """Told to both."""
        self.first.advance(progress)
        self.second.advance(progress)

    def paint(self, images: Tensor) -> Tensor:
        """The second's bytes of the first's."""
        return self.second.paint(self.first.paint(images))

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The second's change of the first's."""
        return self.second(*self.first(images, targets))


class Jigsaw(Augment):
    """Patches under a block-wise mask shuffled among themselves, in pixels: MJP for models without tokens.

    The same as ``mjp(unknown=False, dal=None)`` does to tokens, with the same options, on the cells of ``grid``.
    """

    def __init__(
        self,
        *,
        grid: tuple[int, int] = (14, 14),
        ratio: float = 0.27,
        per: Literal["batch", "image"] = "batch",
        probability: float = 1.0,
        warmup: float = 0.0,
        blocks: Literal["scaled", "published", "exact"] = "scaled",
        derange: bool = False,
    ):
        if min(grid) < 1:
            raise UserError(f"augment 'jigsaw' got grid={grid}; give (rows, columns)")
        self.grid, self.progress = grid, 1.0
        self.puzzle = Puzzle("augment 'jigsaw'", ratio, per, probability, warmup, blocks, derange)
        self.puzzle.check(grid)

    def advance(self, progress: float) -> None:
        """Masks begin after the warm-up."""
        self.progress = progress

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The shuffled pictures; targets stay."""
        mask = self.puzzle.mask(self.grid, len(images), self.progress, images.device)
        return (images if mask is None else rearrange(images, self.grid, self.puzzle.order(mask))), targets


class SPP(Augment):
    """All patches shuffled, and the pixels within them: one permutation of each kind for a batch (MJP, Table 4, SPP)."""

    def __init__(self, *, grid: tuple[int, int] = (14, 14)):
        if min(grid) < 1:
            raise UserError(f"augment 'spp' got grid={grid}; give (rows, columns)")
        self.grid = grid

    def __call__(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The shuffled pictures; targets stay."""
        cells = self.grid[0] * self.grid[1]
        moved = rearrange(images, self.grid, torch.randperm(cells, device=images.device))
        pixels = moved.shape[2] * moved.shape[3] // cells
        return stir(moved, self.grid, torch.randperm(pixels, device=images.device)), targets
