"""Conditional position encoding by a depthwise convolution (CPE, also PEG; CPVT, Chu et al., ICLR 2023)."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions


class CPE(PositionEncoding):
    """Adds a 3×3 depthwise convolution of the patch tokens, arranged on their grid, before some blocks.

    The convolution is translation-equivariant; only the zero padding at the border gives information about absolute
    positions. Tokens are arranged by their grid cells, in any order. Cells without a token or with a hidden (masked)
    position are zero in the convolution, and tokens with a hidden position are not changed.

    Args:
        layers: The blocks before which a convolution is applied, counted from 0; by default the second block, as in
            CPVT, or the only one of a model of depth 1.
        padding: ``zeros``, or ``circular``, which removes the information about the border.
    """

    paper = "Chu et al. (CPVT), ICLR 2023"
    traits = ("index_only", "context_dependent", "learnable")

    def __init__(
        self,
        geometry: Geometry,
        *,
        layers: tuple[int, ...] | None = None,
        padding: Literal["zeros", "circular"] = "zeros",
    ):
        super().__init__()
        chosen = (min(1, geometry.depth - 1),) if layers is None else tuple(layers)
        if not chosen or not set(chosen) <= set(range(geometry.depth)):
            raise InputError(f"encoding 'cpe' got layers={chosen}; choose from 0 to {geometry.depth - 1}")
        self.padding = "constant" if padding == "zeros" else "circular"
        self.convolutions = nn.ModuleDict(
            {str(layer): nn.Conv2d(geometry.dim, geometry.dim, 3, groups=geometry.dim) for layer in chosen}
        )

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens x (B, N, D) plus a 3×3 depthwise convolution over their neighbors on the grid.

        Returns x unchanged if block number ``layer`` is not one of the blocks in the option ``layers``.
        """
        if str(layer) not in self.convolutions:
            return x
        cells = pos.index[..., None].expand(x.shape[0], -1, x.shape[2])  # (B, N, D)
        flat = _zero_hidden(x, pos)
        if not pos.is_row_major:
            flat = x.new_zeros(x.shape[0], pos.grid[0] * pos.grid[1], x.shape[2]).scatter(1, cells, flat)
        image = F.pad(flat.mT.unflatten(2, pos.grid), (1, 1, 1, 1), self.padding)  # (B, D, R + 2, C + 2)
        change = self.convolutions[str(layer)](image).flatten(2).mT  # (B, R·C, D)
        return x + _zero_hidden(change if pos.is_row_major else change.gather(1, cells), pos)


def _zero_hidden(x: Tensor, pos: Positions) -> Tensor:
    """Returns tokens x (B, N, D) with zeros where the position is hidden (masked, as in MJP training)."""
    return x.where(pos.known[..., None], 0) if pos.has_hidden else x
