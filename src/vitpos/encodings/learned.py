"""Learned absolute position embeddings (Dosovitskiy et al., ICLR 2021)."""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings._table_interpolation import gather, interpolation_weights, rescale_coords, resize_table
from vitpos.encodings.base import Geometry, PositionEncoding, check_has_prefix
from vitpos.errors import InputError
from vitpos.positions import Positions


class Learned(PositionEncoding):
    """Adds a learned vector per grid cell to the patch tokens.

    The table covers patches only, as in DeiT-III. At fractional coordinates, as on a finer grid, vectors are
    interpolated; outside the training grid the border vectors are repeated.

    Args:
        std: Standard deviation of the initial values.
        interpolation: How the table is read between grid cells.
        prefix_embed: Also learns a vector for each prefix token (CLS and registers), as ViT does for CLS; a number for
            that many of the first prefix tokens: 1 for CLS alone (DINOv2 with registers).
        per_layer: Uses a separate table before each block instead of one at the input.
        weight_decay: Applies weight decay to the table. The papers do not; the published code of MJP does.
        init: Distribution of the initial values, with mean 0: ``normal``, or ``uniform`` with the same ``std``.
    """

    paper = "Dosovitskiy et al., ICLR 2021"
    traits = ("learnable", "resizable")

    def __init__(
        self,
        geometry: Geometry,
        *,
        std: float = 0.02,
        interpolation: Literal["bicubic", "bilinear"] = "bicubic",
        prefix_embed: bool | int = False,
        per_layer: bool = False,
        weight_decay: bool = False,
        init: Literal["normal", "uniform"] = "normal",
    ):
        super().__init__()
        if std < 0:
            raise InputError(f"encoding 'learned' got std={std}; choose 0 or more")
        if prefix_embed:
            check_has_prefix("learned", "prefix_embed=True", geometry)
        self.interpolation, self.per_layer, self.weight_decay = interpolation, per_layer, weight_decay
        self.train_grid = geometry.grid
        layers = geometry.depth if per_layer else 1
        sample = torch.randn if init == "normal" else _standard_uniform
        self.table = nn.Parameter(sample(layers, *geometry.grid, geometry.dim) * std)  # (layers, R, C, D)
        rows = geometry.num_prefix if prefix_embed is True else int(prefix_embed)
        if not 0 <= rows <= geometry.num_prefix:
            raise InputError(
                f"encoding 'learned' got prefix_embed={prefix_embed} in a model with {geometry.num_prefix} prefix tokens; "
                "choose at most that number"
            )
        self.num_prefix = geometry.num_prefix
        self.prefix_table = nn.Parameter(sample(rows, geometry.dim) * std) if prefix_embed else None

    def prefix_vectors(self) -> Tensor | None:
        """Returns the vectors (P, D) of the P prefix tokens, zero without a learned one; None without ``prefix_embed``."""
        if self.prefix_table is None or len(self.prefix_table) == self.num_prefix:
            return self.prefix_table
        return F.pad(self.prefix_table, (0, 0, 0, self.num_prefix - len(self.prefix_table)))

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the learned vectors (B|1, N, D) to add to the patch tokens before block number ``layer``.

        Returns None if ``layer`` is above 0, unless the option ``per_layer`` is set.
        """
        if layer and not self.per_layer:
            return None
        shape = self.table.shape[1], self.table.shape[2]
        table = self.table[layer].flatten(0, 1)  # (R·C, D)
        if pos.is_full_grid and pos.grid == self.train_grid == shape:
            return table[None]
        weights = self.cached(
            pos,
            f"weights in {shape}",
            lambda: interpolation_weights(
                rescale_coords(pos.coords, self.train_grid, shape), shape, mode=self.interpolation
            ),
        )
        return gather(table, weights)

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> Learned:
        """Returns a copy whose table is resampled for another grid (rows, columns); ``mode`` is the interpolation."""
        new = deepcopy(self)
        new.table = nn.Parameter(torch.stack([resize_table(table, grid, mode=mode) for table in self.table.detach()]))
        return new


def _standard_uniform(*shape: int) -> Tensor:
    """Returns a tensor of uniform random numbers with mean 0 and standard deviation 1, from −√3 to √3."""
    return (torch.rand(*shape) * 2 - 1) * 3**0.5
