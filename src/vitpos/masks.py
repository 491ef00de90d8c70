"""When the jigsaw puzzle of MJP is played in training and which cells it covers: the same for tokens and for pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.patches import block_mask, scramble

Blocks = Literal["scaled", "published", "exact"]
SIZES: dict[Blocks, dict[str, Any]] = {"scaled": {}, "published": {"least": 8, "most": 75}, "exact": {"exact": True}}


@dataclass(frozen=True)
class Puzzle:
    """Masks of blocks that cover ``ratio`` of the cells at most, one for a batch or one ``per`` image.

    Nothing is covered before ``warmup`` of the training is over, and then a batch with ``probability``. ``blocks`` have
    sizes ``scaled`` to the grid, or those ``published`` for 14×14; ``exact`` ones are filled up by single cells.
    """

    owner: str  # what a message calls it
    ratio: float
    per: Literal["batch", "image"]
    probability: float
    warmup: float
    blocks: Blocks
    derange: bool

    def __post_init__(self) -> None:
        for name in ("ratio", "probability", "warmup"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{self.owner} got {name}={getattr(self, name)}; choose a share from 0 to 1")

    def check(self, grid: tuple[int, int]) -> None:
        """Refuses a ratio that covers no cell of a grid."""
        cells = grid[0] * grid[1]
        if self.ratio and not int(self.ratio * cells + 1e-9):
            raise UserError(
                f"{self.owner} got ratio={self.ratio}, which covers none of the {cells} cells of a {grid[0]}x{grid[1]} "
                f"grid; take 0, or {1 / cells:.3g} and more"
            )

    def mask(self, grid: tuple[int, int], images: int, progress: float, device: torch.device) -> Tensor | None:
        """(images|1, N), True where covered; None if this batch is left alone."""
        if not self.ratio or progress < self.warmup:
            return None
        if self.probability < 1 and torch.rand(()) >= self.probability:
            return None
        count = 1 if self.per == "batch" else images
        return block_mask(grid, self.ratio, images=count, device=device, **SIZES[self.blocks])

    def order(self, mask: Tensor) -> Tensor:
        """(images|1, N): the covered cells shuffled among themselves."""
        return scramble(mask, derange=self.derange)
