"""Fixed 2-D sine-cosine position embeddings (MoCo-v3, 2021; MAE, 2022)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class Sinusoidal(PositionEncoding):
    """Adds fixed sines and cosines of row and column to the patch tokens; nothing is learned.

    With K = D/4 frequencies ω_k = temperature^(−k/K), the vector is [sin row·ω, sin column·ω, cos row·ω, cos column·ω] in
    timm's layout and [sin row·ω, cos row·ω, sin column·ω, cos column·ω] in that of MoCo-v3 and MAE. The inner product of
    two vectors depends only on the offset of their positions. MoCo-v3's code swaps rows and columns, which matters on
    non-square grids; this class does not.

    Args:
        temperature: Base of the geometric progression of wavelengths; 10 to 100 suits small grids.
        layout: Order of the channels: that of ``timm``, or ``moco`` for that of MoCo-v3 and MAE.
    """

    paper = "Chen et al. (MoCo-v3), ICCV 2021; He et al. (MAE), CVPR 2022"

    def __init__(
        self,
        geometry: Geometry,
        *,
        temperature: float = 10000.0,
        layout: Literal["timm", "moco"] = "timm",
    ):
        super().__init__()
        check_positive("sinusoidal", temperature=temperature)
        if geometry.dim % 4:
            raise InputError(
                f"encoding 'sinusoidal' needs a width divisible by 4, not {geometry.dim}; change the model's dim"
            )
        self.dim, self.temperature, self.layout = geometry.dim, temperature, layout

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before the first block: sines and cosines."""
        return None if layer else self.cached(pos, "vectors", lambda: self._vectors(pos.coords, dtype), dtype)

    def _vectors(self, coords: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns vectors (B|1, N, D) for coordinates (B|1, N, 2), with the angles in float32 or better."""
        count = self.dim // 4
        coords = coords.to(torch.promote_types(dtype, torch.float32))
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = coords[..., None] * self.temperature ** (-steps / count)  # (B|1, N, 2, K)
        values = torch.stack([angles.sin(), angles.cos()], 2 if self.layout == "timm" else 3)
        return values.flatten(2).to(dtype)
