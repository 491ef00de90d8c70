"""What all rotations of q and k share: hidden places, prefix tokens, turning pairs of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import UserError
from vitpos.positions import Positions

Prefix = Literal["origin", "content", "place", "centre"]
Turn = Callable[[Tensor], Tensor]  # (B, H, N, d) → (B, H, N, d)


class Rotary(PositionEncoding):
    """An encoding that turns q and k by their places, so that their product depends on the offset.

    What a prefix token (CLS, register) has to do with it is ``prefix``: it is not turned, so it acts as a token at the
    origin, the place (0, 0) (``origin``, what the papers do); ``centre`` and ``place`` put the origin to the centre of
    the training grid, or to a place that is learned; ``content`` gives every pair with a prefix token its plain q·k.
    """

    turns = True

    def __init__(self, geometry: Geometry, prefix: Prefix):
        super().__init__()
        self.geometry, self.prefix = geometry, prefix
        middle = [(side - 1) / 2 for side in geometry.grid]
        self.place = nn.Parameter(torch.tensor(middle)) if prefix == "place" else None
        self.middle = middle if prefix == "centre" else [0.0, 0.0]

    def turn(self, pos: Positions, layer: int, dtype: torch.dtype) -> Turn:
        """How the q or k of these places are turned in a layer."""
        raise NotImplementedError

    def coords(self, pos: Positions, dtype: torch.dtype) -> Tensor:
        """(B|1, N, 2) seen from where the prefix tokens stand, in float32 or better."""
        wide = torch.promote_types(dtype, torch.float32)
        origin = self.place.to(wide) if self.place is not None else pos.coords.new_tensor(self.middle, dtype=wide)
        return pos.coords.to(wide) - origin

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Both turned."""
        turn = self.turn(pos, layer, q.dtype)
        return turn(q), turn(k)

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """What makes a turned logit the plain q·k again, for pairs with a hidden place or, if asked, a prefix token."""
        prefix = q.shape[2] - pos.cells.shape[1]
        plain = self.prefix == "content" and prefix > 0
        if not pos.hiding and not plain:
            return None
        turn = self.turn(pos, layer, q.dtype)
        turned = [torch.cat([x[:, :, :prefix], turn(x[:, :, prefix:])], 2) for x in (q, k)]
        known = F.pad(pos.known, (prefix, 0), value=not plain)  # (B|1, T)
        keep = (known[:, :, None] & known[:, None])[:, None]
        undo = (q @ k.mT - turned[0] @ turned[1].mT) * q.shape[-1] ** -0.5
        return undo.masked_fill(keep, 0)


def head_width(name: str, geometry: Geometry) -> int:
    """The width of a head, which two axes must be able to share in pairs."""
    width = geometry.dim // geometry.heads
    if width % 4:
        raise UserError(f"encoding {name!r} needs heads of a width that 4 divides, not {width}; change dim or heads")
    return width


def turn_pairs(angles: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines (…, N, d) for angles (…, N, d/2) of the channel pairs (2t, 2t + 1)."""
    cos, sin = angles.cos(), angles.sin()
    return (
        torch.stack([cos, cos], -1).flatten(-2).to(dtype),
        torch.stack([-sin, sin], -1).flatten(-2).to(dtype),
    )


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (a, b) of neighbouring channels → (a cos − b sin, b cos + a sin), in real numbers."""
    swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(x * cos, swapped, sin)
