"""Base classes and functions of rotary encodings: the origin of coordinates and the rotation of channel pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from vitpos.encodings._rotary_fused import RotatePairs
from vitpos.encodings.base import Geometry, PositionEncoding, check_has_prefix
from vitpos.errors import InputError
from vitpos.positions import Positions

T = TypeVar("T")
PrefixMode = Literal["origin", "unrotated", "learned", "center"]
PairFactors = tuple[Tensor, Tensor, Tensor]  # factors of each channel, of the next and of the previous one
Rotation = Callable[[Tensor], Tensor]  # (B, H, N, d) → (B, H, N, d)


class Rotary(PositionEncoding):
    """Base class of encodings that rotate q and k by an angle that depends on the position.

    ``prefix_mode`` defines how prefix tokens (CLS, registers), which have no position, are treated. As in the papers,
    they are not rotated and so act as tokens at the origin (0, 0) by default (``"origin"``). ``"center"`` moves the
    origin to the center of the training grid, ``"learned"`` to a learned position; with ``"unrotated"`` the logit of a
    patch and a prefix token is the plain q·k.
    """

    _name: ClassVar[str] = ""  # the encoding's name in specs, for error messages; by default that of the class

    def __init__(self, geometry: Geometry, prefix_mode: PrefixMode):
        super().__init__()
        if prefix_mode in ("unrotated", "learned"):
            check_has_prefix(self._name or type(self).__name__, f"prefix_mode={prefix_mode!r}", geometry)
        self.geometry, self.unrotated_prefix = geometry, prefix_mode == "unrotated"
        center = [(side - 1) / 2 for side in geometry.grid]
        self.learned_origin = nn.Parameter(torch.tensor(center)) if prefix_mode == "learned" else None
        self.origin = tuple(center) if prefix_mode == "center" else (0.0, 0.0)

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) of tokens at positions ``pos``, as in block number ``layer``.

        By default the rotation is the same in all layers: each pair of channels is rotated by the angle that the method
        ``angles`` returns. ``dtype`` is the data type of q and k.
        """
        factors = self.cached_table(pos, "factors", lambda: pair_factors(self.angles(pos, dtype), dtype), dtype)
        return partial(rotate_pairs, factors)

    def angles(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns the angles (B|1, H|1, N, d/2), in radians, by which the d/2 channel pairs of each token are rotated.

        The angles are in float32 or better; ``dtype`` is the data type of q and k. Subclasses define this method or
        override ``rotation``.
        """
        raise NotImplementedError

    def cached_table(self, pos: Positions, name: str, make: Callable[[], T], dtype: torch.dtype) -> T:
        """Returns ``make()``, a table such as sines and cosines of positions, computed once per grid and then cached.

        With ``prefix_mode="learned"``, which learns the origin of the coordinates, it is computed at every call
        instead. ``name`` and ``dtype``, the data type of the table, are parts of the cache key.
        """
        if self.learned_origin is not None:
            return pos.without_autocast(make)
        return self.cached(pos, name, make, dtype)

    def centered_coords(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns row and column (B|1, N, 2) of each token minus those of the origin, at which a token is not rotated.

        The unit is patches. The result is in ``dtype``, but at least in float32.
        """
        wide = torch.promote_types(dtype, torch.float32)
        if self.learned_origin is not None:
            return pos.coords.to(wide) - self.learned_origin.to(wide)
        return pos.coords.to(wide) - pos.coords.new_tensor(self.origin, dtype=wide)

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the patch queries and keys (B, H, N, d) rotated by their positions; prefix tokens are left unchanged."""
        head_dim = self.geometry.dim // self.geometry.heads
        if q.shape[-1] != head_dim:
            raise InputError(
                f"encoding {self._name or type(self).__name__!r} rotates heads of width {head_dim}, not {q.shape[-1]}; "
                "in a sum, put it before the encoding that changes the width, as in 'rope + pope'"
            )
        rotation = self.rotation(pos, layer, q.dtype)
        return rotation(q), rotation(k)


class FixedFrequencies(Rotary):
    """Base class of encodings that rotate pairs of channels at fixed frequencies, the same in all layers."""

    def pair_frequencies(self) -> Tensor:
        """Returns the frequencies (H|1, d/2, 2) of all channel pairs in float64: radians per row and per column."""
        raise NotImplementedError

    def frequencies(self) -> Tensor:
        """Returns the frequencies (depth, H, d/2, 2) of all channel pairs: radians per row and per column."""
        return self.pair_frequencies().float().expand(self.geometry.depth, self.geometry.heads, -1, -1)

    def angles(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """Returns the angles (B|1, H|1, N, d/2) of channel pairs in radians: coordinates times frequencies."""
        coords = self.centered_coords(pos, dtype)
        return coords[:, None] @ self.pair_frequencies().to(coords).mT


def check_head_dim(name: str, geometry: Geometry) -> int:
    """Returns the head width d; raises InputError if 4 does not divide it, because each axis needs whole pairs of channels.

    ``name`` is the name of the encoding, for the error message.
    """
    head_dim = geometry.dim // geometry.heads
    if head_dim % 4:
        raise InputError(f"encoding {name!r} needs a head width divisible by 4, not {head_dim}; change dim or heads")
    return head_dim


def pair_factors(angles: Tensor, dtype: torch.dtype) -> PairFactors:
    """Returns (cos, after, before), each (…, N, d) in ``dtype``: factors that rotate channels (2t, 2t + 1) by angle t.

    ``angles`` (…, N, d/2) are in radians. Channel c of the rotated x is cos_c·x_c + after_c·x_(c+1) + before_c·x_(c−1);
    ``after`` and ``before`` are −sines or sines, and zero where the neighbor belongs to another pair.
    """
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    zero = torch.zeros_like(sin)
    cos, after, before = (torch.stack(pair, -1).flatten(-2) for pair in ((cos, cos), (-sin, zero), (zero, sin)))
    return cos, after, before


def rotate_pairs(factors: PairFactors, x: Tensor) -> Tensor:
    """Returns x (…, N, d) with each pair of channels (2t, 2t + 1) rotated: (a, b) → (a cos − b sin, b cos + a sin).

    ``factors`` are three tensors (cos, after, before) that broadcast over x, as `pair_factors` returns them: channel c
    of the result is cos_c·x_c + after_c·x_(c+1) + before_c·x_(c−1).
    """
    rotated: Tensor = RotatePairs.apply(x, *factors)
    return rotated


def rotate_pairs_plain(factors: PairFactors, x: Tensor) -> Tensor:
    """Returns x (…, N, d) with each pair of channels (2t, 2t + 1) rotated, as `rotate_pairs` does; slower, used in tests.

    ``factors`` are three tensors (cos, after, before), each (…, N, d): the factor of each channel, of the next channel
    and of the previous channel. ``after`` and ``before`` are zero where the neighbor belongs to another pair.
    """
    cos, after, before = factors
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return x * cos + swapped * (after + before)


def half_factors(angles: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns (cos, sin), each (…, N, d) in ``dtype``: factors that rotate channels (t, t + d/2) by angle t.

    ``angles`` (…, N, d/2) are in radians.
    """
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate_halves(factors: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """Returns x (…, N, d) with each pair of channels (t, t + d/2) rotated, by factors as `half_factors` returns them."""
    cos, sin = factors
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def skew_matrices(values: Tensor, size: int) -> Tensor:
    """Returns skew-symmetric matrices (…, b, b), b = ``size``, from ``values`` (…, b(b − 1)/2) above the diagonal."""
    row, column = torch.triu_indices(size, size, 1, device=values.device)
    flat = values.new_zeros(*values.shape[:-1], size**2).index_copy(-1, row * size + column, values)
    upper = flat.unflatten(-1, (size, size))
    return upper - upper.mT


def rotate_blocks(matrices: Tensor, x: Tensor) -> Tensor:
    """Returns x (B, H, N, d) with each block of b channels multiplied by its matrix (B|1, H, N, d/b, b, b)."""
    return (matrices @ x.unflatten(-1, (-1, matrices.shape[-1]))[..., None]).flatten(-3)
