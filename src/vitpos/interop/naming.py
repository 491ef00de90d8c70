"""Whose names the tensors of a checkpoint have, and where in the file the vision transformer is.

The trunk is where the patch projection is: everything before its name is a wrapper (``model.``, ``module.``,
``teacher.backbone.`` …), whatever it is called, and every other name is read from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitpos.interop.sanitize import shown

PROJECTIONS = {  # the end of the patch projection's name, and whose naming that is
    r"patch_embed\.(proj|conv)\.weight": "timm",
    r"patch_embeds\.0\.proj\.weight": "timm",
    r"embeds\.proj\.weight": "timm",
    r"embeddings\.patch_embeddings\.projection\.weight": "Hugging Face",
    r"embeddings\.patch_embeddings\.weight": "Hugging Face",
    r"embeddings\.patch_embedding\.weight": "Hugging Face",
    r"patch_embed\.projection\.weight": "OpenMMLab",
    r"conv_proj\.weight": "torchvision",
    r"to_patch_embedding\.\d+\.weight": "vit-pytorch",
    r"embedding\.kernel": "JAX",
}
CLIP = r"conv1\.weight"  # a trunk only beside a positional_embedding: a ResNet has the name too

TABLES = (  # an absolute table, from the trunk
    "pos_embed",
    "embeds.pos_embed",
    "embeddings.position_embeddings",
    "embeddings.position_embedding.weight",
    "Transformer.posembed_input.pos_embedding",
    "pos_embedding",
    "encoder.pos_embedding",
    "positional_embedding",
    "absolute_pos_embed",
)
TOKENS = {  # tokens in front of the patches, in their order
    "CLS": ("cls_token", "class_token", "cls", "class_embedding"),
    "distillation": ("dist_token", "distillation_token"),
    "register": ("reg_token", "register_tokens", "storage_tokens"),
}
SEATED = r"(?i)clip"  # namings whose tables have a row for every token in front
WITHIN = ("", "embeddings.", "embeds.")  # where in the trunk tokens are kept

FAMILIES: dict[
    str, dict[str, tuple[str, ...]]
] = {  # what tells families apart that share a naming: the names they have
    "timm": {
        "MAE": (r"decoder_(embed\.weight|pos_embed)$",),
        "DINOv3": (r"storage_tokens$|rope_embed\.periods$",),
        "DINOv2": (r"(^|\.)(register_tokens|mask_token)$", r"\.ls1\.gamma$"),
        "DeiT": (r"dist_token$",),
        "EVA-02": (r"\.attn\.q_proj\.bias$", r"\.mlp\.fc1_g\.weight$"),
        "BEiT": (r"\.q_bias$", r"relative_position_bias_table$"),
        "Swin": (r"layers\.\d+\.blocks\.\d+\.attn\.(relative_position_bias_table|cpb_mlp)",),
        "SAM or ViTDet": (r"(?<!\d\.)blocks\.\d+\.attn\.rel_pos_h$",),
        "DINO": (r"^(teacher|student)\.",),
    },
    "Hugging Face": {
        "DeiT": (r"embeddings\.distillation_token$",),
        "ViT-MAE": (r"decoder_pos_embed$",),
        "Swin": (r"encoder\.layers\.\d+\.blocks\.\d+\.attention",),
        "BEiT": (r"lambda_1$|\.relative_position_bias_table$",),
        "DINOv3": (r"layer\.\d+\.attention\.q_proj",),
        "DINOv2": (r"layer_scale1\.lambda1$",),
        "CLIP": (r"embeddings\.class_embedding$",),
        "SigLIP": (r"embeddings\.position_embedding\.weight$",),
        "ViT": (),
    },
    "OpenMMLab": {"Hugging Face SAM": (r"layers\.\d+\.attn\.rel_pos_h$",)},
}
OFFSETS = r"relative_position_bias_table|attention_biases|rel_pos_h"  # what tells a transformer without plain patches
CROWD = 256  # more tokens than anyone puts in front of a picture
LONGEST = 400  # characters of a name that can mean something


@dataclass(frozen=True)
class Trunk:
    """The vision transformer of a file: its tensors by their names from there, and whose names these are."""

    naming: str
    root: str  # what stands before each name, such as ``teacher.backbone.``
    projection: str | None  # the name of the patch projection
    tensors: dict[str, Tensor]

    def first(self, names: Iterable[str]) -> str | None:
        """The first of the names that there is."""
        return next((name for name in names if name in self.tensors), None)

    def ending(self, pattern: str) -> dict[str, Tensor]:
        """Tensors whose name ends as the pattern says, in the order of their layers."""
        found = [name for name in self.tensors if re.search(rf"(^|\.)({pattern})$", name) and "decoder" not in name]
        return {name: self.tensors[name] for name in sorted(found, key=_layers)}

    def tokens(self) -> list[tuple[str, int]]:
        """The kinds of token in front of the patches, and how many there are of each."""
        found = []
        for kind, names in TOKENS.items():
            name = self.first(within + name for name in names for within in WITHIN)
            if name is not None and self.tensors[name].ndim:
                shape = self.tensors[name].shape
                count = shape[-2] if len(shape) > 1 else 1
                found += [(kind, count)] if 0 < count <= CROWD else []
        return found


def find_trunk(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Trunk | None:
    """The vision transformer among the tensors; None where nothing looks like one."""
    tensors = {_plain(name): tensor for name, tensor in tensors.items() if len(name) <= LONGEST}
    for pattern, naming in PROJECTIONS.items():
        if found := _roots(tensors, pattern):
            return _trunk(naming, found, tensors, about)
    clip = {root: name for root, name in _roots(tensors, CLIP).items() if f"{root}positional_embedding" in tensors}
    if clip:
        return _trunk("OpenAI CLIP", clip, tensors, about)
    alone = _roots(tensors, "|".join(re.escape(name) for name in TABLES) + r"|pos_embed\.token_projection\.weight")
    if alone:
        return _trunk("timm", dict.fromkeys(alone), tensors, about)
    return Trunk("unknown", "", None, tensors) if _roots(tensors, OFFSETS) else None


def _roots(tensors: Mapping[str, Tensor], pattern: str) -> dict[str, str | None]:
    """What stands before each name that ends as the pattern says, and the rest of that name; teachers come first."""
    found: dict[str, str | None] = {}
    for name in tensors:
        match = re.fullmatch(rf"((?:.*\.)?)({pattern})", name)
        if match and not re.search("decoder|text", match[1]):
            found.setdefault(match[1], match[2])
    return dict(sorted(found.items(), key=lambda item: not re.search(r"teacher|ema", item[0])))


def _trunk(
    naming: str, roots: Mapping[str, str | None], tensors: Mapping[str, Tensor], about: Mapping[str, Any]
) -> Trunk:
    """The first of the roots, with the family told by the names of the file."""
    root, projection = next(iter(roots.items()))
    own = {name.removeprefix(root): tensor for name, tensor in tensors.items() if name.startswith(root)}
    return Trunk(_family(naming, tensors, about), root, projection, own)


def _family(naming: str, names: Iterable[str], about: Mapping[str, Any]) -> str:
    """Whose naming it is, as exactly as the names can say; families that share all of them cannot be told apart."""
    prefix = "Hugging Face " if naming == "Hugging Face" else ""
    if prefix and isinstance(about.get("model_type"), str):
        return prefix + shown(about["model_type"])
    for family, patterns in FAMILIES.get(naming, {}).items():
        if all(any(re.search(pattern, name) for name in names) for pattern in patterns):
            return prefix + family
    return naming


def _plain(name: str) -> str:
    """A name fit to print, with dots for slashes and without what compiling and JAX's numbering add."""
    name = shown(name, most=LONGEST).replace("/", ".").replace("_orig_mod.", "")
    return re.sub(r"(encoderblock|encoder_layer)_(\d+)", r"\1.\2", name)


def _layers(name: str) -> list[tuple[int, str]]:
    """A key that puts layer 10 after layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]
