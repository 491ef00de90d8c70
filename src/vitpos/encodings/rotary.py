"""What all rotations of q and k share: hidden places, prefix tokens, turning pairs of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, needs_prefix
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
        if prefix in ("content", "place"):
            needs_prefix(type(self).__name__, f"prefix={prefix!r}", geometry)
        self.geometry, self.prefix = geometry, prefix
        middle = [(side - 1) / 2 for side in geometry.grid]
        self.place = nn.Parameter(torch.tensor(middle)) if prefix == "place" else None
        self.middle = middle if prefix == "centre" else [0.0, 0.0]

    def turn(self, pos: Positions, layer: int, dtype: torch.dtype) -> Turn:
        """How the q or k of these places are turned in a layer."""
        raise NotImplementedError

    def waves(self) -> Tensor | None:
        """(depth, H, d/2, 2): by how much a step down and a step right turn each pair of channels, in radians per patch.

        None where pairs of channels are not all that turns.
        """
        return None

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


def turn_pairs(angles: Tensor, dtype: torch.dtype) -> Turn:
    """Pairs (a, b) of channels (2t, 2t + 1) → (a cos − b sin, b cos + a sin), for x (…, N, d) and angles (…, N, d/2)."""
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    zero = torch.zeros_like(sin)
    factors = [torch.stack(pair, -1).flatten(-2) for pair in ((cos, cos), (-sin, zero), (zero, sin))]
    return lambda x: Neighbours.apply(x, *factors)


class Neighbours(torch.autograd.Function):
    """y_t = here_t · x_t + after_t · x_(t+1) + before_t · x_(t−1) along the last dimension: whole rows, nothing swapped.

    The factors broadcast over x; ``after`` ends and ``before`` begins with zero.
    """

    generate_vmap_rule = True  # for gradients of each image

    @staticmethod
    def forward(x: Tensor, here: Tensor, after: Tensor, before: Tensor) -> Tensor:
        """Three passes, the last two into the first."""
        y = x * here
        y[..., :-1].addcmul_(x[..., 1:], after[..., :-1])
        y[..., 1:].addcmul_(x[..., :-1], before[..., 1:])
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keeps what the way back needs."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The same step with the factors of the neighbours changed over."""
        (x, here, after, before), gradient = ctx.saved_tensors, gradients[0]
        back = Neighbours.apply(gradient, here, F.pad(before[..., 1:], (0, 1)), F.pad(after[..., :-1], (1, 0)))
        found: list[Tensor | None] = [None, None, None]
        if any(ctx.needs_input_grad[1:]):
            beside = F.pad(x, (1, 1))
            found = [(gradient * y).sum_to_size(here.shape) for y in (x, beside[..., 2:], beside[..., :-2])]
        return back, *found
