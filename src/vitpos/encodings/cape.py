"""Continuous augmented positional embeddings (CAPE; Likhomanenko et al., NeurIPS 2021), the 2-D form for images."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions


class CAPE(PositionEncoding):
    """Adds sines and cosines of coordinates that are randomly shifted and scaled in training; nothing is learned.

    Channels [cos φ, sin φ] with φ_t = π·10^(t/(D/2 − 1))·(y cos t + x sin t), t = 0 … D/2 − 1 (radians), and row y and
    column x scaled so that the cell centers of the training grid run from −1 to 1. In training, each image gets (y, x)
    → λ·((y, x) + Δ + ε) with one random shift Δ per axis, one random scale λ (log-uniform), and a random shift ε per
    patch and axis. In evaluation mode coordinates are not changed.

    Magnitudes, order of channels and augmentation are those of the public PyTorch port (gcambara/cape), which follows
    the code in the paper's appendix; they were not compared with the paper's text. The port also multiplies the tokens
    by √D, which is left out here.

    Args:
        global_shift: Largest shift Δ, as a fraction of half the training grid.
        local_shift: Largest shift ε, in units of patches; 0.5 keeps the order of neighbors.
        global_scale: Largest scale λ; the smallest is its inverse.
    """

    paper = "Likhomanenko et al., NeurIPS 2021"
    traits = ()

    def __init__(
        self, geometry: Geometry, *, global_shift: float = 0.5, local_shift: float = 0.5, global_scale: float = 1.4
    ):
        super().__init__()
        if geometry.dim % 2:
            raise InputError(f"encoding 'cape' needs an even width, not {geometry.dim}; change the model's dim")
        if global_shift < 0 or local_shift < 0 or global_scale < 1:
            raise InputError(
                f"encoding 'cape' got global_shift={global_shift}, local_shift={local_shift}, global_scale="
                f"{global_scale}; choose shifts of 0 or more and a scale of 1 or more"
            )
        self.dim, self.train_grid = geometry.dim, geometry.grid
        self.global_shift, self.local_shift, self.global_scale = global_shift, local_shift, global_scale

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Returns x (B, N, D) unchanged and its positions; in training with randomly shifted and scaled coordinates."""
        return x, pos.with_augmented(self, self._sample_coords(pos, len(x))) if self.training else pos

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) added to patch tokens before the first block: sines and cosines of coordinates."""
        if layer:
            return None
        return self.cached(pos, "vectors", lambda: self._vectors(pos, dtype), dtype)

    def _unit_coords(self, pos: Positions) -> Tensor:
        spans = pos.coords.new_tensor([max(side - 1, 1) for side in self.train_grid])
        centers = pos.coords.new_tensor([(side - 1) / 2 for side in self.train_grid])
        return (pos.coords - centers) * 2 / spans  # (B|1, N, 2)

    def _sample_coords(self, pos: Positions, batch: int) -> Tensor:
        """Returns coordinates (B, N, 2), B = ``batch``, scaled to −1 … 1, after random shifts and a scale of each image."""
        unit, count = self._unit_coords(pos), pos.index.shape[1]
        cells = unit.new_tensor([2 / max(side - 1, 1) for side in self.train_grid])

        def sample(*shape: int) -> Tensor:
            return torch.rand(shape, device=unit.device) * 2 - 1

        unit = unit + self.global_shift * sample(batch, 1, 2) + self.local_shift * cells * sample(batch, count, 2)
        return unit * torch.exp(math.log(self.global_scale) * sample(batch, 1, 1))

    def _vectors(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns cosines and sines (B|1, N, D) of the coordinates, with phases in float32 or better."""
        unit = pos.augmented[self] if self in pos.augmented else self._unit_coords(pos)  # (B|1, N, 2)
        unit = unit.to(torch.promote_types(dtype, torch.float32))
        count = self.dim // 2
        steps = torch.arange(count, device=unit.device, dtype=unit.dtype)
        sizes = math.pi * 10 ** (steps / max(count - 1, 1))
        phases = unit @ torch.stack([sizes * steps.cos(), sizes * steps.sin()])  # (B|1, N, D/2)
        return torch.cat([phases.cos(), phases.sin()], -1).to(dtype)
