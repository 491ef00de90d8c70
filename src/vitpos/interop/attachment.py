"""`Attachment`: what connects a model of another library with the position encoding that `vitpos.attach` gave to it."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, SumEncoding
from vitpos.errors import InputError
from vitpos.interop.adapters import Adapter
from vitpos.interop.own_positions import OwnRotary, OwnTable
from vitpos.models import hooks
from vitpos.models.activations import AttentionCall, OnAttention
from vitpos.models.attention import attend
from vitpos.models.token_embedding import check_positions, embed, embed_tokens
from vitpos.positions import Positions

OwnPositions = Literal["keep", "freeze", "remove"]


class Attachment:
    """Connects a model with its attached encoding; one per model.

    It is no module, so that the model's parameters have one name each. The model's patch embedding, blocks and attention
    become instances of subclasses of their classes (as in `torch.nn.utils.parametrize`), whose ``forward`` calls it.

    Args:
        model: The module to which the encoding is attached.
        adapter: Finds the parts of the model.
        geometry: Width, heads, depth, grid and prefix tokens of the model.
        encoding: The attached encoding.
        spec: Its spec; None if it was given as an object without one.
    """

    def __init__(
        self, model: nn.Module, adapter: Adapter, geometry: Geometry, encoding: PositionEncoding, spec: str | None
    ):
        self.model, self.adapter, self.geometry, self.encoding, self.spec = model, adapter, geometry, encoding, spec
        self.combined_encoding = encoding  # the attached encoding, and the positions that the model has of its own
        self.has_table = False  # whether the model adds a learned table itself
        self.starts_at_block = True  # whether the first block is the first module that gets all tokens
        self.requested_pos: Positions | None = None  # given by the context manager `at_positions`
        self.grid_pos: Positions | None = None  # of the current images, in row-major order; None if unknown
        self.pos: Positions | None = None  # of the current forward pass
        self.on_attention: OnAttention | None = None  # called before every attention, to capture its inputs
        self.rotary_args: Any = None  # what the model passes to its attention to rotate q and k
        self._connected: list[tuple[nn.Module, type[nn.Module]]] = []  # module, class before
        self._settings: list[tuple[nn.Module, str, Any]] = []  # module, attribute, value before
        self._frozen: list[tuple[nn.Parameter, bool]] = []  # parameter, requires_grad before
        self._removed: tuple[nn.Module, str, dict[str, nn.Parameter | None]] | None = None  # owner, name, before

    def install(self, own_positions: OwnPositions) -> None:
        """Connects the parts of the model; if that fails, the model is left as it was."""
        try:
            self._install(own_positions)
        except BaseException:
            self.uninstall()
            raise

    def uninstall(self) -> None:
        """Gives the model back its classes, table and ``requires_grad``, and removes the encoding."""
        for module, before in reversed(self._connected):
            module.__class__ = before
            for name in ("_attachment", "_layer"):
                vars(module).pop(name, None)
        for module, name, value in self._settings:
            setattr(module, name, value)
        for parameter, requires_grad in self._frozen:
            parameter.requires_grad_(requires_grad)
        if self._removed is not None:
            owner, name, parameters = self._removed
            zeros = owner._buffers.pop(name)
            owner._non_persistent_buffers_set.discard(name)
            table = parameters[name]
            if table is not None and zeros is not None:
                table.data = table.data.to(zeros)  # the model may have been moved since
            now = {**owner._parameters, name: table}  # parameters may have been added or removed since
            order = [key for key in parameters if key in now]
            owner._parameters = {key: now[key] for key in dict.fromkeys([*order, *now])}
        self._connected, self._settings, self._frozen, self._removed = [], [], [], None
        self.model._modules.pop("position_encoding", None)
        vars(self.model).pop("_attachment", None)

    def embed_patches(self, tokens: Tensor, images: Tensor) -> Tensor:
        """Returns the output of the patch embedding with the encoding applied, in the same shape.

        Args:
            tokens: (B, N, D), (B, rows, columns, D) or (B, D, rows, columns).
            images: (B, C, height, width), the input of the patch embedding.
        """
        if tokens.ndim == 3:
            return self._embed(tokens, self.adapter.grid(self.model, images))
        by_channel = self.adapter.channels_first
        x = tokens.movedim(1, -1) if by_channel else tokens  # (B, rows, columns, D)
        x = self._embed(x.flatten(1, 2), (x.shape[1], x.shape[2])).view(x.shape)
        return x.movedim(-1, 1) if by_channel else x

    def start(self, x: Tensor) -> Tensor:
        """Returns all tokens (B, T, D) before the first block, with the encoding's vectors for prefix tokens added.

        In a model without patch embedding, the encoding also acts on the patch tokens.
        """
        count = self.geometry.num_prefix
        prefix, patches = x[:, :count], x[:, count:]
        embeds = self.adapter.patch_embed(self.model) is None
        if embeds:
            patches = self._embed(patches, self.geometry.grid)
        added = hooks.prefix_vectors(self.encoding, prefix[0]) if count else None
        if added is None and not embeds:
            return x
        return torch.cat([prefix if added is None else prefix + added, patches], 1)

    def before_block(self, x: Tensor, layer: int) -> Tensor:
        """Returns the tokens (B, T, D) that enter block ``layer``, counted from 0."""
        if layer:
            return embed_tokens(self.encoding, x, self._positions(), layer, self.geometry.num_prefix)
        return self.start(x) if self.starts_at_block else x

    def attend(
        self,
        layer: int,
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
        """Returns the output and the weights of attention in block ``layer``; see `Attend` for the other arguments."""
        self.rotary_args = rotary
        if self.on_attention is not None:
            self.on_attention(AttentionCall(layer, x, self.combined_encoding, self._positions(), lambda: (q, k)))
        drops = dropout is not None and (need_weights or (dropout.training and bool(getattr(dropout, "p", 1))))
        return attend(
            q, k, v, self.combined_encoding, self._positions(), layer, x, mask,
            dropout=dropout if drops else None, need_weights=need_weights,
        )  # fmt: skip

    def keep_patches(self, index: Tensor | None) -> None:
        """Selects the positions of patches ``index`` (B, K), after the model dropped the others; None for all."""
        if index is not None:
            pos = self._positions()
            self.pos = pos.select(index)
            self.grid_pos = self.pos if pos is self.grid_pos else None

    def _embed(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Applies the encoding to patch tokens x (B, N, D) of a grid, and sets the positions of this forward pass."""
        self.grid_pos = Positions.from_grid(grid, train_grid=self.geometry.grid, device=x.device)
        pos = self.grid_pos if self.requested_pos is None else self.requested_pos.to(x.device)
        check_positions(pos, x)
        x, self.pos = hooks.augment(self.encoding, x, pos)
        if not self.has_table or (self.pos is self.grid_pos and "update" not in self.encoding.hooks):
            return embed(self.encoding, x, self.pos, 0)
        # The model adds its table afterwards, in the order of the grid. What it adds is subtracted here, so that the
        # sum has the row of each patch's position, and none where the position is hidden.
        table = self.adapter.table_vectors(self.model, grid)
        return embed(self.combined_encoding, x, self.pos, 0) - table

    def _positions(self) -> Positions:
        if self.pos is None:
            raise InputError("the attached encoding has no positions yet; call the whole model, not one of its blocks")
        return self.pos

    def _install(self, own_positions: OwnPositions) -> None:
        model, adapter = self.model, self.adapter
        self._take_own_positions(own_positions)
        vars(model)["_attachment"] = self
        like = next((one for one in model.parameters() if one.is_floating_point()), None)
        model.position_encoding = self.encoding.train(model.training)
        if like is not None:
            self.encoding.to(device=like.device, dtype=like.dtype)
        blocks, first = list(adapter.blocks(model)), adapter.before_blocks(model)
        self.starts_at_block = first is blocks[0]
        for part, role in (
            (adapter.patch_embed(model), _PatchEmbed),
            (adapter.patch_dropout(model), _DropPatches),
            (None if self.starts_at_block else first, _BeforeBlocks),
        ):
            if part is not None:
                self._connect(part, role)
        for layer, block in enumerate(blocks):
            self._connect(adapter.attention_of(block), _Attention, layer)  # first, since a block may be its attention
            self._connect(block, _Block, layer)
        for module, name, value in adapter.settings(model):
            self._settings.append((module, name, getattr(module, name)))
            setattr(module, name, value)

    def _take_own_positions(self, own_positions: OwnPositions) -> None:
        """Keeps, freezes or removes the learned table and the rotary positions of the model."""
        table, rotary = self.adapter.table(self.model), self.adapter.rotary(self.model)
        if own_positions == "remove" and table is None and rotary is None:
            raise InputError(
                f"own_positions='remove': {type(self.adapter).__name__}.table and .rotary return None; leave it out if "
                "the model has no positions of its own, otherwise override these methods"
            )
        parameters = list(rotary.parameters()) if rotary is not None else []
        if table is not None:
            owner, name = table
            parameters.append(owner.get_parameter(name))
        if own_positions != "keep":
            self._frozen = [(one, one.requires_grad) for one in parameters]
            for parameter in parameters:
                parameter.requires_grad_(False)
        if own_positions != "remove":
            own: list[PositionEncoding] = [OwnTable(self)] if table is not None else []
            own += [OwnRotary(self)] if rotary is not None else []
            self.combined_encoding = SumEncoding([*own, self.encoding]) if own else self.encoding
            self.has_table = table is not None
        elif table is not None:
            self._removed = owner, name, dict(owner._parameters)
            zeros = torch.zeros_like(owner.get_parameter(name), requires_grad=False)
            del owner._parameters[name]
            owner.register_buffer(name, zeros, persistent=False)  # the model adds it; zeros change nothing

    def _connect(self, module: nn.Module, role: type[nn.Module], layer: int = 0) -> None:
        self._connected.append((module, type(module)))
        module.__class__ = _subclass(role, type(module))
        vars(module)["_attachment"], vars(module)["_layer"] = self, layer


_SUBCLASSES: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}


def _subclass(role: type[nn.Module], base: type[nn.Module]) -> type[nn.Module]:
    """Returns a subclass of both classes, in which the ``forward`` of ``role`` can call that of ``base``."""
    if (role, base) not in _SUBCLASSES:
        _SUBCLASSES[role, base] = type(f"Attached{base.__name__}", (role, base), {})
    return _SUBCLASSES[role, base]


class _Connected(nn.Module):
    """Base class of the classes that `Attachment` gives to parts of a model."""

    _attachment: Attachment
    _layer: int

    def __reduce_ex__(self, protocol: Any) -> Any:  # so that a model can be pickled and copied
        return _restore, (type(self).__bases__,), vars(self)


def _restore(bases: tuple[type[nn.Module], type[nn.Module]]) -> nn.Module:
    cls = _subclass(*bases)
    return cls.__new__(cls)


class _PatchEmbed(_Connected):
    """A patch embedding whose output has the encoding applied."""

    def forward(self, images: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self._attachment.embed_patches(super().forward(images, *args, **kwargs), images)


class _BeforeBlocks(_Connected):
    """A module before the first block that gets all tokens, such as a norm."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(self._attachment.start(x), *args, **kwargs)


class _Block(_Connected):
    """A block of which the encoding changes the input."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(self._attachment.before_block(x, self._layer), *args, **kwargs)


class _Attention(_Connected):
    """A self-attention that uses the encoding."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        attachment = self._attachment
        return attachment.adapter.attention(self, partial(attachment.attend, self._layer), x, *args, **kwargs)


class _DropPatches(_Connected):
    """Mixed into the model's patch dropout; also drops the positions of the dropped tokens."""

    def forward(self, x: Tensor) -> Any:
        kept, index = self._attachment.adapter.apply_patch_dropout(self, x)
        self._attachment.keep_patches(index)
        return kept
