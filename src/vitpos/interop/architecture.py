"""Finds the vision transformer in a checkpoint, the library and family it comes from, and its dimensions.

The patch projection marks the transformer (the trunk): what precedes its name in
``teacher.backbone.patch_embed.proj.weight`` is a wrapper prefix, here ``teacher.backbone.``, which is removed from all
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitpos.errors import InputError
from vitpos.printable import sanitize

PROJECTIONS = {  # pattern of the patch projection's name → library
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
CLIP = r"conv1\.weight"  # only together with a positional_embedding, since a ResNet has this name too

TABLES = (  # names of absolute position tables within the trunk
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
TOKENS = {  # prefix tokens in their order
    "CLS": ("cls_token", "class_token", "cls", "class_embedding"),
    "distillation": ("dist_token", "distillation_token"),
    "register": ("reg_token", "register_tokens", "storage_tokens"),
}
TABLE_INCLUDES_PREFIX = r"(?i)clip"  # formats whose tables have a row for every prefix token
TOKEN_MODULES = ("", "embeddings.", "embeds.")  # modules in which prefix tokens are stored

FAMILIES: dict[str, dict[str, tuple[str, ...]]] = {  # library → family → patterns of tensor names that it must have
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
RELATIVE = (
    r"relative_position_bias_table|attention_biases|rel_pos_h"  # identifies a transformer without a patch projection
)
MAX_PREFIX = 256  # prefix tokens; larger tensors are something else
MAX_NAME = 400  # characters; longer tensor names are ignored
ATTENTION = re.compile(r"(.*\.\d+)\.(self_attn|attns?|attention|self_attention|MultiHeadDotProductAttention)[._\d]")
STAGE = re.compile(r"(stages|layers)\.\d+\.blocks\.")


@dataclass(frozen=True)
class Trunk:
    """The vision transformer in a checkpoint: its tensors, without the wrapper prefix of their names, and its format.

    Args:
        format: library or family, such as timm, DeiT or Hugging Face ViT.
        root: wrapper prefix removed from each name, such as ``teacher.backbone.``.
        projection: name of the patch projection, if known.
        tensors: name → tensor.
    """

    format: str
    root: str
    projection: str | None
    tensors: dict[str, Tensor]

    def first(self, names: Iterable[str]) -> str | None:
        """Returns the first of ``names`` that the checkpoint has a tensor for; None if it has none."""
        return next((name for name in names if name in self.tensors), None)

    def matching(self, pattern: str) -> dict[str, Tensor]:
        """Returns name → tensor for names whose end matches the regular expression, sorted by layer, without decoders."""
        names = [name for name in self.tensors if re.search(rf"(^|\.)({pattern})$", name) and "decoder" not in name]
        return {name: self.tensors[name] for name in sorted(names, key=_layer_order)}

    def prefix_tokens(self) -> list[tuple[str, int]]:
        """Returns the tokens before the patches as pairs (kind, number), such as ``[("CLS", 1), ("register", 4)]``."""
        kinds = []
        for kind, names in TOKENS.items():
            name = self.first(module + name for name in names for module in TOKEN_MODULES)
            if name is not None and self.tensors[name].ndim:
                shape = self.tensors[name].shape
                count = shape[-2] if len(shape) > 1 else 1
                kinds += [(kind, count)] if 0 < count <= MAX_PREFIX else []
        return kinds


def find_trunk(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Trunk | None:
    """Returns the vision transformer among the tensors of a checkpoint; None if there is none.

    Args:
        tensors: all tensors of the file by name.
        config: its configuration, which may name the type of model.
    """
    tensors = {_normalize(name): tensor for name, tensor in tensors.items() if len(name) <= MAX_NAME}
    for pattern, library in PROJECTIONS.items():
        if roots := _roots(tensors, pattern):
            return _trunk(library, roots, tensors, config)
    clip = {root: name for root, name in _roots(tensors, CLIP).items() if f"{root}positional_embedding" in tensors}
    if clip:
        return _trunk("OpenAI CLIP", clip, tensors, config)
    table = "|".join(re.escape(name) for name in TABLES) + r"|pos_embed\.token_projection\.weight"
    if table_roots := _roots(tensors, table):
        return _trunk("timm", dict.fromkeys(table_roots), tensors, config)
    return Trunk("unknown", "", None, tensors) if _roots(tensors, RELATIVE) else None


def _roots(tensors: Mapping[str, Tensor], pattern: str) -> dict[str, str | None]:
    """Splits tensor names that end with ``pattern``, a regular expression, into a wrapper prefix and the match.

    Returns prefix, such as ``teacher.backbone.`` or an empty string, → first match after it. Prefixes of teachers and EMA
    weights come first; decoders and text encoders are left out.
    """
    roots: dict[str, str | None] = {}
    for name in tensors:
        match = re.fullmatch(rf"((?:.*\.)?)({pattern})", name)
        if match and not re.search("decoder|text", match[1]):
            roots.setdefault(match[1], match[2])
    return dict(sorted(roots.items(), key=lambda item: not re.search(r"teacher|ema", item[0])))


def _trunk(
    library: str, roots: Mapping[str, str | None], tensors: Mapping[str, Tensor], config: Mapping[str, Any]
) -> Trunk:
    """Returns the vision transformer whose tensor names start with the first key of ``roots``.

    Args:
        library: the library that the tensor names indicate, such as timm or Hugging Face.
        roots: wrapper prefix, such as ``teacher.backbone.``, → name of the patch projection after it, if known.
        tensors: all tensors of the file by name.
        config: configuration of the checkpoint, which may name the type of model.
    """
    root, projection = next(iter(roots.items()))
    own = {name.removeprefix(root): tensor for name, tensor in tensors.items() if name.startswith(root)}
    return Trunk(_family(library, tensors, config), root, projection, own)


def _family(library: str, names: Iterable[str], config: Mapping[str, Any]) -> str:
    """Returns the model family, such as "DeiT" or "Hugging Face ViT"; the library if names and config show no family.

    Args:
        library: the library that the tensor names indicate, such as timm or Hugging Face.
        names: all tensor names of the checkpoint.
        config: configuration of the checkpoint, which may name the type of model.
    """
    prefix = "Hugging Face " if library == "Hugging Face" else ""
    if prefix and isinstance(config.get("model_type"), str):
        return prefix + sanitize(config["model_type"])
    for family, patterns in FAMILIES.get(library, {}).items():
        if all(any(re.search(pattern, name) for name in names) for pattern in patterns):
            return prefix + family
    return library


def _normalize(name: str) -> str:
    """Returns a printable tensor name with dots for slashes, without ``_orig_mod.`` (torch.compile).

    JAX's layer numbers are separated by a dot: ``encoderblock_3`` becomes ``encoderblock.3``.
    """
    name = sanitize(name, limit=MAX_NAME).replace("/", ".").replace("_orig_mod.", "")
    return re.sub(r"(encoderblock|encoder_layer)_(\d+)", r"\1.\2", name)


def _layer_order(name: str) -> list[tuple[int, str]]:
    """Returns a sort key for tensor names that puts layer 10 after layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def patch_projection(trunk: Trunk, path: str) -> tuple[tuple[int, int] | None, int | None, int | None]:
    """Returns patch size (height, width), input channels and output width of the patch projection, None where unknown.

    For a linear projection of flattened patches only the output width is known.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        path: file name for error messages.
    """
    if trunk.projection is None:
        return None, None, None
    weight = trunk.tensors[trunk.projection]
    if weight.ndim == 1:  # the norm before vit-pytorch's projection
        weight = next((w for w in trunk.matching(r"to_patch_embedding\.\d+\.weight").values() if w.ndim == 2), weight)
    if weight.ndim not in (2, 4) or not weight.numel():
        name, shape = f"{path}: {sanitize(trunk.projection)}", sanitize(tuple(weight.shape))
        raise InputError(f"{name} is {shape}, not a projection of image patches; is it a ViT?")
    if trunk.projection.endswith("kernel"):  # JAX: rows, columns, channels, width
        weight = weight.permute(3, 2, 0, 1) if weight.ndim == 4 else weight.mT
    dim = weight.shape[0]
    if weight.ndim == 2 or any(name.startswith("patch_embed.backbone.") for name in trunk.tensors):
        return None, None, dim  # of flattened patches, or of the features of a convolutional network
    return (weight.shape[2], weight.shape[3]), weight.shape[1], dim


def count_layers(trunk: Trunk) -> int | None:
    """Returns the number of transformer blocks, counted by the names of attention tensors; None if there are none.

    ``trunk`` holds the tensors of the vision transformer in the checkpoint.
    """
    for weight in trunk.matching(r"encoderblock\.\w+\.query\.kernel").values():
        return weight.shape[0]  # big_vision stacks all layers in one tensor
    blocks = {match[1] for name in trunk.tensors if "decoder" not in name and (match := ATTENTION.match(name))}
    return len(blocks) or None


def count_heads(
    trunk: Trunk, config: Mapping[str, Any], dim: int | None, *, known: Iterable[int], head_dims: Iterable[int]
) -> int | None:
    """Returns the number of heads, from the configuration or from shapes; None if unknown or different between layers.

    Args:
        trunk: the tensors of the vision transformer in the checkpoint.
        dim: width of the tokens, if known.
        known: numbers of heads implied by position tensors.
        head_dims: widths of one head implied by position tensors.
    """
    nested = config.get("vision_config")
    for level in (config, nested if isinstance(nested, Mapping) else {}):
        for name in ("num_attention_heads", "num_heads"):
            if type(level.get(name)) is int:
                return int(level[name])
    heads = {weight.shape[-2] for weight in trunk.matching(r"query\.kernel").values() if weight.ndim in (3, 4)}
    heads |= set(known)
    if dim is not None and not any(STAGE.search(name) for name in trunk.tensors):  # all layers have the same width
        heads |= {dim // width for width in head_dims if width and dim % width == 0}
    return heads.pop() if len(heads) == 1 else None
