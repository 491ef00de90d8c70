"""What passes inside a model, told while it passes: tokens between its layers, and what each attention reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitpos.encodings.base import PositionEncoding
from vitpos.errors import UserError
from vitpos.models.attend import SelfAttention
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.vit import Bare, Block
from vitpos.positions import Positions


@dataclass(frozen=True)
class Attending:
    """One attention over one batch, just before it answers; everything about it is computed only when asked for."""

    layer: int
    module: SelfAttention
    x: Tensor  # (B, T, D): what it reads, prefix tokens first
    encoding: PositionEncoding
    pos: Positions

    @property
    def prefix(self) -> int:
        """How many of the tokens are CLS or registers."""
        return self.x.shape[1] - self.pos.cells.shape[1]

    def logits(self) -> Tensor:
        """(B, H, T, T)."""
        return self.module.logits(self.x, self.encoding, self.pos, self.layer)

    def weights(self) -> Tensor:
        """(B, H, T, T): how much each token takes of each; rows sum to 1."""
        return self.logits().softmax(-1)

    def queries_and_keys(self) -> tuple[Tensor, Tensor]:
        """(B, H, T, d) each, before anything is said of places."""
        q, k, _ = self.module.prepared(self.x, self.encoding, self.layer)
        return q, k


def look_inside(
    model: PatchClassifier,
    images: Tensor,
    positions: Positions | None = None,
    *,
    tokens: Callable[[int, Tensor], None] | None = None,
    attention: Callable[[Attending], None] | None = None,
) -> None:
    """One pass, in which ``tokens`` hears of the patch tokens (B, N, D) and ``attention`` of every attention.

    Layer 0 of the tokens is what enters the first layer, layer l what the l-th left. The model answers as ever, by its
    fused kernels; nothing is kept on it, and here no longer than the listeners keep it.
    """
    x, pos = model.placed(images, positions)
    if tokens:
        tokens(0, x)

    def after(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if tokens:
            tokens(inputs[3] + 1, output[:, model.geometry.prefix :])

    def before(module: SelfAttention, inputs: Any) -> None:
        if attention:
            x, encoding, pos, layer = inputs[:4]
            attention(Attending(layer, module, x, encoding, pos))

    blocks = [module for module in model.modules() if isinstance(module, Block | Bare)]
    handles = [module.register_forward_hook(after) for module in blocks]
    handles += [
        module.register_forward_pre_hook(before) for module in model.modules() if isinstance(module, SelfAttention)
    ]
    try:
        last = model.encode(x, pos)
    finally:
        for handle in handles:
            handle.remove()
    if tokens and not blocks:
        tokens(model.geometry.depth, last[:, model.geometry.prefix :])


def on_one_grid(model: Classifier, what: str) -> PatchClassifier:
    """The model, if its attention is over all patches of one grid; otherwise says that ``what`` does not apply."""
    if not isinstance(model, PatchClassifier) or model.by_slot:
        raise UserError(
            f"{what} needs attention over all patches of one grid, which model {type(model).__name__.lower()!r} "
            "has not; take a vit or attention"
        )
    return model
