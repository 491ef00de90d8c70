"""Learned absolute positions (Dosovitskiy et al., ICLR 2021): one trained vector per place, added to its token."""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, where_known
from vitpos.encodings.tables import read, resample, taps
from vitpos.positions import Positions


class Learned(PositionEncoding):
    """A trained vector per place of the grid, added to the tokens.

    Initialised from a truncated normal (timm cuts at ±2 in value, which at std .02 cuts nothing: a plain normal). The
    table holds patches only, as in DeiT-III; a vector for CLS would be one more CLS token. Between the places of the
    table, as on another grid, vectors are interpolated; beyond its border the border repeats.
    """

    traits = ("trained", "stored")

    def __init__(
        self,
        geometry: Geometry,
        *,
        std: float = 0.02,
        between: Literal["bicubic", "bilinear"] = "bicubic",
    ):
        super().__init__()
        self.between = between
        self.table = nn.Parameter(torch.randn(*geometry.grid, geometry.dim) * std)  # (R, C, D)

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Adds to each token the vector of its place."""
        rows, columns = self.table.shape[:2]
        vectors = self.table.flatten(0, 1)  # (places, D)
        if pos.raster and pos.grid == (rows, columns):
            return x + vectors
        key = ("taps", rows, columns, self.between)
        where = pos.table(key, lambda: taps(pos.coords, (rows, columns), how=self.between))
        return x + where_known(read(vectors, where), pos)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> Learned:
        """The same encoding with its table resampled for good."""
        new = deepcopy(self)
        new.table = nn.Parameter(resample(self.table.detach(), grid, how=how))
        return new
