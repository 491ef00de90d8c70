"""Adapter for torch's own ``nn.TransformerEncoder``, which gets tokens and no images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.interop.adapters import Adapter, Attend


class TransformerEncoderAdapter(Adapter):
    """Adapter for a ``TransformerEncoder`` with ``batch_first=True``.

    Args:
        model: The encoder.
        grid: Rows and columns of the patch tokens.
        num_prefix: Number of tokens in front of them (CLS and registers).
    """

    def __init__(self, model: nn.TransformerEncoder, grid: tuple[int, int] | None, num_prefix: int):
        if grid is None:
            raise InputError("a TransformerEncoder gets tokens and no images; pass grid=(rows, columns) and num_prefix")
        first = model.layers[0]
        if not isinstance(first, nn.TransformerEncoderLayer):
            raise InputError(
                f"layers of class {type(first).__name__} are not supported; pass adapter=, see vitpos.Adapter"
            )
        if not first.self_attn.batch_first:
            raise InputError("a TransformerEncoder with batch_first=False is not supported; set batch_first=True")
        attention, (rows, columns) = first.self_attn, grid
        self._geometry = Geometry(
            attention.embed_dim, attention.num_heads, len(model.layers), (rows, columns), num_prefix
        )

    def geometry(self, model: nn.Module) -> Geometry:
        """Returns width, heads and depth of the encoder, and the given grid and number of prefix tokens."""
        return self._geometry

    def blocks(self, model: Any) -> Sequence[nn.Module]:
        """Returns the layers."""
        return list(model.layers)

    def attention_of(self, block: Any) -> nn.Module:
        """Returns the self-attention of a layer."""
        return block.self_attn

    def settings(self, model: Any) -> list[tuple[nn.Module, str, Any]]:
        """Returns the settings that turn off torch's fast path for evaluation, which computes a layer in one kernel."""
        layers = [(layer, "activation_relu_or_gelu", 0) for layer in model.layers]
        return [(model, "use_nested_tensor", False), *layers]

    def attention(
        self,
        module: Any,
        attend: Attend,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output (B, T, D) of a ``MultiheadAttention`` for tokens x (B, T, D), and its mean weights or None.

        ``key`` and ``value`` are x; masks are numbers, −∞ for what must not be attended to.
        """
        qkv = F.linear(x, module.in_proj_weight, module.in_proj_bias).unflatten(2, (3, module.num_heads, -1))
        q, k, v = (one.transpose(1, 2) for one in qkv.unbind(2))
        mask = None if key_padding_mask is None else key_padding_mask[:, None, None]  # (B, 1, 1, T)
        if attn_mask is not None:  # (T, T) or (B · H, T, T)
            given = attn_mask[None, None] if attn_mask.ndim == 2 else attn_mask.unflatten(0, (-1, module.num_heads))
            mask = given if mask is None else mask + given
        mask = None if mask is None else mask.expand(-1, -1, x.shape[1], -1)
        dropout = nn.Dropout(module.dropout).train(module.training)
        y, weights = attend(q, k, v, x, mask=mask, dropout=dropout, need_weights=need_weights)
        output = module.out_proj(y.transpose(1, 2).flatten(2))
        return output, weights.mean(1) if need_weights and weights is not None else None
