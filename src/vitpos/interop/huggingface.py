"""Hugging Face's Vision Transformers: the `Blueprint` of a model, and our weights under its names.

Each family is a table from our names to Hugging Face's. Its classes with a head wrap the transformer in a submodule, whose
name precedes the names of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitpos.encodings.learned import Learned
from vitpos.errors import InputError
from vitpos.interop.blueprint import Blueprint, learned_spec, mlp_ratio, refuse, spec
from vitpos.interop.names import Names, tensor_slots
from vitpos.models.base import Classifier
from vitpos.models.vit import ViT
from vitpos.patches import to_2tuple

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
SPLIT = {
    r"\.qkv\.": ((".q_proj.", 1), (".k_proj.", 1), (".v_proj.", 1)),
    r"\.qv_bias$": ((".q_proj.bias", 1), (".v_proj.bias", 1)),
    r"\.gate_up\.": ((".gate_proj.", 1), (".up_proj.", 1)),
}
AXES = {r"class_embedding$": 1, r"_tokens?$|position_embeddings$|head\.probe$": 3}
TOKENS = ("cls_token", "distillation_token", "register_tokens")
HEADS = {  # name of the module of a head in Hugging Face → our spec and the pattern of its names
    "classifier": ("linear", r"^head\.(?=weight|bias)"),
    "cls_classifier": ("distilled", r"^head\.cls\."),
    "visual_projection": ("linear(bias=False)", r"^head\."),
    "pooler": ("tanh", r"^head\."),
}
ACTIVATIONS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu"}


@dataclass(frozen=True)
class Family:
    """A family of Hugging Face's models.

    Args:
        rename: our names → its names, as in `Names`.
        root: name of the transformer in the classes with a head.
    """

    rename: Mapping[str, str]
    root: str


FAMILIES = {
    "ViTModel": Family(VIT, "vit."),
    "DeiTModel": Family(VIT, "deit."),
    "Dinov2Model": Family(DINOV2, "dinov2."),
    "Dinov2WithRegistersModel": Family(DINOV2, "dinov2_with_registers."),
    "DINOv3ViTModel": Family(DINOV3, "model."),
    "CLIPVisionModel": Family(CLIP, "vision_model."),
    "SiglipVisionModel": Family(SIGLIP, "vision_model."),
}


def huggingface_blueprint(module: Any) -> Blueprint | None:
    """Returns the blueprint of a Hugging Face model; None if it is of none of the families that `vitpos.load` rebuilds."""
    if not type(module).__module__.startswith("transformers."):
        return None
    if type(module).__name__ == "SiglipModel":
        module = module.vision_model
    found = next(((name, one) for name, one in module.named_modules() if type(one).__name__ in FAMILIES), None)
    if found is None:
        return None
    root, tower = (f"{found[0]}." if found[0] else ""), found[1]
    if type(tower).__name__ in ("CLIPVisionModel", "SiglipVisionModel") and hasattr(module, "classifier"):
        refuse(module, "a classifier on tokens without their final norm")
    return _blueprint(module, tower, root)


def _blueprint(module: Any, tower: Any, root: str) -> Blueprint:
    """Returns the blueprint of ``module``, whose transformer is its submodule ``tower`` with the name ``root``."""
    family, config = type(tower).__name__, tower.config
    state = module.state_dict()
    if root and hasattr(module, "visual_projection"):  # CLIP: without the text tower
        state = {name: one for name, one in state.items() if name.startswith((root, "visual_projection."))}
    dim, patch = config.hidden_size, to_2tuple(config.patch_size)
    size = to_2tuple(config.image_size)
    embeddings = tower.embeddings
    tokens = tuple((name, getattr(embeddings, name).shape[1]) for name in TOKENS if hasattr(embeddings, name))
    if hasattr(embeddings, "class_embedding"):
        tokens = (("class_embedding", 1),)
    num_prefix = sum(count for _, count in tokens)
    head, outputs = _head(module, tower)
    mean = not num_prefix
    norm = "tokens" if family != "CLIPVisionModel" else "features"
    table = next((one for name, one in state.items() if re.search(r"position_embeddings?(\.weight)?$", name)), None)
    if table is not None:
        rows = table.shape[-2] - (size[0] // patch[0]) * (size[1] // patch[1])
        encoding = learned_spec(rows, num_prefix)
    else:
        fixed = {"prefix_mode": "center", "pairing": "halves", "axes": "row_first", "normalized": True}
        encoding = spec("rope", base=float(tower.rope_embeddings.base), **fixed)
    layer = next(one for one in tower.modules() if isinstance(one, nn.ModuleList))[0]
    options = {
        "patch": patch,
        "dim": dim,
        "depth": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "pool": "mean" if mean else "cls",
        "registers": num_prefix - (not mean),
        "norm": spec(norm, eps=config.layer_norm_eps),
        "head": head,
        **_block_options(module, layer, config, dim),
    }
    if hasattr(tower, "pre_layrnorm"):
        options["stem"] = spec("norm", eps=config.layer_norm_eps)
    unused = tuple(name for name, one in state.items() if name.endswith("mask_token") or not one.numel())
    names = _names(family, root, tokens, head, {name: state[name] for name in unused})
    return Blueprint(
        library="Hugging Face",
        model=ViT,
        image_shape=(config.num_channels, *size),
        num_classes=outputs,
        encoding=encoding,
        options=options,
        names=lambda model: names,
        slots=lambda model: tensor_slots(model, names),
        state=state,
        unused=unused,
    )


def _names(
    family: str, root: str, tokens: tuple[tuple[str, int], ...], head: str, unused: Mapping[str, Tensor]
) -> Names:
    """Returns the table of names of a family, with ``root`` before the names of the transformer.

    Args:
        tokens: names and numbers of the prefix tokens.
        head: our spec of the head.
        unused: tensors that do not affect the output.
    """
    rename = dict(FAMILIES[family].rename)
    rename |= {r"^head\.distilled\.": "distillation_classifier."}
    if not head.startswith("attention"):
        module = next((name for name, (ours, _) in HEADS.items() if ours == head), "classifier")
        own = "pooler.dense" if module == "pooler" else module
        rename |= {HEADS[module][1]: f"{own}."}
    rename |= (
        {rf"^(?!{'|'.join(name for name in HEADS if name != 'pooler')}|distillation_classifier)": root} if root else {}
    )
    own_tokens = tuple((f"{root}embeddings.{name}", count) for name, count in tokens if count)
    split = SPLIT | {rf"^{re.escape(root)}prefix_tokens$": own_tokens}
    return Names("Hugging Face", rename, split, AXES, unused)


def _head(module: Any, tower: Any) -> tuple[str, int]:
    """Returns our spec of the head of ``module``, around the transformer ``tower``, and its number of outputs."""
    for name in ("cls_classifier", "classifier", "visual_projection"):
        if (layer := getattr(module, name, None)) is not None and hasattr(layer, "out_features"):
            both = name == "classifier" and layer.in_features == 2 * tower.config.hidden_size
            return "cls_and_mean" if both else HEADS[name][0], layer.out_features
    if (pooler := getattr(tower, "pooler", None)) is not None:
        if type(pooler.activation).__name__ != "Tanh":
            refuse(module, f"a pooler with {type(pooler.activation).__name__}")
        return "tanh", pooler.dense.out_features
    if getattr(tower, "use_head", False):
        config = tower.config
        options = {"heads": config.num_attention_heads, "mlp": _activation(module, config.hidden_act)}
        ratio = mlp_ratio(config.intermediate_size, config.hidden_size)
        return spec("attention", mlp_ratio=ratio, eps=config.layer_norm_eps, **options), 0
    return "none", 0


def _activation(module: Any, name: str) -> str:
    if name not in ACTIVATIONS:
        refuse(module, f"the activation {name!r}")
    return ACTIVATIONS[name]


def _block_options(module: Any, layer: Any, config: Any, dim: int) -> dict[str, Any]:
    """Returns the options ``block`` and ``mlp_ratio`` of our ViT for a ``layer`` of Hugging Face's model."""
    mlp, attention = layer.mlp, getattr(layer, "attention", None) or layer.self_attn
    biased = "".join(one for one in "qkv" if getattr(attention, f"{one}_proj").bias is not None)
    bias = {"qkv": "qkv", "qv": "qv", "": "none"}.get(biased)
    last = getattr(mlp, "fc2", None) or mlp.down_proj
    if bias is None or last.bias is None or attention.q_proj.out_features != dim:
        refuse(module, "biases on some projections only, or heads of another width than dim / heads")
    if hasattr(mlp, "gate_proj"):
        activation = "silu" if type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation") else "gelu"
        text = spec("swiglu", activation=None if activation == "silu" else activation)
    else:
        text = _activation(module, config.hidden_act)
    block = spec(
        "pre_norm",
        eps=config.layer_norm_eps,
        mlp=text,
        layer_scale=hasattr(layer, "layer_scale1") or None,
        bias=None if bias == "qkv" else bias,
    )
    return {"block": block, "mlp_ratio": mlp_ratio(last.in_features, dim)}


def to_huggingface(model: Classifier) -> dict[str, Tensor]:
    """Returns the weights of our ViT under Hugging Face's names: a state dict that its model loads.

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
    root = FAMILIES[family].root if head.startswith("linear") else ""
    if scaled:
        shape = (1, 1, dim) if rotary else (1, dim)
        unused = {f"{root}embeddings.mask_token": torch.zeros(shape, dtype=model.project.weight.dtype)}
    has_rows = [part.prefix_table for part in model.encoding.parts if isinstance(part, Learned)]
    if family != "SiglipVisionModel" and not rotary and (not has_rows or has_rows[0] is None):
        raise InputError("Hugging Face's table has a row for CLS; use the encoding learned(prefix_embed=1) or to_timm")
    return _names(family, root, tokens, head, unused)
