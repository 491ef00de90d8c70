"""The positions that a model of another library has of its own, a learned table and rotary positions, as encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vitpos.encodings.base import PositionEncoding
from vitpos.positions import Positions

if TYPE_CHECKING:
    from vitpos.interop.attachment import Attachment


class OwnTable(PositionEncoding):
    """The learned position table that a model has, as an encoding: it reads the rows of the patches' grid cells."""

    def __init__(self, attachment: Attachment):
        super().__init__()
        self.attachment = attachment

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the rows (B|1, N, D) of the model's table before the first block."""
        if layer:
            return None
        return self.attachment.adapter.table_vectors(self.attachment.model, pos.grid)[pos.index]


class OwnRotary(PositionEncoding):
    """The rotary positions that a model has, as an encoding."""

    def __init__(self, attachment: Attachment):
        super().__init__()
        self.attachment = attachment

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Returns q and k of the patch tokens (B, H, N, d), rotated as the model itself does."""
        attachment, adapter = self.attachment, self.attachment.adapter
        passed, grid_pos = attachment.rotary_args, attachment.grid_pos
        if grid_pos is None or pos.grid != grid_pos.grid:
            passed = adapter.rotary_tables(attachment.model, pos.grid, layer)
        if pos is not grid_pos:
            passed = adapter.select_rotary(passed, pos.index)
        return adapter.rotate(attachment.model, q, k, passed)
