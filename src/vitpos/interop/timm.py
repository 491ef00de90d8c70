"""Loads timm's weights into our models: ``load_timm(model, timm.create_model(…).state_dict())``.

Each family is a table from our names to timm's. Shapes differ in patch projections, which are convolutions in timm, and
in position tables, which are flat in timm.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vitpos.encodings.learned import Learned
from vitpos.encodings.relative import RelativeBias
from vitpos.errors import InputError
from vitpos.models.base import PatchClassifier
from vitpos.models.resnet import ResNet
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT

Parts = tuple[Tensor, ...]  # our tensors that timm stores concatenated along axis 1

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
    "norm": "bn",  # the stem's norm and convolution are numbered in timm only
    "bn.": "bn1.",
    "conv.": "conv1.",
    "shortcut.": "downsample.",
    "head.": "fc.",
}


def load_timm(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Loads the state dict of a timm Swin, ResNet or ViT into our model of the same shape, in place.

    Raises, and loads nothing, if a tensor is missing, unexpected or of another shape.

    Args:
        model: a ``swin`` or ``resnet`` without encoding, or a ``vit`` with ``learned(prefix_embed=True)``, whose table has
            a row for CLS as in timm.
        state: timm's ``state_dict()``.
    """
    ours = timm_names(model)
    for name in [*ours, *state]:
        if name not in state:
            raise InputError(
                f"timm's weights have no {name!r}, which the model needs; "
                "build it with the same family and size, and without an encoding"
            )
        if name not in ours:
            raise InputError(f"timm's weights have {name!r}, which the model does not have; build one that does")
    for name, parts in ours.items():
        shape = _shape(parts)
        if state[name].shape != shape:
            raise InputError(
                f"timm's {name!r} is {tuple(state[name].shape)} and the model's {tuple(shape)}; "
                "build both with the same sizes"
            )
    with torch.no_grad():
        for name, parts in ours.items():
            tensors = state[name].split([p.shape[1] for p in parts], 1) if len(parts) > 1 else (state[name],)
            for part, tensor in zip(parts, tensors, strict=True):
                part.copy_(tensor)


def timm_names(model: nn.Module) -> dict[str, Parts]:
    """Returns timm's name → our tensors, as views in timm's shapes: writing to them changes our model.

    A name has several tensors where timm stores them as one, concatenated along axis 1 (rows for CLS and patches).
    """
    # The class of the encoding decides here, as that of the model does: timm has counterparts of the tables of these two
    # classes only, and their names and shapes belong to timm's format, not to a protocol of encodings.
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
            if model.prefix_tokens is not None:
                names["cls_token"] = (names.pop("prefix_tokens")[0][None],)  # (1, 1, D)
            if isinstance(model.encoding, Learned):
                rows, table = names.pop("encoding.prefix_table", ()), names.pop("encoding.table")[0]
                names["pos_embed"] = (*(part[None] for part in rows), table.flatten(1, 2))  # (1, 1 + N, D)
            return names
        case ResNet():
            stages = {f"stages.{index}.": f"layer{index + 1}." for index in range(len(model.stages))}
            return _renamed(model, stages | RESNET)
    raise InputError(f"timm has no counterpart of our {type(model).__name__}; use a swin, resnet or vit")


def _renamed(model: nn.Module, names: Mapping[str, str]) -> dict[str, Parts]:
    """Returns timm's name → our tensor, as a tuple of one.

    Names are converted by string replacements, ``names`` (part of our name → part of timm's), in order.
    """
    renamed: dict[str, Parts] = {}
    for name, tensor in model.state_dict().items():
        if isinstance(model, PatchClassifier) and name == "project.weight":
            tensor = tensor.unflatten(1, (model.channels, *model.patch))  # (D, channels, p, q), as of a convolution
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        renamed[name] = (tensor,)
    return renamed


def _shape(parts: Parts) -> torch.Size:
    """Returns the shape of the tensors ``parts`` concatenated along axis 1; that of the tensor if there is only one."""
    return torch.cat(parts, 1).shape if len(parts) > 1 else parts[0].shape
