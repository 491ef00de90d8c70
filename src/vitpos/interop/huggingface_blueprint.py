"""Reads an instantiated Hugging Face model and returns the `Blueprint` of a vitpos ViT with the same outputs."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from vitpos.interop.blueprint import Blueprint, learned_spec, mlp_ratio, refuse, spec
from vitpos.interop.huggingface import ACTIVATION_NAMES, HEADS, MODEL_CLASSES, family_names
from vitpos.interop.names import tensor_slots
from vitpos.models.vit import ViT
from vitpos.patches import to_2tuple

GATES = {"SiLU": "silu", "SiLUActivation": "silu", "GELUActivation": "gelu"}  # of gated MLPs
TOKENS = ("cls_token", "distillation_token", "register_tokens")


def huggingface_blueprint(module: Any) -> Blueprint | None:
    """Returns the blueprint of a Hugging Face model; None if it is of none of the families that `vitpos.load` rebuilds."""
    if not type(module).__module__.startswith("transformers."):
        return None
    if type(module).__name__ == "SiglipModel":
        module = module.vision_model
    found = next(((name, one) for name, one in module.named_modules() if type(one).__name__ in MODEL_CLASSES), None)
    if found is None:
        return None
    root, tower = (f"{found[0]}." if found[0] else ""), found[1]
    if type(tower).__name__ in ("CLIPVisionModel", "SiglipVisionModel") and hasattr(module, "classifier"):
        refuse(module, "a classifier on the mean of the tokens of an image tower")
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
    names = family_names(family, root, tokens, head, {name: state[name] for name in unused})
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


def _head(module: Any, tower: Any) -> tuple[str, int]:
    """Returns the spec of the head of ``module``, around the transformer ``tower``, and its number of outputs."""
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
    if name not in ACTIVATION_NAMES:
        refuse(module, f"the activation {name!r}")
    return ACTIVATION_NAMES[name]


def _block_options(module: Any, layer: Any, config: Any, dim: int) -> dict[str, Any]:
    """Returns the options ``block`` and ``mlp_ratio`` of a vitpos ViT for a ``layer`` of Hugging Face's model."""
    mlp, attention = layer.mlp, getattr(layer, "attention", None) or layer.self_attn
    biased = "".join(one for one in "qkv" if getattr(attention, f"{one}_proj").bias is not None)
    bias = {"qkv": "qkv", "qv": "qv", "": "none"}.get(biased)
    last = getattr(mlp, "fc2", None) or mlp.down_proj
    if bias is None or last.bias is None or attention.q_proj.out_features != dim:
        refuse(module, "biases on some projections only, or heads of another width than dim / heads")
    if hasattr(mlp, "gate_proj"):
        activation = GATES.get(type(mlp.act_fn).__name__)
        if activation is None:
            refuse(module, f"the gate {type(mlp.act_fn).__name__}")
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
