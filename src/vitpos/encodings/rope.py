"""Axial rotary position embedding (RoPE-Axial; Heo et al., ECCV 2024), after RoFormer (Su et al., 2021)."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor

from vitpos.encodings._rotary import PrefixMode, Rotary, check_head_dim, pair_factors, rotate_pairs
from vitpos.encodings.base import Geometry, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class RoPE(Rotary):
    """Rotates half of each head's channels by the column of the token and half by its row; nothing is learned.

    Frequencies ω_t = base^(−t/(d/4)), t = 0 … d/4 − 1. Channels (2t, 2t + 1) form pair t; the first d/4 pairs rotate by
    column·ω_t, the last by row·ω_t, as in the published code. A larger grid extrapolates the angles, or interpolates
    them if its coordinates are scaled to the training grid.

    Args:
        base: Base of the frequencies.
        ntk_factor: Ratio s of a larger grid's rows and columns to those of the training grid (NTK scaling). The base
            becomes base·s^(d/(d − 4)), which leaves the highest frequency unchanged and divides the lowest by s.
        prefix_mode: How prefix tokens are treated: they act as tokens at the ``origin`` (0, 0), at the ``center`` of
            the training grid, at a ``learned`` position; with ``unrotated``, their scores with patches are the plain
            q·k.
        register_grid: Rows and columns of a separate grid for register tokens, as in ViT-5: the last prefix tokens, one
            per cell of this grid, are rotated by their row and column in it. ViT-5 is ``learned + rope(base=10000.0,
            register_grid=(2, 2))``.
        register_base: Base of the frequencies of registers.
    """

    _name = "rope"
    paper = "Su et al., 2021; Heo et al., ECCV 2024"
    traits = ("translation_invariant",)

    def __init__(
        self,
        geometry: Geometry,
        *,
        base: float = 100.0,
        ntk_factor: float = 1.0,
        prefix_mode: PrefixMode = "origin",
        register_grid: tuple[int, int] | None = None,
        register_base: float = 100.0,
    ):
        super().__init__(geometry, prefix_mode)
        self.head_dim = check_head_dim(self._name, geometry)
        check_positive(self._name, base=base, ntk_factor=ntk_factor, register_base=register_base)
        if register_grid is not None:
            _check_registers(register_grid, geometry, prefix_mode)
        self.register_grid, self.register_base = register_grid, register_base
        if self.head_dim == 4 and ntk_factor != 1:
            raise InputError(
                f"encoding {self._name!r} got ntk_factor={ntk_factor} for heads of width 4, which have one frequency; "
                "leave it out"
            )
        self.base = base * _ntk_scale(self.head_dim, ntk_factor)

    @property
    def hooks(self) -> frozenset[str]:
        """Returns the names of the methods through which the encoding acts, such as ``{"rotate"}``.

        ``rotate_prefix``, which rotates register tokens, is one of them only if the option ``register_grid`` is set.
        """
        return self._hooks - ({"rotate_prefix"} if self.register_grid is None else set())

    def ntk_scaled(self, factor: float) -> RoPE:
        """Returns a copy for a grid with ``factor`` times the rows and columns, by NTK scaling of the base.

        The base is multiplied by factor^(d/(d − 4)), d the head width; a factor below 1 changes nothing.
        """
        new = deepcopy(self)
        new.base = self.base * _ntk_scale(self.head_dim, max(factor, 1.0))
        return new

    def frequencies(self) -> Tensor:
        """Returns the frequencies (depth, H, d/2, 2) of channel pairs, in radians per row and per column.

        The first half of the pairs rotates by the column, the second half by the row.
        """
        count = self.head_dim // 4
        values = self.base ** (-torch.arange(count) / count)
        zeros = torch.zeros_like(values)
        both = torch.stack([torch.cat([zeros, values]), torch.cat([values, zeros])], -1)
        return both.expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def angles(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns the angles (B|1, 1, N, d/2) of channel pairs in radians, the same in all layers and heads."""
        return self._angles(self.centered_coords(pos, dtype), self.base)

    def rotate_prefix(self, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Returns q and k (B, H, P, d) of prefix tokens, with the registers rotated by their cell in ``register_grid``."""
        assert self.register_grid is not None
        coords = Positions.from_grid(self.register_grid, device=q.device).coords
        angles = self._angles(coords.to(torch.promote_types(q.dtype, torch.float32)), self.register_base)
        factors = pair_factors(angles, q.dtype)
        first = q.shape[2] - coords.shape[1]
        rotated = [torch.cat([x[:, :, :first], rotate_pairs(factors, x[:, :, first:])], 2) for x in (q, k)]
        return rotated[0], rotated[1]

    def _angles(self, coords: Tensor, base: float) -> Tensor:
        count = self.head_dim // 4
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = coords.flip(-1)[..., None] * base ** (-steps / count)  # (B|1, N, 2, d/4), column before row
        return angles.flatten(2)[:, None]


def _check_registers(grid: tuple[int, int], geometry: Geometry, prefix_mode: PrefixMode) -> None:
    if len(grid) != 2 or min(grid) < 1 or grid[0] * grid[1] > geometry.num_prefix:
        raise InputError(
            f"encoding 'rope' got register_grid={grid} in a model with {geometry.num_prefix} CLS and register tokens; "
            "choose rows and columns with at most that number of cells, or more registers"
        )
    if prefix_mode == "unrotated":
        raise InputError(
            f"encoding 'rope' got register_grid={grid} with prefix_mode='unrotated', which rotates no "
            "pair with a register; leave one of them out"
        )


def _ntk_scale(head_dim: int, factor: float) -> float:
    return factor ** (head_dim / (head_dim - 4)) if head_dim > 4 else 1.0
