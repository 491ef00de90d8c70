"""Fixed 2-D sines and cosines (MoCo-v3, 2021; MAE, 2022)."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding, where_known
from vitpos.errors import UserError
from vitpos.positions import Positions


class Sinusoidal(PositionEncoding):
    """Fixed sines and cosines of row and column, added to the tokens: nothing is trained.

    With K = D/4 frequencies ω_k = temperature^(−k/K) a place gets [sin row·ω, sin column·ω, cos row·ω, cos column·ω]
    (timm's layout). The inner product of two vectors depends on the offset of their places alone. MoCo-v3 writes
    another order of the four parts and, for row-major tokens, calls the row "w": harmless on square grids only.
    """

    def __init__(self, geometry: Geometry, *, temperature: float = 10000.0):
        super().__init__()
        if geometry.dim % 4:
            raise UserError(
                f"encoding 'sinusoidal' needs a width that 4 divides, not {geometry.dim}; change the model's dim"
            )
        self.dim, self.temperature = geometry.dim, temperature

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Adds to each token the waves at its place."""
        key = ("sinusoidal", self.dim, self.temperature, x.dtype)
        return x + where_known(pos.table(key, lambda: self._waves(pos.coords, x.dtype)), pos)

    def _waves(self, coords: Tensor, dtype: torch.dtype) -> Tensor:
        """(B|1, N, 2) → (B|1, N, D), the angles in float32 or better."""
        count = self.dim // 4
        coords = coords.to(torch.promote_types(dtype, torch.float32))
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = coords[..., None] * self.temperature ** (-steps / count)  # (B|1, N, 2, K)
        return torch.cat([angles.sin().flatten(2), angles.cos().flatten(2)], -1).to(dtype)
