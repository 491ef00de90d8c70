"""Conditional positions by convolution (CPE, PEG; Chu et al., CPVT, ICLR 2023)."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import UserError
from vitpos.positions import Positions


class CPE(PositionEncoding):
    """A 3×3 depthwise convolution over the patches as a picture, added before some blocks.

    One convolution before the second block is CPVT's choice (before the only one in a model of depth 1); ``blocks`` names
    others, from 0. Zeros around the picture are what tells a patch of the border; ``circular`` takes them away. Tokens
    lie in their cells, whatever their order; empty and hidden cells are zero, and a hidden token gains nothing. Away from
    the border it is blind to shifts.
    """

    paper = "Chu et al. (CPVT), ICLR 2023"
    traits = ("by-cell", "contextual", "trained")

    def __init__(
        self,
        geometry: Geometry,
        *,
        blocks: tuple[int, ...] | None = None,
        padding: Literal["zeros", "circular"] = "zeros",
    ):
        super().__init__()
        chosen = (min(1, geometry.depth - 1),) if blocks is None else tuple(blocks)
        if not chosen or not set(chosen) <= set(range(geometry.depth)):
            raise UserError(f"encoding 'cpe' got blocks={chosen}; choose from 0 to {geometry.depth - 1}")
        self.mode = "constant" if padding == "zeros" else "circular"
        self.convolutions = nn.ModuleDict(
            {str(block): nn.Conv2d(geometry.dim, geometry.dim, 3, groups=geometry.dim) for block in chosen}
        )

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Adds to each token what its neighbours say."""
        if str(layer) not in self.convolutions:
            return x
        cells = pos.cells[..., None].expand(len(x), -1, x.shape[2])  # (B, N, D)
        known = _zero_hidden(x, pos)
        flat = (
            known if pos.raster else x.new_zeros(len(x), pos.grid[0] * pos.grid[1], x.shape[2]).scatter(1, cells, known)
        )
        picture = flat.mT.unflatten(2, pos.grid)  # (B, D, R, C)
        moved = self.convolutions[str(layer)](F.pad(picture, (1, 1, 1, 1), self.mode)).flatten(2).mT
        return x + _zero_hidden(moved if pos.raster else moved.gather(1, cells), pos)


def _zero_hidden(x: Tensor, pos: Positions) -> Tensor:
    """Returns tokens (B, N, D) with zeros where the position is hidden."""
    return x.where(pos.known[..., None], 0) if pos.hiding else x
