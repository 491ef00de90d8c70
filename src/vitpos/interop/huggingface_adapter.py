"""Adapter for Hugging Face's ViT, DeiT, DINOv2 (with and without registers) and DINOv3."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.interop.adapters import Adapter, Attend
from vitpos.patches import patch_grid, to_2tuple

MODELS = ("ViTModel", "DeiTModel", "Dinov2Model", "Dinov2WithRegistersModel", "DINOv3ViTModel")


class HuggingFaceAdapter(Adapter):
    """Adapter for the models of Hugging Face's transformers that share ViT's names of parts (from version 5)."""

    channels_first = True  # the patch embedding of DINOv3 is a convolution

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Returns whether a module is one of the supported models, without its classification head."""
        names = {cls.__name__ for cls in type(module).__mro__ if cls.__module__.startswith("transformers.")}
        return not names.isdisjoint(MODELS)

    def geometry(self, model: Any) -> Geometry:
        """Returns width, heads, depth, grid and number of prefix tokens of the model."""
        config = model.config
        grid = patch_grid(to_2tuple(config.image_size), self.patch_size(model))
        tokens = ("cls_token", "distillation_token", "register_tokens")
        prefix = sum(getattr(model.embeddings, name).shape[1] for name in tokens if hasattr(model.embeddings, name))
        return Geometry(config.hidden_size, config.num_attention_heads, len(self.blocks(model)), grid, prefix)

    def patch_embed(self, model: Any) -> nn.Module:
        """Returns the patch embedding."""
        return model.embeddings.patch_embeddings

    def grid(self, model: Any, images: Tensor) -> tuple[int, int]:
        """Returns rows and columns of patches of images (B, C, height, width)."""
        patch = self.patch_size(model)
        return images.shape[-2] // patch[0], images.shape[-1] // patch[1]

    def patch_size(self, model: Any) -> tuple[int, int]:
        """Returns height and width of a patch in pixels."""
        return to_2tuple(model.config.patch_size)

    def blocks(self, model: Any) -> Sequence[nn.Module]:
        """Returns the layers of the encoder."""
        for path in ("encoder.layer", "model.layer", "layer", "encoder.layers", "layers"):
            found = model
            for name in path.split("."):
                found = getattr(found, name, None)
            if isinstance(found, nn.ModuleList):
                return list(found)
        raise InputError(f"the layers of this {type(model).__name__} were not found; install transformers 5")

    def attention_of(self, block: Any) -> Any:
        """Returns the attention of a layer; raises an InputError if it has other parts than expected."""
        attention = getattr(block, "attention", None)
        if not all(hasattr(attention, name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")):
            raise InputError(
                f"the attention of Hugging Face's {type(block).__name__} has other parts than in transformers 5; "
                "install transformers 5, or pass adapter=, see vitpos.Adapter"
            )
        return attention

    def attention(
        self,
        module: Any,
        attend: Attend,
        x: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output (B, T, D) and the weights (B, H, T, T), or None, of an attention for tokens x (B, T, D)."""
        q, k, v = (
            project(x).unflatten(2, (-1, module.head_dim)).transpose(1, 2)
            for project in (module.q_proj, module.k_proj, module.v_proj)
        )
        rate = getattr(module, "attention_dropout", getattr(module, "dropout", 0.0))
        dropout = nn.Dropout(rate).train(module.training) if rate else None
        y, weights = attend(
            q, k, v, x,
            mask=attention_mask, dropout=dropout, rotary=position_embeddings,
            need_weights=module.config._attn_implementation == "eager",
        )  # fmt: skip
        return module.o_proj(y.transpose(1, 2).flatten(2)), weights

    def table(self, model: Any) -> tuple[nn.Module, str] | None:
        """Returns the embeddings and the name of their table, if the model has one."""
        return (model.embeddings, "position_embeddings") if hasattr(model.embeddings, "position_embeddings") else None

    def table_vectors(self, model: Any, grid: tuple[int, int]) -> Tensor:
        """Returns the rows (N, D) of the table for a grid, resampled by the model's own method if it is another."""
        embeddings, train_grid = model.embeddings, self.geometry(model).grid
        table = embeddings.position_embeddings
        first = table.shape[1] - train_grid[0] * train_grid[1]  # rows of prefix tokens
        if grid != train_grid:
            patch = self.patch_size(model)
            tokens = table.new_empty(1, first + grid[0] * grid[1], table.shape[2])
            table = embeddings.interpolate_pos_encoding(tokens, grid[0] * patch[0], grid[1] * patch[1])
        return table[0, first:]

    def rotary(self, model: Any) -> nn.Module | None:
        """Returns the module that computes the rotary embedding, if the model has one (DINOv3)."""
        return getattr(model, "rope_embeddings", None)

    def rotary_tables(self, model: Any, grid: tuple[int, int], layer: int) -> tuple[Tensor, Tensor]:
        """Returns cosines and sines (N, d) of the patches of a grid."""
        patch = self.patch_size(model)
        pixel = next(model.parameters()).new_empty(1, 1, 1, 1)
        return model.rope_embeddings(pixel.expand(1, 1, grid[0] * patch[0], grid[1] * patch[1]))

    def select_rotary(self, passed: tuple[Tensor, Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
        """Returns cosines and sines (B|1, 1, N, d) of the patches ``index`` (B|1, N)."""
        return passed[0][index][:, None], passed[1][index][:, None]

    def rotate(self, model: Any, q: Tensor, k: Tensor, passed: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns q and k of the patch tokens (B, H, N, d), rotated by Hugging Face's own function."""
        return sys.modules[type(model.rope_embeddings).__module__].apply_rotary_pos_emb(q, k, *passed)
