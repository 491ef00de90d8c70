"""DINOv3's rotary position embedding (Siméoni et al., 2025): coordinates from −1 to 1, augmented in training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitpos.encodings._rotary import PrefixMode, Rotary, check_head_dim
from vitpos.encodings.base import Geometry, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class RoPEDINO(Rotary):
    """Rotates by row and column scaled to a span of 2, which can be randomly shifted and scaled in training.

    Angles are 2π·coordinate/period with periods base^(t/(d/4)), t = 0 … d/4 − 1; the first d/4 pairs of channels rotate
    by the row, the others by the column. Pairs are neighboring channels, whereas the published code pairs channel t
    with t + d/2: the same function after a fixed permutation of the rows of W_q and W_k. In training the augmentation
    is sampled anew for every forward pass.

    Args:
        base: Base of the periods.
        shift_coords: In training, adds a random number from −shift to shift to each axis.
        jitter_coords: In training, multiplies each axis by a random factor from 1/jitter to jitter, log-uniform.
        rescale_coords: In training, multiplies both axes by one random factor from 1/rescale to rescale, log-uniform.
        prefix_mode: How prefix tokens are treated: they act as tokens at the ``origin`` (0, 0), at the ``center`` of
            the training grid, at a ``learned`` position; with ``unrotated``, their scores with patches are the plain
            q·k.
    """

    _name = "rope_dino"
    paper = "Siméoni et al. (DINOv3), arXiv 2025"
    traits = ("translation_invariant",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 100.0,
        shift_coords: float = 0.0,
        jitter_coords: float = 1.0,
        rescale_coords: float = 2.0,
        prefix_mode: PrefixMode = "center",
    ):
        super().__init__(geometry, prefix_mode)
        check_positive(self._name, base=base)
        self.head_dim, self.base = check_head_dim(self._name, geometry), base
        if shift_coords < 0 or jitter_coords < 1 or rescale_coords < 1:
            raise InputError(
                f"encoding {self._name!r} got shift_coords={shift_coords}, jitter_coords={jitter_coords}, "
                f"rescale_coords={rescale_coords}; choose a shift of 0 or more and factors of 1 or more"
            )
        self.shift_coords, self.jitter_coords, self.rescale_coords = shift_coords, jitter_coords, rescale_coords

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Returns x (B, N, D) unchanged and its positions; in training with randomly shifted and scaled coordinates.

        All layers of a forward pass use the same random numbers.
        """
        if not self.training or (self.shift_coords == 0 and self.jitter_coords == self.rescale_coords == 1):
            return x, pos
        unit = self._unit_coords(pos, x.dtype)
        sample = torch.rand(5, device=unit.device) * 2 - 1
        log_scale = sample[:2] * math.log(self.jitter_coords) + sample[2] * math.log(self.rescale_coords)
        return x, pos.with_augmented(self, (unit + self.shift_coords * sample[3:]) * torch.exp(log_scale))

    def frequencies(self) -> Tensor:
        """Returns the frequencies (depth, H, d/2, 2) of channel pairs, in radians per row and column of the training grid.

        The first half of the pairs rotates by the row, the second half by the column.
        """
        count = self.head_dim // 4
        values = 2 * math.pi * self.base ** (-torch.arange(count) / count)
        return frequencies_on_grid(values, self.geometry.grid).expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def angles(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns the angles (B|1, 1, N, d/2) of channel pairs in radians, the same in all layers and heads."""
        unit = pos.augmented[self] if self in pos.augmented else self._unit_coords(pos, dtype)
        count = self.head_dim // 4
        steps = torch.arange(count, device=unit.device, dtype=unit.dtype)
        angles = 2 * math.pi * unit[..., None] * self.base ** (-steps / count)  # (B|1, N, 2, d/4)
        return angles.flatten(2)[:, None]

    def _unit_coords(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns row and column (B|1, N, 2) minus those of the origin, in units of half the training grid.

        The default origin is the center of the training grid, which then covers −1 to 1 on each axis, edge to edge.
        """
        return self.centered_coords(pos, dtype) * 2 / pos.coords.new_tensor(self.geometry.grid)


def frequencies_on_grid(values: Tensor, grid: tuple[int, int]) -> Tensor:
    """Converts frequencies (d/4,) for coordinates from −1 to 1 to frequencies (d/2, 2) in radians per row and per column.

    ``grid`` is (rows, columns) of the training grid, which −1 to 1 covers. The first d/4 entries of the result rotate by
    the row, the others by the column.
    """
    zeros = torch.zeros_like(values)
    rows, columns = (2 / side * values for side in grid)
    return torch.stack([torch.cat([rows, zeros]), torch.cat([zeros, columns])], -1)
