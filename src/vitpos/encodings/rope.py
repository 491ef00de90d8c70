"""Axial rotary position embedding (RoPE-Axial; Heo et al., ECCV 2024), after RoFormer (Su et al., 2021)."""

from __future__ import annotations

import math
from copy import deepcopy
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from vitpos.encodings._rotary import (
    PrefixMode,
    Rotary,
    Rotation,
    check_head_dim,
    half_factors,
    pair_factors,
    rotate_halves,
    rotate_pairs,
)
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
        prefix_mode: Where prefix tokens (CLS and registers) are placed: at the ``origin`` (0, 0), at the ``center`` of
            the training grid, or at a ``learned`` position; with ``unrotated``, their logits with patches use q and k
            before rotation.
        register_grid: Rows and columns of a separate grid for register tokens, as in ViT-5: the last prefix tokens, one
            per cell of this grid, are rotated by their row and column in it. ViT-5 is ``learned + rope(base=10000.0,
            register_grid=(2, 2))``.
        register_base: Base of the frequencies of registers.
        pairing: Channels that form pair t: the ``neighbors`` (2t, 2t + 1), or (t, t + d/2) of the two ``halves``, as in
            DINOv3.
        axes: Whether the first half of the pairs rotates by the column, as in RoPE-ViT, or by the row, as in EVA-02.
        offset: Added to row and column of patches; 1 in the Perception Encoder, whose CLS token is at (0, 0).
        ref_grid: Rows and columns to which the training grid is scaled, as in EVA-02, where the first patch stays at 0.
        normalized: Scales rows and columns of the training grid to a span of 4π, as in DINOv3: with
            ``prefix_mode="center"`` the grid covers −2π to 2π, edge to edge.
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
        pairing: Literal["neighbors", "halves"] = "neighbors",
        axes: Literal["column_first", "row_first"] = "column_first",
        offset: float = 0.0,
        ref_grid: tuple[int, int] | None = None,
        normalized: bool = False,
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
        if ref_grid is not None and (min(ref_grid) < 1 or normalized):
            raise InputError(
                f"encoding {self._name!r} got ref_grid={ref_grid}, normalized={normalized}; "
                "choose rows and columns of 1 or more, without normalized=True"
            )
        self.pairing, self.axes, self.offset = pairing, axes, offset
        span = (4 * math.pi, 4 * math.pi) if normalized else ref_grid or geometry.grid
        self.scale = (span[0] / geometry.grid[0], span[1] / geometry.grid[1])  # of row and column

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

        The first half of the pairs rotates by the column, the second half by the row, unless ``axes`` is ``row_first``.
        """
        count = self.head_dim // 4
        values = self.base ** (-torch.arange(count) / count)
        zeros = torch.zeros_like(values)
        row, column = (values * scale for scale in self.scale)
        halves = [torch.stack([zeros, column], -1), torch.stack([row, zeros], -1)]
        both = torch.cat(halves if self.axes == "column_first" else halves[::-1])
        return both.expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def angles(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns the angles (B|1, 1, N, d/2) of channel pairs in radians, the same in all layers and heads."""
        coords = self.centered_coords(pos, dtype)
        if self.offset or self.scale != (1.0, 1.0):
            coords = (coords + self.offset) * coords.new_tensor(self.scale)
        return self._angles(coords, self.base)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) at these positions, the same in all layers."""
        if self.pairing == "neighbors":
            return super().rotation(pos, layer, dtype)
        factors = self.cached_table(pos, "halves", lambda: half_factors(self.angles(pos, dtype), dtype), dtype)
        return partial(rotate_halves, factors)

    def rotate_prefix(self, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Returns q and k (B, H, P, d) of prefix tokens, with the registers rotated by their cell in ``register_grid``."""
        assert self.register_grid is not None
        coords = Positions.from_grid(self.register_grid, device=q.device).coords
        angles = self._angles(coords.to(torch.promote_types(q.dtype, torch.float32)), self.register_base)
        rotate: Rotation = (
            partial(rotate_pairs, pair_factors(angles, q.dtype))
            if self.pairing == "neighbors"
            else partial(rotate_halves, half_factors(angles, q.dtype))
        )
        first = q.shape[2] - coords.shape[1]
        rotated = [torch.cat([x[:, :, :first], rotate(x[:, :, first:])], 2) for x in (q, k)]
        return rotated[0], rotated[1]

    def _angles(self, coords: Tensor, base: float) -> Tensor:
        count = self.head_dim // 4
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        ordered = coords.flip(-1) if self.axes == "column_first" else coords
        angles = ordered[..., None] * base ** (-steps / count)  # (B|1, N, 2, d/4)
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
