"""`Adapter`, what `vitpos.attach` must know about a family of models; subclass it for a Vision Transformer of your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from vitpos.encodings.base import Geometry
from vitpos.errors import InputError


class Attend(Protocol):
    """Attention with the attached encoding; `attach` passes such a function to `Adapter.attention`."""

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        dropout: nn.Module | None = None,
        need_weights: bool = False,
        rotary: Any = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the attention output (B, H, T, d), and the attention weights (B, H, T, T), or None if not computed.

        Args:
            q, k, v: (B, H, T, d), queries, keys and values of all tokens, prefix tokens (CLS and registers) first.
            x: (B, T, D), the tokens that enter attention.
            mask: (B|1, H|1, T, T), added to the logits.
            dropout: Applied to the attention weights in training.
            need_weights: Computes the attention weights even where a fused kernel could be used.
            rotary: What the model itself passes to its attention to rotate q and k; None if it has no rotary positions.
        """
        ...


class Adapter:
    """Tells `vitpos.attach` where a model keeps its patch embedding, blocks and attention. Base class.

    For a model of your own, subclass it and pass an instance: ``vitpos.attach(model, "rope", adapter=MyAdapter())``.
    Required are ``geometry``, ``blocks``, ``attention_of`` and ``attention``; ``patch_embed`` if the model splits images
    itself. Override ``table`` and ``table_vectors`` if the model adds a learned position table; ``rotary``,
    ``rotary_tables``, ``select_rotary`` and ``rotate`` if it rotates q and k; ``patch_dropout`` and
    ``apply_patch_dropout`` if it drops patch tokens in training.
    """

    def geometry(self, model: nn.Module) -> Geometry:
        """Returns width, heads, depth, training grid (rows, columns) and number of prefix tokens of the model."""
        raise NotImplementedError

    def patch_embed(self, model: nn.Module) -> nn.Module | None:
        """Returns the submodule that maps images to patch tokens, to which encodings add their vectors.

        Its output is (B, N, D) in row-major order, or has the grid as two axes, see ``channels_first``. None (default)
        if the model gets tokens instead of images: then the input of the first block is (B, T, D), prefix tokens first.
        """
        return None

    channels_first: bool = False
    """Whether an output of ``patch_embed`` with four axes is (B, D, rows, columns), and not (B, rows, columns, D)."""

    def grid(self, model: nn.Module, images: Tensor) -> tuple[int, int]:
        """Returns rows and columns of patches of images (B, C, height, width); by default the training grid.

        It is used where the output of ``patch_embed`` is (B, N, D).
        """
        return self.geometry(model).grid

    def patch_size(self, model: nn.Module) -> tuple[int, int]:
        """Returns height and width of a patch in pixels; without it, the model is evaluated as one without patches."""
        raise InputError(
            f"{type(self).__name__} has no patch_size, so that images cannot be cut into patches; return (height, width)"
        )

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Returns the blocks in order; each is called with the tokens (B, T, D) as its first argument."""
        raise NotImplementedError

    def before_blocks(self, model: nn.Module) -> nn.Module:
        """Returns the first submodule that is called with all tokens (B, T, D): by default the first block."""
        return self.blocks(model)[0]

    def attention_of(self, block: nn.Module) -> nn.Module:
        """Returns the self-attention of a block, a submodule that is called with the tokens (B, T, D)."""
        raise NotImplementedError

    def attention(self, module: Any, attend: Attend, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Returns what the self-attention ``module`` returns for tokens x (B, T, D), computed by ``attend``.

        An implementation repeats the module's own ``forward``: it projects x to q, k and v (B, H, T, d), calls
        ``attend(q, k, v, x)`` in place of the scaled dot-product attention, and projects the result. ``args`` and
        ``kwargs`` are the other arguments of the module's ``forward``.
        """
        raise NotImplementedError

    def settings(self, model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
        """Returns submodules, attributes and the values that these get while an encoding is attached; none by default.

        For example, a setting that turns off a fused kernel, which would bypass the attached encoding.
        """
        return []

    # Positions that the model has already

    def table(self, model: nn.Module) -> tuple[nn.Module, str] | None:
        """Returns the submodule with the learned position table and the name of the parameter; None if there is none."""
        return None

    def table_vectors(self, model: nn.Module, grid: tuple[int, int]) -> Tensor:
        """Returns the vectors (rows · columns, D) that the model adds to the patches of a grid, in row-major order."""
        raise NotImplementedError

    def rotary(self, model: nn.Module) -> nn.Module | None:
        """Returns the submodule that computes rotary positions; None if the model has none."""
        return None

    def rotary_tables(self, model: nn.Module, grid: tuple[int, int], layer: int) -> Any:
        """Returns what the model would pass to the attention of block ``layer`` for the patches of a grid."""
        raise NotImplementedError

    def select_rotary(self, passed: Any, index: Tensor) -> Any:
        """Returns ``passed``, tables for the patches of a grid in row-major order, for the patches ``index`` (B|1, N)."""
        raise NotImplementedError

    def rotate(self, model: nn.Module, q: Tensor, k: Tensor, passed: Any) -> tuple[Tensor, Tensor]:
        """Returns q and k of the patch tokens (B, H, N, d), rotated as the model does with what it passes to attention."""
        raise NotImplementedError

    def patch_dropout(self, model: nn.Module) -> nn.Module | None:
        """Returns the submodule that drops patch tokens at random in training; None if the model has none."""
        return None

    def apply_patch_dropout(self, module: Any, x: Tensor) -> tuple[Any, Tensor | None]:
        """Returns what that submodule returns for all tokens x (B, T, D), and the indices (B, K) of the patches it keeps.

        The indices are None if all patches are kept.
        """
        raise NotImplementedError
