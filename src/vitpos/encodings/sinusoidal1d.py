"""Sine and cosine of the token index (Vaswani et al., NeurIPS 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class Sinusoidal1d(PositionEncoding):
    """Adds fixed sines and cosines of the row-major index of the grid cell: the grid is treated as a sequence.

    PE[p, 2i] = sin(p/temperature^(2i/D)), PE[p, 2i + 1] = cos(p/temperature^(2i/D)). On a grid with another number of
    columns, the same index is another row and column.

    Args:
        temperature: Base of the geometric progression of wavelengths.
    """

    paper = "Vaswani et al., NeurIPS 2017"
    traits = ("grid_shape_invariant", "index_only")

    def __init__(self, geometry: Geometry, *, temperature: float = 10000.0):
        super().__init__()
        check_positive("sinusoidal1d", temperature=temperature)
        if geometry.dim % 2:
            raise InputError(f"encoding 'sinusoidal1d' needs an even width, not {geometry.dim}; change the model's dim")
        self.dim, self.temperature = geometry.dim, temperature

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: sines and cosines."""
        return None if layer else self.cached(pos, "vectors", lambda: self._vectors(pos.index, dtype), dtype)

    def _vectors(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns vectors (B|1, N, D) for row-major indices (B|1, N), with the angles in float32 or better."""
        wide = torch.promote_types(dtype, torch.float32)
        steps = torch.arange(0, self.dim, 2, device=index.device, dtype=wide)
        angles = index[..., None] * self.temperature ** (-steps / self.dim)  # (B|1, N, D/2)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(2).to(dtype)
