"""What the shapes in a checkpoint say of its transformer: patches, width, depth, heads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitpos.errors import UserError
from vitpos.interop.continuous import networks
from vitpos.interop.naming import Trunk
from vitpos.interop.sanitize import shown

ATTENTION = re.compile(r"(.*\.\d+)\.(self_attn|attns?|attention|self_attention|MultiHeadDotProductAttention)[._\d]")
STAGE = re.compile(r"(stages|layers)\.\d+\.blocks\.")


def projection(trunk: Trunk, path: str) -> tuple[tuple[int, int] | None, int | None, int | None]:
    """Patch (rows, columns), channels and width that the patch projection tells; a linear one tells the width alone."""
    if trunk.projection is None:
        return None, None, None
    weight = trunk.tensors[trunk.projection]
    if weight.ndim == 1:  # the norm in front of vit-pytorch's projection
        weight = next((w for w in trunk.ending(r"to_patch_embedding\.\d+\.weight").values() if w.ndim == 2), weight)
    if weight.ndim not in (2, 4) or not weight.numel():
        what, shape = f"{path}: {shown(trunk.projection)}", shown(tuple(weight.shape))
        raise UserError(f"{what} is {shape}, no projection of patches of a picture; is it a ViT?")
    if trunk.projection.endswith("kernel"):  # rows, columns, channels, width
        weight = weight.permute(3, 2, 0, 1) if weight.ndim == 4 else weight.mT
    dim = weight.shape[0]
    if weight.ndim == 2 or any(name.startswith("patch_embed.backbone.") for name in trunk.tensors):
        return None, None, dim  # of flat patches, or of the features of a convolutional network
    return (weight.shape[2], weight.shape[3]), weight.shape[1], dim


def depth(trunk: Trunk) -> int | None:
    """How many blocks have an attention."""
    for weight in trunk.ending(r"encoderblock\.\w+\.query\.kernel").values():
        return weight.shape[0]  # all layers of big_vision in one tensor
    found = {match[1] for name in trunk.tensors if "decoder" not in name and (match := ATTENTION.match(name))}
    return len(found) or None


def heads(
    trunk: Trunk,
    about: Mapping[str, Any],
    dim: int | None,
    *,
    relative: Mapping[str, Tensor],
    widths: set[int],
    frequencies: Tensor | None,
) -> int | None:
    """The heads of every layer, where a configuration or a shape tells them; ``widths`` are widths of one head."""
    nested = about.get("vision_config")
    for level in (about, nested if isinstance(nested, Mapping) else {}):
        for name in ("num_attention_heads", "num_heads"):
            if type(level.get(name)) is int:
                return int(level[name])
    told = {weight.shape[-2] for weight in trunk.ending(r"query\.kernel").values() if weight.ndim in (3, 4)}
    told |= {table.shape[-1] for table in relative.values()}
    told |= {weight.shape[0] for weight in networks(trunk).values()}
    told |= {frequencies.shape[1]} if frequencies is not None and frequencies.shape[1] > 1 else set()
    if dim is not None and not any(STAGE.search(name) for name in trunk.tensors):  # where all layers are as wide
        told |= {dim // width for width in widths if width and dim % width == 0}
    return told.pop() if len(told) == 1 else None
