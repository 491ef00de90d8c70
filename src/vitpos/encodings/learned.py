"""Learned absolute positions (Dosovitskiy et al., ICLR 2021): one trained vector per place, added to its token."""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_has_prefix
from vitpos.encodings.tables import across, read, resample, taps
from vitpos.errors import UserError
from vitpos.positions import Positions


class Learned(PositionEncoding):
    """A trained vector per place of the grid, added to the tokens.

    Initialised from a truncated normal (timm cuts at ±2 in value, which at std .02 cuts nothing: a plain normal). The
    table holds patches only, as in DeiT-III; ``prefix`` adds a vector for each prefix token, as in ViT, whose first row is
    that of CLS. ``every_layer`` adds a table of its own before each block instead of one at the input (prefix tokens have
    theirs at the input all the same). Between the places
    of the table, as on another grid, vectors are interpolated; beyond its border the border repeats. ``decay`` lets weight
    decay pull at the table too, which none of the papers wants but one release does.
    """

    paper = "Dosovitskiy et al., ICLR 2021"
    traits = ("trained", "stored")

    def __init__(
        self,
        geometry: Geometry,
        *,
        std: float = 0.02,
        between: Literal["bicubic", "bilinear"] = "bicubic",
        prefix: bool = False,
        every_layer: bool = False,
        decay: bool = False,
    ):
        super().__init__()
        self.between, self.every_layer, self.weight_decay, self.span = between, every_layer, decay, geometry.grid
        layers = geometry.depth if every_layer else 1
        self.table = nn.Parameter(torch.randn(layers, *geometry.grid, geometry.dim) * std)  # (layers, R, C, D)
        if std < 0:
            raise UserError(f"encoding 'learned' got std={std}; choose 0 or more")
        if prefix:
            check_has_prefix("learned", "prefix=True", geometry)
        self.rows = nn.Parameter(torch.randn(geometry.prefix, geometry.dim) * std) if prefix else None

    def prefix_vectors(self) -> Tensor | None:
        """Returns the vectors (P, D) of the prefix tokens, if it has them."""
        return self.rows

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the vector of each position, interpolated between the entries of the table: (B|1, N, D)."""
        if layer and not self.every_layer:
            return None
        shape = self.table.shape[1], self.table.shape[2]
        table = self.table[layer].flatten(0, 1)  # (R·C, D)
        if pos.raster and pos.grid == self.span == shape:
            return table[None]
        weights = self.cached(
            pos, f"taps of {shape}", lambda: taps(across(pos.coords, self.span, shape), shape, how=self.between)
        )
        return read(table, weights)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> Learned:
        """The same encoding with its table resampled for good."""
        new = deepcopy(self)
        new.table = nn.Parameter(torch.stack([resample(table, grid, how=how) for table in self.table.detach()]))
        return new
