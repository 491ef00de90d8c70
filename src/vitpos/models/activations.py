"""Captures the patch tokens between layers and the inputs of every attention during a forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.float64 import to_float64
from vitpos.models.attention import SelfAttention, attention_logits
from vitpos.models.attention_weights import mixed_weights
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.vit import AprilBlock, Block
from vitpos.positions import Positions


@dataclass(frozen=True)
class AttentionCall:
    """The inputs of one attention module for one batch, from which its logits and weights can be computed.

    Args:
        layer: number of the block, from 0.
        x: (B, T, D), tokens that enter it, prefix tokens (CLS and registers) first.
        encoding: position encoding of the model.
        pos: positions of the patch tokens.
        queries_and_keys: returns the queries and keys (B, H, T, d), before any rotation by the position encoding.
    """

    layer: int
    x: Tensor
    encoding: PositionEncoding
    pos: Positions
    queries_and_keys: Callable[[], tuple[Tensor, Tensor]]

    @property
    def num_prefix(self) -> int:
        """Number of prefix tokens (CLS and registers) among the T tokens."""
        return self.x.shape[1] - self.pos.index.shape[1]

    def logits(self) -> Tensor:
        """Returns the attention logits (B, H, T, T), with the biases and rotations of the position encoding applied."""
        return attention_logits(*self.queries_and_keys(), self.encoding, self.pos, self.layer, self.x)

    def weights(self) -> Tensor:
        """Returns the attention weights (B, H, T, T) that are multiplied with the values; rows sum to 1."""
        return mixed_weights(self.logits().softmax(-1), self.encoding, self.pos, self.layer)


OnTokens = Callable[[int, Tensor], None]
OnAttention = Callable[[AttentionCall], None]


@runtime_checkable
class CapturesActivations(Protocol):
    """A model that captures its activations itself, because it is not made of our blocks."""

    def capture_activations(
        self, images: Tensor, positions: Positions | None, on_tokens: OnTokens | None, on_attention: OnAttention | None
    ) -> None:
        """Runs one forward pass and calls the functions, as `capture_activations` describes."""
        ...


def capture_activations(
    model: PatchClassifier,
    images: Tensor,
    positions: Positions | None = None,
    *,
    on_tokens: OnTokens | None = None,
    on_attention: OnAttention | None = None,
) -> None:
    """Runs one forward pass and passes its patch tokens and attention inputs to the given functions.

    Args:
        images: (B, C, height, width), normalized.
        positions: Positions of the patches; by default those of the patch grid of the images.
        on_tokens: Called as ``on_tokens(layer, tokens)`` with patch tokens (B, N, D): layer 0 is the input of the first
            block, layer l the output of block l.
        on_attention: Called with an :class:`AttentionCall` before every attention module runs.
    """
    if isinstance(model, CapturesActivations):
        return model.capture_activations(images, positions, on_tokens, on_attention)
    x, pos = model.embed_patches(images, positions)
    if on_tokens:
        on_tokens(0, x)

    def after_block(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if on_tokens:
            on_tokens(inputs[3] + 1, output[:, model.geometry.num_prefix :])

    def before_attention(module: SelfAttention, inputs: Any) -> None:
        if on_attention:
            x, encoding, pos, layer = inputs[:4]
            on_attention(AttentionCall(layer, x, encoding, pos, lambda: module.qkv_heads(x)[:2]))

    blocks = [module for module in model.modules() if isinstance(module, Block | AprilBlock)]
    attentions = [module for module in model.modules() if isinstance(module, SelfAttention)]
    handles = [module.register_forward_hook(after_block) for module in blocks]
    handles += [module.register_forward_pre_hook(before_attention) for module in attentions]
    try:
        output = model.forward_blocks(x, pos)
    finally:
        for handle in handles:
            handle.remove()
    if on_tokens and not blocks:
        on_tokens(model.geometry.depth, output[:, model.geometry.num_prefix :])


def layer_tokens_and_logits(
    model: PatchClassifier, images: Tensor, positions: Positions | None = None
) -> tuple[list[Tensor], list[Tensor]]:
    """Returns two lists with one tensor per block: patch tokens (B, N, D) after it, attention logits (B, H, T, T) in it.

    The logits are those of all T tokens, prefix tokens (CLS and registers) first. ``positions`` are by default those of
    the patch grid of the images. Both lists are empty for models with windowed attention, whose tokens do not stay on
    one grid.
    """
    tokens: list[Tensor] = []
    logits: list[Tensor] = []
    if model.windowed:
        return tokens, logits

    def keep_tokens(layer: int, x: Tensor) -> None:
        if layer:
            tokens.append(x)

    def keep_logits(call: AttentionCall) -> None:
        logits.append(call.logits())

    capture_activations(model, images, positions, on_tokens=keep_tokens, on_attention=keep_logits)
    return tokens, logits


def relative_error(values: Tensor, expected: Tensor) -> Tensor:
    """Returns ‖values − expected‖ / ‖expected‖ of each image: (B,), in float64; both inputs are (B, …).

    Masked logits (−∞) count as equal if both are −∞; if only one is, their difference counts as the root mean square of
    the finite expected entries.
    """
    values, expected = to_float64(values.flatten(1)), to_float64(expected.flatten(1))
    masked, expected_masked = values.isneginf(), expected.isneginf()
    norm = expected.masked_fill(expected_masked, 0).norm(dim=1)
    rms = norm / (~expected_masked).sum(1).clamp_min(1).sqrt()
    difference = (values - expected).masked_fill(masked | expected_masked, 0)
    difference = difference.where(masked == expected_masked, rms[:, None])
    return difference.norm(dim=1) / norm.clamp_min(torch.finfo(torch.float64).tiny)


def require_global_attention(model: Classifier, purpose: str) -> PatchClassifier:
    """Returns the model if every attention is over all patches of one grid (ViT, not Swin or a CNN); otherwise raises.

    ``purpose`` begins the error message, such as ``"evaluation 'token_diversity'"``.
    """
    if not isinstance(model, PatchClassifier) or model.windowed:
        raise InputError(
            f"{purpose} needs attention over all patches of one grid, which model {type(model).__name__.lower()!r} "
            "does not have; use a vit or minimal model"
        )
    return model
