"""Hugging Face's names of weights: ``to_huggingface(model)``.

Each family is a table from names in vitpos to Hugging Face's. Its classes with a head wrap the transformer in a submodule,
whose name precedes the names of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.encodings.learned import Learned
from vitpos.encodings.rope import RoPE
from vitpos.errors import InputError
from vitpos.interop.names import SEPARATE_QKV, Names, Split, require_counterparts, tensor_slots
from vitpos.models.base import Classifier
from vitpos.models.vit import ViT

MLP = {r"\.mlp\.0\.": ".mlp.fc1.", r"\.mlp\.2\.": ".mlp.fc2."}
VIT = {
    **MLP,
    r"^project\.": "embeddings.patch_embeddings.projection.",
    r"^blocks\.": "layers.",
    r"\.attention\.proj\.": ".attention.o_proj.",
    r"\.norm1\.": ".layernorm_before.",
    r"\.norm2\.": ".layernorm_after.",
    r"^norm\.": "layernorm.",
    r"^table$": "embeddings.position_embeddings",
}
DINOV2 = {
    r"\.mlp\.fc2\.": ".mlp.down_proj.",  # of a gated MLP
    r"\.mlp\.fc1\.": ".mlp.gate_up.",
    **{key: value for key, value in VIT.items() if "norm1" not in key and "norm2" not in key},
    r"^layers\.": "encoder.layer.",
    r"\.scale(\d)\.gamma": r".layer_scale\1.lambda1",
}
DINOV3 = {
    r"\.mlp\.fc2\.": ".mlp.down_proj.",
    r"\.mlp\.fc1\.": ".mlp.gate_up.",
    r"\.mlp\.0\.": ".mlp.up_proj.",
    r"\.mlp\.2\.": ".mlp.down_proj.",
    r"^project\.": "embeddings.patch_embeddings.",
    r"^blocks\.": "model.layer.",
    r"\.attention\.proj\.": ".attention.o_proj.",
    r"\.scale(\d)\.gamma": r".layer_scale\1.lambda1",
}
CLIP = {
    **MLP,
    r"^project\.": "embeddings.patch_embedding.",
    r"^blocks\.": "encoder.layers.",
    r"\.attention\.proj\.": ".self_attn.out_proj.",
    r"\.attention\.": ".self_attn.",
    r"\.norm(\d)\.": r".layer_norm\1.",
    r"^stem\.": "pre_layrnorm.",
    r"^norm\.": "post_layernorm.",
    r"^table$": "embeddings.position_embedding.weight",
}
SIGLIP = {
    **CLIP,
    r"^head\.latent$": "head.probe",
    r"^head\.in_proj\.": "head.attention.in_proj_",
    r"^head\.proj\.": "head.attention.out_proj.",
    r"^head\.norm\.": "head.layernorm.",
}
SPLIT: dict[str, Split] = SEPARATE_QKV | {r"\.gate_up\.": ((".gate_proj.", 1), (".up_proj.", 1))}
AXES = {r"class_embedding$": 1, r"_tokens?$|position_embeddings$|head\.probe$": 3}
HEADS = {  # name of the module of a head in Hugging Face → spec in vitpos and the pattern of its names
    "classifier": ("linear", r"^head\.(?=weight|bias)"),
    "cls_classifier": ("distilled", r"^head\.cls\."),
    "visual_projection": ("linear(bias=False)", r"^head\."),
    "pooler": ("tanh", r"^head\."),
}
# name of an activation in Hugging Face → in vitpos
ACTIVATION_NAMES = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu"}


@dataclass(frozen=True)
class Family:
    """A family of Hugging Face's models.

    Args:
        rename: names in vitpos → its names, as in `Names`.
        root: name of the transformer in the classes with a head.
    """

    rename: Mapping[str, str]
    root: str


MODEL_CLASSES = {
    "ViTModel": Family(VIT, "vit."),
    "DeiTModel": Family(VIT, "deit."),
    "Dinov2Model": Family(DINOV2, "dinov2."),
    "Dinov2WithRegistersModel": Family(DINOV2, "dinov2_with_registers."),
    "DINOv3ViTModel": Family(DINOV3, "model."),
    "CLIPVisionModel": Family(CLIP, "vision_model."),
    "SiglipVisionModel": Family(SIGLIP, "vision_model."),
}


def family_names(
    family: str, root: str, tokens: tuple[tuple[str, int], ...], head: str, unused: Mapping[str, Tensor]
) -> Names:
    """Returns the table of names of a family, with ``root`` before the names of the transformer.

    Args:
        tokens: names and numbers of the prefix tokens.
        head: spec of the head in vitpos.
        unused: tensors that do not affect the output.
    """
    rename = dict(MODEL_CLASSES[family].rename)
    rename |= {r"^head\.distilled\.": "distillation_classifier."}
    if not head.startswith("attention"):
        module = next((name for name, (spec, _) in HEADS.items() if spec == head), "classifier")
        own = "pooler.dense" if module == "pooler" else module
        rename |= {HEADS[module][1]: f"{own}."}
    rename |= (
        {rf"^(?!{'|'.join(name for name in HEADS if name != 'pooler')}|distillation_classifier)": root} if root else {}
    )
    own_tokens = tuple((f"{root}embeddings.{name}", count) for name, count in tokens if count)
    split = SPLIT | {rf"^{re.escape(root)}prefix_tokens$": own_tokens}
    return Names("Hugging Face", rename, split, AXES, unused)


def to_huggingface(model: Classifier) -> dict[str, Tensor]:
    """Returns the weights of a vitpos ViT under Hugging Face's names: a state dict that its model loads.

    If `vitpos.load` made the model of a Hugging Face model, it is the state dict of that model, bit for bit, without the
    text tower of CLIP and SigLIP. Another ViT is exported to the class of the same parts: DINOv2 if it has LayerScale,
    DINOv3 if it also has rotary positions, CLIP if it has a norm before the blocks, SigLIP if it pools by attention,
    otherwise ViT.
    """
    if not isinstance(model, ViT):
        raise InputError(f"Hugging Face names are known for ViTs only, not for a {type(model).__name__}; use to_timm")
    names = model._weight_names
    if not isinstance(names, Names) or names.library != "Hugging Face":
        names = _default_names(model)
    require_counterparts(model, "Hugging Face")
    state = {name: slot.read() for name, slot in tensor_slots(model, names).items()}
    if own := [name for name in state if "encoding." in name]:
        raise InputError(f"Hugging Face has no counterpart of vitpos' {own[0]!r}; choose an encoding such as learned")
    return state | {name: tensor.clone() for name, tensor in names.unused.items()}


def _default_names(model: ViT) -> Names:
    state = model.state_dict()
    scaled = any(".scale1." in name for name in state)
    rotary = "rotate" in model.encoding.hooks
    count, dim = model.geometry.num_prefix, model.geometry.dim
    tokens: tuple[tuple[str, int], ...] = (("cls_token", 1), ("register_tokens", count - 1))
    head = "linear" if "head.weight" in state else "none"
    unused: dict[str, Tensor] = {}
    if "stem.weight" in state:
        family, tokens = "CLIPVisionModel", (("class_embedding", 1),)
        head = "linear(bias=False)" if head == "linear" else "none"
    elif "head.latent" in state:
        family, tokens, head = "SiglipVisionModel", (), "attention"
    elif scaled:
        family = "DINOv3ViTModel" if rotary else "Dinov2WithRegistersModel" if count > 1 else "Dinov2Model"
    else:
        family = "ViTModel"
    root = MODEL_CLASSES[family].root if head.startswith("linear") else ""
    if scaled:
        shape = (1, 1, dim) if rotary else (1, dim)
        unused = {f"{root}embeddings.mask_token": torch.zeros(shape, dtype=model.project.weight.dtype)}
    has_rows = [part.prefix_table for part in model.encoding.parts if isinstance(part, Learned)]
    if rotary:
        _require_dinov3(model, family)
        if count == 1:
            unused[f"{root}embeddings.register_tokens"] = torch.zeros((1, 0, dim), dtype=model.project.weight.dtype)
    if not has_rows and not rotary:
        found = " + ".join(type(part).__name__ for part in model.encoding.parts)
        raise InputError(
            f"Hugging Face's ViTs have a learned table, not {found}; use learned(prefix_embed=1), or to_timm"
        )
    if family != "SiglipVisionModel" and not rotary and has_rows[0] is None:
        raise InputError("Hugging Face's table has a row for CLS; use the encoding learned(prefix_embed=1) or to_timm")
    return family_names(family, root, tokens, head, unused)


def _require_dinov3(model: ViT, family: str) -> None:
    """Raises an InputError unless a ViT with rotary positions has those of Hugging Face's DINOv3, and no others."""
    (rotary, *others) = [part for part in model.encoding.parts if part.hooks]
    same = family == "DINOv3ViTModel" and not others and isinstance(rotary, RoPE)
    if same and isinstance(rotary, RoPE):
        fixed = {"prefix_mode": "center", "pairing": "halves", "axes": "row_first", "normalized": True}
        wanted = RoPE(rotary.geometry, base=rotary.base, **fixed).train(rotary.training)  # type: ignore[arg-type]
        same = _settings(rotary) == _settings(wanted)
    if not same:
        raise InputError("Hugging Face has rotary positions in DINOv3 only, and this model has others; use to_timm")


def _settings(rotary: RoPE) -> dict[str, Any]:
    return {name: value for name, value in vars(rotary).items() if not name.startswith("_")}
