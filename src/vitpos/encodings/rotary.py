"""What all rotations of q and k share: hidden places, prefix tokens, turning pairs of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_has_prefix
from vitpos.errors import UserError
from vitpos.positions import Positions

Prefix = Literal["origin", "content", "place", "centre"]
Rotation = Callable[[Tensor], Tensor]  # (B, H, N, d) → (B, H, N, d)


class Rotary(PositionEncoding):
    """An encoding that turns q and k by their places, so that their product depends on the offset.

    What a prefix token (CLS, register) has to do with it is ``prefix``: it is not turned, so it acts as a token at the
    origin, the place (0, 0) (``origin``, what the papers do); ``centre`` and ``place`` put the origin to the centre of
    the training grid, or to a place that is learned; ``content`` gives every pair with a prefix token its plain q·k.
    """

    def __init__(self, geometry: Geometry, prefix: Prefix):
        super().__init__()
        if prefix in ("content", "place"):
            check_has_prefix(type(self).__name__, f"prefix={prefix!r}", geometry)
        self.geometry, self.prefix = geometry, prefix
        middle = [(side - 1) / 2 for side in geometry.grid]
        self.place = nn.Parameter(torch.tensor(middle)) if prefix == "place" else None
        self.middle = tuple(middle) if prefix == "centre" else (0.0, 0.0)
        self.unrotated_prefix = prefix == "content"

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns the function that rotates q or k (B, H, N, d) at these positions in a layer."""
        raise NotImplementedError

    def coords(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """(B|1, N, 2) seen from where the prefix tokens stand, in float32 or better."""
        wide = torch.promote_types(dtype, torch.float32)
        origin = self.place.to(wide) if self.place is not None else pos.coords.new_tensor(self.middle, dtype=wide)
        return pos.coords.to(wide) - origin

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Rotates the patch queries and keys; prefix tokens are left unchanged."""
        rotation = self.rotation(pos, layer, q.dtype)
        return rotation(q), rotation(k)


def head_width(name: str, geometry: Geometry) -> int:
    """The width of a head, which two axes must be able to share in pairs."""
    width = geometry.dim // geometry.heads
    if width % 4:
        raise UserError(f"encoding {name!r} needs heads of a width that 4 divides, not {width}; change dim or heads")
    return width


def pair_factors(angles: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Returns the cosines and signed sines (…, N, d) that `rotate_pairs` needs, from angles (…, N, d/2)."""
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return cos.repeat_interleave(2, -1), torch.stack([-sin, sin], -1).flatten(-2)


def rotate_pairs(factors: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """Rotates pairs of channels (2t, 2t + 1) of x (…, N, d): (a, b) → (a cos − b sin, b cos + a sin)."""
    cos, sin = factors
    return x * cos + x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2) * sin
