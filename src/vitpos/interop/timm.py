"""timm's weights in our models: ``load_timm(model, timm.create_model(…).state_dict())``.

A family is a table of names: what ours are called in timm. Shapes differ only in patch projections, which are convolutions
there, and in position tables, which are flat there.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vitpos.encodings.learned import Learned
from vitpos.encodings.relative import RelativeBias
from vitpos.errors import UserError
from vitpos.models.base import PatchClassifier
from vitpos.models.resnet import ResNet
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT

Pieces = tuple[Tensor, ...]  # tensors of ours that follow each other along axis 1 of one of timm's

TRANSFORMER = {
    "project.": "patch_embed.proj.",
    ".attention.": ".attn.",
    ".mlp.0.": ".mlp.fc1.",
    ".mlp.2.": ".mlp.fc2.",
}
SWIN = TRANSFORMER | {
    "patch_norm.": "patch_embed.norm.",
    "stages.": "layers.",
    ".merge.": ".downsample.",
    "head.": "head.fc.",
}
RESNET = {
    "norm": "bn",  # before the first block they have no number in ours and a 1 in timm's
    "bn.": "bn1.",
    "conv.": "conv1.",
    "shortcut.": "downsample.",
    "head.": "fc.",
}


def load_timm(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Puts the state of a timm Swin, ResNet or ViT into our model of the same shape.

    Ours is a ``swin`` or a ``resnet`` without encoding, or a ``vit`` with ``learned(prefix_embed=True)``, whose table has
    timm's row for CLS. A tensor that is missing, superfluous or of another shape is refused, and nothing is loaded then.
    """
    ours = timm_names(model)
    for name in [*ours, *state]:
        if name not in state:
            raise UserError(
                f"timm's weights have no {name!r}, which the model needs; "
                "is it of another family or size, or built with an encoding?"
            )
        if name not in ours:
            raise UserError(f"timm's weights have {name!r}, for which the model has no place; build a model that has")
    for name, pieces in ours.items():
        shape = _shape(pieces)
        if state[name].shape != shape:
            raise UserError(
                f"timm's {name!r} is {tuple(state[name].shape)} and the model's {tuple(shape)}; build both alike"
            )
    with torch.no_grad():
        for name, pieces in ours.items():
            tensors = state[name].split([p.shape[1] for p in pieces], 1) if len(pieces) > 1 else (state[name],)
            for piece, tensor in zip(pieces, tensors, strict=True):
                piece.copy_(tensor)


def timm_names(model: nn.Module) -> dict[str, Pieces]:
    """The tensors of our model by their names and in their shapes in timm: views, so that writing to them reaches ours."""
    match model:
        case Swin():
            names = _renamed(model, SWIN)
            for index, stage in enumerate(model.stages):
                if isinstance(stage.encoding, RelativeBias):
                    del names[f"layers.{index}.encoding.table"]
                    for layer, table in enumerate(stage.encoding.table.detach()):  # (2R−1, 2C−1, H)
                        name = f"layers.{index}.blocks.{layer}.attn.relative_position_bias_table"
                        names[name] = (table.flatten(0, 1),)
            return names
        case ViT():
            names = _renamed(model, TRANSFORMER)
            if model.prefix is not None:
                names["cls_token"] = (names.pop("prefix")[0][None],)  # (1, 1, D)
            if isinstance(model.encoding, Learned):
                rows, table = names.pop("encoding.rows", ()), names.pop("encoding.table")[0]
                names["pos_embed"] = (*(piece[None] for piece in rows), table.flatten(1, 2))  # (1, 1 + N, D)
            return names
        case ResNet():
            stages = {f"stages.{index}.": f"layer{index + 1}." for index in range(len(model.stages))}
            return _renamed(model, stages | RESNET)
    raise UserError(f"timm has no counterpart of our {type(model).__name__}; take a swin, a resnet or a vit")


def _renamed(model: nn.Module, names: Mapping[str, str]) -> dict[str, Pieces]:
    """The model's tensors under other names, replaced piece by piece in the order of the table."""
    renamed: dict[str, Pieces] = {}
    for name, tensor in model.state_dict().items():
        if isinstance(model, PatchClassifier) and name == "project.weight":
            tensor = tensor.unflatten(1, (model.channels, *model.patch))  # (D, channels, p, q), as of a convolution
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        renamed[name] = (tensor,)
    return renamed


def _shape(pieces: Pieces) -> torch.Size:
    """The shape of several tensors that follow each other along axis 1."""
    return torch.cat(pieces, 1).shape if len(pieces) > 1 else pieces[0].shape
