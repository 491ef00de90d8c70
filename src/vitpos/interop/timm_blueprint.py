"""Reads an instantiated timm model and returns the `Blueprint` of a vitpos ViT, Swin or ResNet with the same outputs."""

from __future__ import annotations

from typing import Any

from torch import nn

from vitpos.interop.blueprint import Blueprint, learned_spec, mlp_ratio, norm_eps, refuse, spec
from vitpos.interop.timm import timm_slots, vit_names
from vitpos.models.resnet import ResNet
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT

ROTARY_OPTIONS = {"grid_indexing", "grid_offset", "in_pixels", "min_period", "normalize_coords", "rotate_half"}
ACTIVATION_CLASSES = {"GELU": "gelu", "GELUTanh": "gelu_tanh", "GeluTanh": "gelu_tanh", "QuickGELU": "quick_gelu"}


def timm_blueprint(module: Any) -> Blueprint | None:
    """Returns the blueprint of a timm model; None if it is of none of the families that `vitpos.load` rebuilds."""
    if not type(module).__module__.startswith("timm."):
        return None
    match type(module).__name__:
        case "VisionTransformer" | "VisionTransformerDistilled" | "Eva":
            return _vit(module)
        case "SwinTransformer":
            return _swin(module)
        case "ResNet":
            return _resnet(module)
    return None


def _vit(module: Any) -> Blueprint:
    embed, block, dim = module.patch_embed, module.blocks[0], module.embed_dim
    if type(embed).__name__ != "PatchEmbed" or not isinstance(embed.norm, nn.Identity):
        refuse(module, f"a patch embedding of class {type(embed).__name__} with norm {type(embed.norm).__name__}")
    if any(side % patch for side, patch in zip(embed.img_size, embed.proj.kernel_size, strict=True)):
        refuse(module, f"images of {embed.img_size} pixels, which patches of {embed.patch_size} do not divide")
    if type(block).__name__ not in ("Block", "EvaBlock"):
        refuse(module, f"blocks of class {type(block).__name__}")
    distilled, eva = hasattr(module, "dist_token"), type(module).__name__ == "Eva"
    tokens = tuple(
        (name, getattr(module, name).shape[1])
        for name in ("cls_token", "dist_token", "reg_token")
        if getattr(module, name, None) is not None
    )
    num_prefix = sum(count for _, count in tokens)
    attention = block.attn
    options: dict[str, Any] = {
        "patch": tuple(embed.proj.kernel_size),
        "dim": dim,
        "depth": len(module.blocks),
        "heads": attention.num_heads,
        **_block_options(module, block, dim),
    }
    if not isinstance(module.norm_pre, nn.Identity):
        options["stem"] = spec("norm", eps=norm_eps(module, module.norm_pre))
    options |= _head_options(module, num_prefix, distilled=distilled)
    return Blueprint(
        library="timm",
        model=ViT,
        image_shape=(embed.proj.in_channels, *embed.img_size),
        num_classes=module.num_classes,
        encoding=_encoding(module, num_prefix),
        options=options,
        names=lambda model: vit_names(
            model,
            eva=eva,
            tokens=tokens,
            split_qkv=getattr(attention, "qkv", None) is None,
            split_mlp=hasattr(block.mlp, "fc1_g"),
        ),
        slots=timm_slots,
        state=module.state_dict(),
    )


def _block_options(module: Any, block: Any, dim: int) -> dict[str, Any]:
    """Returns the options of a vitpos ViT that describe a block: its spec, ``mlp_ratio`` and ``qk_norm``."""
    attention, mlp = block.attn, block.mlp
    if type(attention).__name__ not in ("Attention", "AttentionRope", "EvaAttention"):
        refuse(module, f"attention of class {type(attention).__name__}")
    if attention.head_dim * attention.num_heads != dim or attention.gate is not None:
        refuse(module, "gated attention, or heads of another width than dim / heads")
    if getattr(attention, "num_kv_groups", 1) != 1:
        refuse(module, "fewer heads of keys than of queries")
    if attention.proj.bias is None or getattr(mlp.fc2, "bias", None) is None:
        refuse(module, "projections without bias")
    eps = norm_eps(module, block.norm1, block.norm2)
    inner_norm = not isinstance(attention.norm, nn.Identity)
    if inner_norm and norm_eps(module, attention.norm) != eps:
        refuse(module, "norms with different eps")
    qk_norm = None if isinstance(attention.q_norm, nn.Identity) else "layernorm"
    if qk_norm and norm_eps(module, attention.q_norm, attention.k_norm) != 1e-6:
        refuse(module, "norms of queries and keys with an eps other than 1e-6")
    scales = [
        getattr(block, f"gamma_{i}", None) is not None or type(getattr(block, f"ls{i}", None)).__name__ == "LayerScale"
        for i in (1, 2)
    ]
    if scales[0] != scales[1]:
        refuse(module, "LayerScale on one branch only")
    qkv = getattr(attention, "qkv", None)
    first, key = (qkv, qkv) if qkv is not None else (attention.q_proj, attention.k_proj)
    bias = "qkv" if key.bias is not None else "qv" if first.bias is not None else "none"
    if getattr(attention, "q_bias", None) is not None:
        bias = "qv"
    text = spec(
        "pre_norm",
        eps=eps,
        mlp=_mlp(module, mlp, eps),
        layer_scale=scales[0] or None,
        bias=None if bias == "qkv" else bias,
        attention_norm=inner_norm or None,
    )
    return {"block": text, "mlp_ratio": mlp_ratio(mlp.fc2.in_features, dim), "qk_norm": qk_norm}


def _mlp(module: Any, mlp: Any, eps: float) -> str:
    """Returns the spec of an MLP, a submodule of ``module``, whose norm, if any, has the given ``eps``."""
    normed = not isinstance(mlp.norm, nn.Identity)
    if normed and norm_eps(module, mlp.norm) != eps:
        refuse(module, "norms with different eps")
    kind, activation = type(mlp).__name__, type(mlp.act).__name__
    if activation == "GELU" and getattr(mlp.act, "approximate", "none") == "tanh":
        activation = "GELUTanh"
    if kind == "Mlp" and not normed and activation in ACTIVATION_CLASSES:
        return ACTIVATION_CLASSES[activation]
    if activation == "SiLU" and (kind == "SwiGLU" or (kind == "GluMlp" and not mlp.gate_last)):
        return spec("swiglu", norm=True, eps=eps) if normed else "swiglu"
    refuse(module, f"an MLP of class {kind} with {activation}{' and a norm' * normed}")


def _head_options(module: Any, num_prefix: int, *, distilled: bool) -> dict[str, Any]:
    """Returns the options ``pool``, ``registers``, ``norm`` and ``head`` of a vitpos ViT."""
    pool = module.global_pool
    if pool not in ("token", "avg", "map"):
        refuse(module, f"global_pool={pool!r}")
    if pool == "avg" and getattr(module, "pool_include_prefix", False):
        refuse(module, "average pooling that includes prefix tokens")
    norms = {"tokens": module.norm, "features": module.fc_norm}
    used = {name: norm for name, norm in norms.items() if not isinstance(norm, nn.Identity)}
    if len(used) > 1 or (pool == "map" and "features" in used):
        refuse(module, "norms both of tokens and of features")
    if pool == "token" and not num_prefix:
        refuse(module, "no prefix token and pools the first patch")
    cls = pool == "token"
    head = "linear" if module.num_classes else "none"
    if distilled:
        head = "distilled" if module.num_classes else refuse(module, "no classes but a distillation token")
    elif pool == "map":
        latent = module.attn_pool
        if type(latent).__name__ != "AttentionPoolLatent" or latent.pos_embed is not None or latent.latent_len != 1:
            refuse(module, f"pooling by {type(latent).__name__}")
        eps, dim = norm_eps(module, latent.norm), module.embed_dim
        head = spec(
            "attention",
            heads=latent.num_heads,
            mlp_ratio=mlp_ratio(latent.mlp.fc2.in_features, dim),
            mlp=_mlp(module, latent.mlp, eps),
            prefix=type(module).__name__ == "Eva" or module.pool_include_prefix or None,
            eps=eps,
        )
    return {
        "pool": "cls" if cls else "mean",
        "registers": num_prefix - cls,
        "norm": spec(*used, eps=norm_eps(module, *used.values())) if used else "none",
        "head": head,
    }


def _encoding(module: Any, num_prefix: int) -> str:
    """Returns the spec of the model's positions: its table, its rotary encoding, the sum of both, or ``none``."""
    grid = tuple(module.patch_embed.grid_size)
    terms = []
    if module.pos_embed is not None:
        terms.append(learned_spec(module.pos_embed.shape[1] - grid[0] * grid[1], num_prefix))
    if getattr(module, "rope", None) is not None:
        terms.append(_rotary(module, grid))
    return " + ".join(terms) or "none"


def _rotary(module: Any, grid: tuple[int, int]) -> str:
    rope, half = module.rope, module.blocks[0].attn.rotate_half
    if getattr(rope, "rotate_half", half) != half:
        refuse(module, "rotary tables in one layout and attention in another")
    pairing = "halves" if half else None
    match type(rope).__name__:
        case "RotaryEmbeddingCat" if not rope.in_pixels:
            ref = None if rope.ref_feat_shape is None else tuple(rope.ref_feat_shape)
            return spec(
                "rope",
                base=float(rope.temperature),
                pairing=pairing,
                axes=None if rope.grid_indexing == "xy" else "row_first",
                offset=float(rope.grid_offset) or None,
                ref_grid=None if ref == grid else ref,
            )
        case "RotaryEmbeddingMixed" if rope.grid_indexing == "xy" and not half:
            return "rope_mixed"
        case "RotaryEmbeddingDinoV3" if rope.normalize_coords == "separate" and not rope.grid_offset:
            if rope.min_period is None:
                base = float(rope.temperature)
                fixed = {"prefix_mode": "center", "axes": "row_first", "normalized": True}
                return spec("rope", base=base, pairing=pairing, **fixed)
    options = {name: value for name, value in vars(rope).items() if name in ROTARY_OPTIONS}
    refuse(module, f"rotary positions of class {type(rope).__name__} with {options}")


def _require_mean_pooling(module: Any) -> None:
    """Refuses a Swin or ResNet whose features are not the mean over positions."""
    pool = getattr(module.global_pool, "pool_type", module.global_pool)  # a text in Swin, a layer in ResNet
    if pool != "avg":
        refuse(module, f"global_pool={pool!r}")


def _swin(module: Any) -> Blueprint:
    _require_mean_pooling(module)
    embed, block = module.patch_embed, module.layers[0].blocks[0]
    stages = module.layers
    for stage in stages:
        for one in stage.blocks:
            if any(side % window for side, window in zip(one.input_resolution, one.window_size, strict=True)):
                refuse(module, f"windows of {one.window_size} on a grid of {one.input_resolution}, which timm pads")
    return Blueprint(
        library="timm",
        model=Swin,
        image_shape=(embed.proj.in_channels, *embed.img_size),
        num_classes=module.num_classes,
        encoding="none",
        options={
            "patch": tuple(embed.proj.kernel_size),
            "dim": embed.proj.out_channels,
            "depths": tuple(len(stage.blocks) for stage in stages),
            "heads": tuple(stage.blocks[0].attn.num_heads for stage in stages),
            "window": tuple(block.window_size),
            "mlp_ratio": mlp_ratio(block.mlp.fc1.out_features, embed.proj.out_channels),
        },
        names=lambda model: None,
        slots=timm_slots,
        state=module.state_dict(),
    )


def _resnet(module: Any) -> Blueprint:
    stages = [module.layer1, module.layer2, module.layer3, module.layer4]
    first = stages[0][0]
    if type(first).__name__ != "Bottleneck" or not isinstance(module.conv1, nn.Conv2d):
        refuse(module, f"blocks of class {type(first).__name__} or a stem of several convolutions")
    strides = {block.conv1.stride for stage in stages for block in stage}
    inner = [(block.conv2.stride[0], block.conv2.dilation) for stage in stages for block in stage]
    usual = [
        (2 if number and not index else 1, (1, 1)) for number, one in enumerate(stages) for index, _ in enumerate(one)
    ]
    extras = [
        name for name in ("se", "aa", "drop_block") if not isinstance(getattr(first, name, None), nn.Identity | None)
    ]
    _require_mean_pooling(module)
    eps = {one.eps for one in module.modules() if isinstance(one, nn.BatchNorm2d)}
    if eps != {nn.BatchNorm2d(1).eps}:
        refuse(module, f"batch norms with eps={sorted(eps)}")
    if strides != {(1, 1)} or inner != usual or extras or type(first.act1).__name__ != "ReLU":
        refuse(module, "other strides, activations or attention in its blocks")
    size = (
        module.default_cfg.get("input_size", (3, 224, 224)) if getattr(module, "default_cfg", None) else (3, 224, 224)
    )
    return Blueprint(
        library="timm",
        model=ResNet,
        image_shape=(module.conv1.in_channels, *size[1:]),
        num_classes=module.num_classes,
        encoding="none",
        options={"depths": tuple(map(len, stages)), "width": module.conv1.out_channels},
        names=lambda model: None,
        slots=timm_slots,
        state=module.state_dict(),
    )
