"""Adapters for timm's ``VisionTransformer`` and ``Eva`` (EVA-02, DINOv3, Perception Encoder and ViTs with RoPE)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.interop.adapters import Adapter, Attend


def _is_a(module: object, file: str, name: str) -> bool:
    """Returns whether a module is an instance of a class of timm, without importing timm."""
    home = sys.modules.get(file)
    return home is not None and isinstance(module, getattr(home, name))


class TimmAdapter(Adapter):
    """Adapter for timm's ``VisionTransformer``."""

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Returns whether a module is a ``VisionTransformer`` of timm."""
        return _is_a(module, "timm.models.vision_transformer", "VisionTransformer")

    def geometry(self, model: Any) -> Geometry:
        """Returns width, heads, depth, grid and number of prefix tokens of the model."""
        attention = self.attention_of(model.blocks[0])
        if attention.head_dim * attention.num_heads != model.embed_dim:
            raise InputError(
                f"heads of width {attention.head_dim} x {attention.num_heads} do not make up dim {model.embed_dim}; "
                "encodings need dim / heads channels per head"
            )
        grid = tuple(model.patch_embed.grid_size)
        return Geometry(model.embed_dim, attention.num_heads, len(model.blocks), grid, model.num_prefix_tokens)

    def patch_embed(self, model: Any) -> nn.Module:
        """Returns the patch embedding."""
        return model.patch_embed

    def grid(self, model: Any, images: Tensor) -> tuple[int, int]:
        """Returns rows and columns of patches of images (B, C, height, width)."""
        height, width = images.shape[-2:]
        return tuple(model.patch_embed.dynamic_feat_size((height, width)))

    def patch_size(self, model: Any) -> tuple[int, int]:
        """Returns height and width of a patch in pixels."""
        return tuple(model.patch_embed.patch_size)

    def blocks(self, model: Any) -> Sequence[nn.Module]:
        """Returns the blocks."""
        return list(model.blocks)

    def before_blocks(self, model: Any) -> nn.Module:
        """Returns the norm before the blocks if there is one (CLIP), otherwise the first block."""
        return model.blocks[0] if isinstance(model.norm_pre, nn.Identity) else model.norm_pre

    def attention_of(self, block: Any) -> Any:
        """Returns the attention of a block; raises an InputError if it is of an unknown class."""
        attention = getattr(block, "attn", None)
        if not any(
            _is_a(attention, file, name)
            for file, name in (
                ("timm.layers.attention", "Attention"),
                ("timm.layers.attention", "AttentionRope"),
                ("timm.models.eva", "EvaAttention"),
            )
        ):
            raise InputError(
                f"timm's {type(block).__name__} with attention {type(attention).__name__} is not supported; "
                "pass adapter=, see vitpos.Adapter"
            )
        return attention

    def attention(
        self,
        module: Any,
        attend: Attend,
        x: Tensor,
        rope: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Returns the output (B, T, D) of a timm attention for tokens x (B, T, D)."""
        q, k, v = _qkv(module, x)
        q, k = module.q_norm(q), module.k_norm(k)
        if q.shape[1] != k.shape[1]:  # grouped queries
            groups = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        y, _ = attend(
            q, k, v, x,
            mask=_mask(attn_mask, is_causal, x), dropout=module.attn_drop, need_weights=not module.fused_attn, rotary=rope,
        )  # fmt: skip
        y = module.norm(y.transpose(1, 2).flatten(2))
        if module.gate is not None:
            y = y * module.gate(x).sigmoid()
        return module.proj_drop(module.proj(y))

    def table(self, model: Any) -> tuple[nn.Module, str] | None:
        """Returns the model and the name of its table, if it has one."""
        return None if model.pos_embed is None else (model, "pos_embed")

    def table_vectors(self, model: Any, grid: tuple[int, int]) -> Tensor:
        """Returns the rows (N, D) of the table for a grid, resampled as timm does if it is another than in training."""
        rows = model.pos_embed[:, 0 if model.no_embed_class else model.num_prefix_tokens :]
        if tuple(model.patch_embed.grid_size) != grid:
            resample = sys.modules["timm.layers"].resample_abs_pos_embed
            rows = resample(rows, new_size=list(grid), old_size=list(model.patch_embed.grid_size), num_prefix_tokens=0)
        return rows[0]

    def patch_dropout(self, model: Any) -> nn.Module | None:
        """Returns the patch dropout, if the model has one."""
        return None if isinstance(model.patch_drop, nn.Identity | None) else model.patch_drop

    def apply_patch_dropout(self, module: Any, x: Tensor) -> tuple[Any, Tensor | None]:
        """Returns the tokens that remain and the indices (B, K) of the patches among them."""
        with_indices = sys.modules["timm.layers"].PatchDropoutWithIndices
        kept, index = with_indices.forward(module, x)
        return ((kept, index) if isinstance(module, with_indices) else kept), index


class EvaAdapter(TimmAdapter):
    """Adapter for timm's ``Eva``, whose attention rotates q and k."""

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Returns whether a module is an ``Eva`` of timm."""
        return _is_a(module, "timm.models.eva", "Eva")

    def rotary(self, model: Any) -> nn.Module | None:
        """Returns the module that computes the rotary embedding, if the model has one."""
        return model.rope

    def rotary_tables(self, model: Any, grid: tuple[int, int], layer: int) -> Tensor:
        """Returns sines and cosines (N, 2d) of the patches of a grid, or (H, N, 2d) if they differ by layer and head."""
        tables = model.rope.get_embed(shape=list(grid))
        return tables[layer] if model.rope_mixed else tables

    def select_rotary(self, passed: Tensor, index: Tensor) -> Tensor:
        """Returns the tables of the patches ``index`` (B|1, N), as (B|1, H|1, N, 2d)."""
        return passed[index][:, None] if passed.ndim == 2 else passed[:, index].movedim(1, 0)

    def rotate(self, model: Any, q: Tensor, k: Tensor, passed: Tensor) -> tuple[Tensor, Tensor]:
        """Returns q and k of the patch tokens (B, H, N, d), rotated by timm's own function."""
        rotate, half = sys.modules["timm.layers"].apply_rot_embed_cat, self.attention_of(model.blocks[0]).rotate_half
        return rotate(q, passed, half=half).type_as(q), rotate(k, passed, half=half).type_as(k)


def _qkv(module: Any, x: Tensor) -> list[Tensor]:
    """Returns q, k and v (B, H, T, d), before norms; k and v may have fewer heads than q."""
    if module.qkv is None:
        return [
            getattr(module, name)(x).unflatten(2, (-1, module.head_dim)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        ]
    qkv = module.qkv(x)
    if getattr(module, "q_bias", None) is not None:
        qkv = qkv + torch.cat((module.q_bias, module.k_bias, module.v_bias))
    return [one.transpose(1, 2) for one in qkv.unflatten(2, (3, module.num_heads, -1)).unbind(2)]


def _mask(mask: Tensor | None, is_causal: bool, x: Tensor) -> Tensor | None:
    """Returns a mask as numbers (B|1, H|1, T, T) that are added to the logits, or None."""
    if is_causal:
        count = x.shape[1]
        mask = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=x.dtype).masked_fill(~mask, float("-inf"))
    return mask[(None,) * (4 - mask.ndim)]
