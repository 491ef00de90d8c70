"""Relative position bias (Swin; Liu et al., ICCV 2021), with BEiT's entries for CLS on demand."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_has_prefix
from vitpos.encodings.tables import Taps, read, resample, taps
from vitpos.positions import Positions


class Relative(PositionEncoding):
    """A trained number per offset, layer and head, added to the logits.

    The table covers the offsets of the whole grid, (2R − 1)×(2C − 1) entries, normal of std .02. Between offsets, as on
    a fitted grid, entries are interpolated; beyond the table its border repeats. ``cls`` adds BEiT's three entries per
    head for pairs from, to and among prefix tokens.
    """

    paper = "Liu et al. (Swin), ICCV 2021; Bao et al. (BEiT), ICLR 2022"
    traits = ("relative", "trained", "stored")

    def __init__(self, geometry: Geometry, *, std: float = 0.02, cls: bool = False):
        super().__init__()
        self.span = geometry.grid
        spans = [2 * side - 1 for side in geometry.grid]
        self.table = nn.Parameter(torch.randn(geometry.depth, *spans, geometry.heads) * std)  # (depth, 2R−1, 2C−1, H)
        if cls:
            check_has_prefix("relative", "cls=True", geometry)
        self.cls = nn.Parameter(torch.randn(geometry.depth, 3, geometry.heads) * std) if cls else None

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B|1, H, N, N), or (B|1, H, T, T) with entries for prefix tokens."""
        rows, columns = self.table.shape[1:3]
        where = self.cached(pos, f"taps of {(rows, columns)}", lambda: self._taps(pos, (rows, columns)))
        values = read(self.table[layer].flatten(0, 1), where)  # (B|1, N, N, H)
        values = values.permute(0, 3, 1, 2)
        prefix = q.shape[2] - values.shape[-1]
        if self.cls is None or not prefix:
            return values
        from_cls, to_cls, among = self.cls[layer][:, None, :, None, None]  # each (1, H, 1, 1)
        batch, heads, count = values.shape[:3]
        below = torch.cat([to_cls.expand(batch, heads, count, prefix), values], 3)
        corner = among.expand(batch, heads, prefix, prefix)
        above = torch.cat([corner, from_cls.expand(batch, heads, prefix, count)], 3)
        return torch.cat([above, below], 2)

    def _taps(self, pos: Positions, shape: tuple[int, int]) -> Taps:
        zero = pos.coords.new_tensor([(side - 1) / 2 for side in shape])
        share = pos.coords.new_tensor([(side + 1) / 2 / span for side, span in zip(shape, self.span, strict=True)])
        return taps(pos.offsets() * share + zero, shape, how="bilinear")

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> Relative:
        """The table seen as a picture and resampled, as Swin does; another thing than fitting coordinates."""
        new = deepcopy(self)
        spans = 2 * grid[0] - 1, 2 * grid[1] - 1
        new.table = nn.Parameter(torch.stack([resample(table, spans, how=how) for table in self.table.detach()]))
        return new
