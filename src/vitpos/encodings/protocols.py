"""Optional abilities of encodings beyond `PositionEncoding`, each a protocol: an encoding has it if it defines the method.

In a sum such as ``learned + rope`` each encoding has its own abilities. Hidden positions (masked ones,
`Positions.known` is False) have no effect: the model passes zero weights for them, masks the result, or does not call
the method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor

from vitpos.encodings.base import PositionEncoding, SumEncoding
from vitpos.positions import Positions


@runtime_checkable
class Resizable(Protocol):
    """An encoding with a table of one entry per grid cell or offset, which can be resampled for another grid."""

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> Self:
        """Returns a copy whose tables are resampled for another grid (rows, columns); ``mode`` is the interpolation."""


@runtime_checkable
class NTKScalable(Protocol):
    """A rotary encoding whose frequencies can be lowered for a larger grid (NTK scaling)."""

    def ntk_scaled(self, factor: float) -> Self:
        """Returns a copy with frequencies lowered for a grid with ``factor`` times the training grid's rows and columns."""


@runtime_checkable
class FusedLogits(Protocol):
    """An encoding that can compute logits and bias in one step, faster than ``q·k/√d + bias``."""

    def fused_logits(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the attention logits (B, H, T, T) of q and k (B, H, T, d), scale and position encoding included, or None.

        If it returns None, as it may for some positions, the model uses ``bias`` or ``rotate`` instead. The model calls
        this method only if no position is hidden (masked) and, in a sum such as ``learned + sape2``, if no other
        encoding acts in attention.
        """


@runtime_checkable
class RotatesPrefix(Protocol):
    """An encoding that also rotates prefix tokens (CLS, registers) by positions on a separate grid, as in ViT-5."""

    def rotate_prefix(self, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the rotated q and k (B, H, P, d) of the P prefix tokens, as `PositionEncoding.rotate` does for patches.

        Pairs of a prefix token and a patch with a hidden (masked) position get the plain q·k, without rotation.
        """


@runtime_checkable
class TokenBias(Protocol):
    """An encoding that computes a bias from the tokens that enter attention instead of from q and k (PaPE)."""

    def token_bias(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns a bias (B|1, H|1, N, N) for the logits, from the patch tokens x (B, N, D) that enter attention.

        The model sets it to zero for pairs with a hidden (masked) position.
        """


@runtime_checkable
class MixesWeights(Protocol):
    """An encoding that changes attention weights after the softmax; GPSA mixes in weights that depend on positions."""

    def mix_weights(self, weights: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns new attention weights (B, H, N, N) among patches from those of the softmax; rows of both sum to 1.

        The model does not change weights on prefix tokens or of pairs with a hidden (masked) position. It scales the
        new weights so that each row over all tokens still sums to 1.
        """


@runtime_checkable
class ActsOnValues(Protocol):
    """An encoding that adds to the output of attention: relative vectors on values (Shaw, iRPE) or rotated values (GTA)."""

    def added_values(self, weights: Tensor, v: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the tensor (B, H, N, d) that is added to the attention output ``weights @ v`` of the patches.

        ``weights`` (B, H, N, N) are the attention weights among patches, zero for pairs with a hidden (masked)
        position; v is (B, H, N, d). Shaw et al.: Σ_j weights_ij·r_(i−j) with a learned vector r per offset. GTA:
        R_i⁻¹ Σ_j weights_ij R_j v_j − Σ_j weights_ij v_j with R_i the rotation of position i.
        """


@runtime_checkable
class FollowsTraining(Protocol):
    """An encoding that changes during training, such as MJP with its warm-up."""

    def set_progress(self, progress: float) -> None:
        """Sets the fraction of training that is done, 0 to 1; the training loop calls this before each step."""


@runtime_checkable
class HasFrequencies(Protocol):
    """A rotary encoding whose frequencies can be inspected."""

    def frequencies(self) -> Tensor | None:
        """Returns the frequencies (depth, H, d/2, 2) of channel pairs, in radians per row and per column.

        None if the encoding rotates larger blocks than pairs.
        """


@runtime_checkable
class CountsByContent(Protocol):
    """An encoding whose bias depends on counts of patches, each weighted by a gate σ(q·k/√d) (CoPE, SaPE2)."""

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, N, N) that is added to the attention logits of patches, as `PositionEncoding.bias`."""

    def counts(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> list[tuple[Tensor, Tensor]]:
        """Returns a list of (gates, counts), both (B, H, N, N), one for each direction: along rows, along columns.

        A gate σ(q_i·k_j/√d), 0 to 1, is the weight with which patch i counts patch j; a count is the sum of the gates
        from j to the end of the row or column. Entries are NaN if i and j are not in the same row or column. An
        encoding that counts over all patches in row-major order returns one such tuple.
        """


def resized(encoding: PositionEncoding, grid: tuple[int, int], *, mode: str = "bicubic") -> PositionEncoding:
    """Returns an encoding, or a sum, with its tables resampled for another grid; encodings without a table are kept.

    ``grid`` is (rows, columns), ``mode`` the interpolation, such as ``"bicubic"``.
    """
    return _map(encoding, lambda part: part.resized(grid, mode=mode) if isinstance(part, Resizable) else part)


def ntk_scaled(encoding: PositionEncoding, factor: float) -> PositionEncoding:
    """Returns an encoding, or a sum, with rotary frequencies lowered for a larger grid (NTK scaling).

    The grid has ``factor`` times the rows and columns of the training grid. Encodings without NTK scaling are kept.
    """
    return _map(encoding, lambda part: part.ntk_scaled(factor) if isinstance(part, NTKScalable) else part)


def _map(encoding: PositionEncoding, change: Callable[[Any], Any]) -> PositionEncoding:
    parts = [change(part) for part in encoding.parts]
    return SumEncoding(parts) if isinstance(encoding, SumEncoding) else parts[0]
