"""Rare abilities of encodings, each a protocol: a class has one by defining the method, in a sum each part for itself.

A hidden position has no effect in any of them: the model passes zero weights, masks the result, or does not call it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor

from vitpos.encodings.base import PositionEncoding, SumEncoding
from vitpos.positions import Positions


@runtime_checkable
class Resizable(Protocol):
    """Stores a table for its grid that can be resampled."""

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> Self:
        """Returns a copy with its tables resampled for another grid."""


@runtime_checkable
class NTKScalable(Protocol):
    """Rotates at frequencies that can be lowered for a larger grid."""

    def ntk_scaled(self, factor: float) -> Self:
        """Returns a copy whose frequencies serve a grid ``factor`` times as large as the training grid."""


@runtime_checkable
class FusedLogits(Protocol):
    """Computes all logits at once, faster than ``q·k + bias``."""

    def fused_logits(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns logits (B, H, T, T) that include the scale and the bias, or None to use ``bias`` for these positions.

        Called only if no position is hidden and no other part of the sum acts in attention.
        """


@runtime_checkable
class RotatesPrefix(Protocol):
    """Rotates prefix tokens too, which then have positions of their own (the registers of ViT-5)."""

    def rotate_prefix(self, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the q and k of the prefix tokens (B, H, P, d), as `PositionEncoding.rotate` does for the patches.

        Pairs of a prefix token and a hidden patch get the plain q·k.
        """


@runtime_checkable
class TokenBias(Protocol):
    """Computes a bias from the tokens that enter attention rather than from q and k (PaPE)."""

    def token_bias(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns (B|1, H|1, N, N) to add to the logits, for the patch tokens (B, N, D) that enter attention.

        Pairs with a hidden position get no bias.
        """


@runtime_checkable
class MixesWeights(Protocol):
    """Changes attention weights after the softmax (GPSA mixes them with weights that depend on positions)."""

    def mix_weights(self, weights: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns new weights (B, H, N, N) whose rows sum to 1, from the weights among patches, normalized to sum to 1.

        The weights on prefix tokens and of pairs with a hidden position stay as they are; the others share what is left.
        """


@runtime_checkable
class ActsOnValues(Protocol):
    """Adds to the output of attention: relative vectors on values (Shaw, iRPE), or values rotated and back (GTA)."""

    def added_values(self, weights: Tensor, v: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns (B, H, N, d) to add to the outputs ``weights @ v`` of the patches.

        ``weights`` (B, H, N, N) are the attention weights among patches, zero for pairs with a hidden position; v is
        (B, H, N, d). Shaw et al.: Σ_j weights_ij·r_(i−j). GTA: R_i⁻¹ Σ_j weights_ij R_j v_j − Σ_j weights_ij v_j.
        """


@runtime_checkable
class FollowsTraining(Protocol):
    """Changes in the course of training."""

    def set_progress(self, progress: float) -> None:
        """Called before each training step with the fraction of training that is done, 0 to 1."""


@runtime_checkable
class HasFrequencies(Protocol):
    """Rotates pairs of channels at frequencies that can be inspected."""

    def frequencies(self) -> Tensor | None:
        """Returns (depth, H, d/2, 2): radians per row and per column of each pair of channels; None if not pairwise."""


@runtime_checkable
class CountsByContent(Protocol):
    """Counts positions by gates that depend on content (CoPE, SaPE2) and derives its bias from the counts."""

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, N, N), as `PositionEncoding.bias`."""

    def counts(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> list[tuple[Tensor, Tensor]]:
        """Returns gates and counts (B, H, N, N) for each direction of counting, NaN where a pair is not counted."""


def resized(encoding: PositionEncoding, grid: tuple[int, int], *, mode: str = "bicubic") -> PositionEncoding:
    """Returns the encoding with the tables of its parts resampled for another grid; parts without one stay as they are."""
    return _map(encoding, lambda part: part.resized(grid, mode=mode) if isinstance(part, Resizable) else part)


def ntk_scaled(encoding: PositionEncoding, factor: float) -> PositionEncoding:
    """Returns the encoding with the frequencies of its parts scaled for a grid ``factor`` times as large."""
    return _map(encoding, lambda part: part.ntk_scaled(factor) if isinstance(part, NTKScalable) else part)


def _map(encoding: PositionEncoding, change: Callable[[Any], Any]) -> PositionEncoding:
    parts = [change(part) for part in encoding.parts]
    return SumEncoding(parts) if isinstance(encoding, SumEncoding) else parts[0]
