"""`attach`: gives a Vision Transformer of timm, Hugging Face, torch or your own any position encoding, in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.interop.adapters import Adapter
from vitpos.interop.attachment import Attachment, OwnPositions
from vitpos.interop.find_adapter import find_model
from vitpos.models.base import EncodingLike, build_encoding, spec_of
from vitpos.positions import Positions


def attach(
    model: nn.Module,
    encoding: EncodingLike,
    *,
    own_positions: OwnPositions = "keep",
    adapter: Adapter | None = None,
    grid: tuple[int, int] | None = None,
    num_prefix: int = 0,
) -> nn.Module:
    """Adds a position encoding to a Vision Transformer, in place; returns the same model.

    Positions that the model has already stay in use, unless ``own_positions`` is ``remove``: the model's table is then not
    in ``state_dict()``, so that original weights are loaded before `attach`, or with ``strict=False``. The encoding becomes
    the submodule ``position_encoding``, so that optimizers, ``state_dict()``, ``to(device)`` and ``deepcopy`` include it;
    all other names stay as they are. `detach` removes the encoding. In training, add ``vitpos.penalty(model)`` to the loss
    if the encoding defines an extra loss, as `mjp` does.

    Args:
        model: A ``VisionTransformer`` or ``Eva`` of timm; a ViT, DeiT, DINOv2 or DINOv3 of Hugging Face; a
            ``torch.nn.TransformerEncoder``; a module that contains one of them; or any model with an ``adapter``.
        encoding: A spec such as ``"rope"`` or ``"learned + mjp"``, an encoding class, or an instance.
        own_positions: What becomes of the learned table and the rotary positions that the model has: ``keep`` uses them
            beside the encoding, ``freeze`` does not train them, ``remove`` leaves them out; an InputError if the model
            has none that the adapter knows.
        adapter: How to find patches and attention in a model of another kind, see `Adapter`.
        grid: Rows and columns of the patch tokens; only for a ``TransformerEncoder``, which gets tokens and no images.
        num_prefix: Number of tokens in front of the patches (CLS and registers); only for a ``TransformerEncoder``.
    """
    if own_positions not in ("keep", "freeze", "remove"):
        raise InputError(f"own_positions={own_positions!r} is unknown; choose keep, freeze or remove")
    trunk, adapter = find_model(model, adapter, grid, num_prefix)
    if "_attachment" in vars(trunk):
        raise InputError(f"the {type(trunk).__name__} has an attached encoding; call vitpos.detach(model) first")
    geometry = adapter.geometry(trunk)
    attachment = Attachment(trunk, adapter, geometry, build_encoding(encoding, geometry), spec_of(encoding))
    attachment.install(own_positions)
    return model


def detach(model: nn.Module) -> nn.Module:
    """Removes the encoding that `attach` gave to a model, in place; the model is again what it was before.

    Its own weights keep what training has changed. Returns the same model.
    """
    find_attachment(model).uninstall()
    return model


@contextmanager
def at_positions(model: nn.Module, pos: Positions) -> Iterator[None]:
    """A context in which a model with an attached encoding uses other positions of the patches.

    For example, ``with vitpos.at_positions(model, Positions.from_grid((7, 7)).permute(order)): model(images)``. Positions
    may be permuted, hidden, shifted, or on another grid; they also act on the model's own table and rotary positions. On
    another grid than in training, ``Positions.from_grid((14, 14), train_grid=(7, 7))`` gives those of a call without this
    context; without ``train_grid``, coordinates extend beyond the training grid.
    """
    attachment = find_attachment(model)
    before, attachment.requested_pos = attachment.requested_pos, pos
    try:
        yield
    finally:
        attachment.requested_pos = before


def penalty(model: nn.Module) -> Tensor | float:
    """Returns the extra loss of the attached encoding for the last batch, such as that of `mjp`; 0 for most encodings."""
    attachment = find_attachment(model)
    return 0.0 if attachment.pos is None else attachment.combined_encoding.penalty(attachment.pos)


def is_attached(model: nn.Module) -> bool:
    """Returns whether a model or one of its submodules has an attached encoding."""
    return any("_attachment" in vars(module) for module in model.modules())


def find_attachment(model: nn.Module) -> Attachment:
    """Returns the attachment of a model or of its first submodule that has one; raises an InputError if none has."""
    for module in model.modules():
        if "_attachment" in vars(module):
            return vars(module)["_attachment"]
    raise InputError(f"the {type(model).__name__} has no attached encoding; call vitpos.attach(model, encoding) first")
