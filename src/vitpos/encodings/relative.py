"""Relative position bias (Swin; Liu et al., ICCV 2021), optionally with BEiT's entries for CLS."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from vitpos.encodings._table_interpolation import Taps, gather, interpolation_weights, resize_table
from vitpos.encodings.base import Geometry, PositionEncoding, check_has_prefix
from vitpos.positions import Positions


class RelativeBias(PositionEncoding):
    """Adds a learned number per offset of two patches, layer and head to the logits.

    The table has (2R − 1)×(2C − 1) entries for all offsets of the training grid. At fractional offsets, as on another
    grid, entries are interpolated; beyond the largest offsets the border entries are repeated.

    Args:
        std: Standard deviation of the initial values.
        prefix_bias: Also learns three numbers per layer and head, as in BEiT: for pairs from a prefix token (CLS) to
            patches, from patches to it, and among prefix tokens.
    """

    paper = "Liu et al. (Swin), ICCV 2021; Bao et al. (BEiT), ICLR 2022"
    traits = ("translation_invariant", "learnable", "resizable")

    def __init__(self, geometry: Geometry, *, std: float = 0.02, prefix_bias: bool = False):
        super().__init__()
        self.train_grid = geometry.grid
        shape = [2 * side - 1 for side in geometry.grid]
        self.table = nn.Parameter(torch.randn(geometry.depth, *shape, geometry.heads) * std)  # (depth, 2R−1, 2C−1, H)
        if prefix_bias:
            check_has_prefix("relative", "prefix_bias=True", geometry)
        self.prefix_bias = nn.Parameter(torch.randn(geometry.depth, 3, geometry.heads) * std) if prefix_bias else None

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias for the attention logits: (B|1, H, N, N) of patches, or (B|1, H, T, T) with ``prefix_bias``."""
        shape = self.table.shape[1], self.table.shape[2]
        weights = self.cached(pos, f"weights in {shape}", lambda: self._weights(pos, shape))
        values = gather(self.table[layer].flatten(0, 1), weights).permute(0, 3, 1, 2)  # (B|1, H, N, N)
        prefix = q.shape[2] - values.shape[-1]
        if self.prefix_bias is None or not prefix:
            return values
        from_prefix, to_prefix, among = self.prefix_bias[layer][:, None, :, None, None]  # each (1, H, 1, 1)
        batch, heads, count = values.shape[:3]
        patch_rows = torch.cat([to_prefix.expand(batch, heads, count, prefix), values], 3)
        corner = among.expand(batch, heads, prefix, prefix)
        prefix_rows = torch.cat([corner, from_prefix.expand(batch, heads, prefix, count)], 3)
        return torch.cat([prefix_rows, patch_rows], 2)

    def _weights(self, pos: Positions, shape: tuple[int, int]) -> Taps:
        zero = pos.coords.new_tensor([(side - 1) / 2 for side in shape])
        scale = pos.coords.new_tensor([(side + 1) / 2 / old for side, old in zip(shape, self.train_grid, strict=True)])
        return interpolation_weights(pos.offsets() * scale + zero, shape, mode="bilinear")

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> RelativeBias:
        """Returns a copy whose table is resampled like an image for another grid (rows, columns), as Swin does.

        ``mode`` is the interpolation. The result differs from reading the old table at scaled offsets.
        """
        new = deepcopy(self)
        shape = 2 * grid[0] - 1, 2 * grid[1] - 1
        new.table = nn.Parameter(torch.stack([resize_table(table, shape, mode=mode) for table in self.table.detach()]))
        return new
