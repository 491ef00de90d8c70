"""The weights and the configuration of a model as timm or Hugging Face store them, compared with their model's outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from vitpos.encodings.rope import RoPE
from vitpos.errors import InputError
from vitpos.interop.convert import require_patches
from vitpos.interop.export import FROM_LOGITS, logits_of
from vitpos.interop.grids import format_grid
from vitpos.interop.huggingface import ACTIVATION_NAMES, to_huggingface
from vitpos.interop.load import TIMM_ACTIVATIONS
from vitpos.interop.source_model import SourceModel
from vitpos.interop.step_reports import StepReport, largest_difference, random_images
from vitpos.interop.timm import is_eva, to_timm
from vitpos.models.parts import BLOCKS, HEADS, STEMS
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT
from vitpos.printable import one_line, sanitize
from vitpos.registry import Registry

# of outputs; of other types .05. Libraries round rotary tables to float32
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4}
MAX_DOUBLE = 1 << 28  # weights of a model that is copied to float64 for the comparison
TIMM, TIMM_ROTARY = "vit_base_patch16_224", "eva02_base_patch14_224"  # architectures of a ViT that is not from timm
TIMM_EPS = 1e-6  # of their norms
HF_HEADS = {"linear", "none"}  # heads of its models for which a configuration is written


@dataclass(frozen=True)
class LibraryExport:
    """What a library needs to load a model.

    Args:
        tensors: Its name → tensor.
        config: Content of its ``config.json``.
        report: Comparison of its model with the vitpos model.
        model: Its model with these weights, if it can save itself.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    report: StepReport
    model: Any = None


def timm_files(source: SourceModel) -> LibraryExport:
    """Returns weights and ``config.json`` that ``timm.create_model("local-dir:FOLDER", pretrained=True)`` loads.

    Raises an InputError if timm's model does not have the same outputs.
    """
    tensors, arguments = to_timm(source.model), timm_arguments(source)
    architecture = source.origin.architecture
    if not architecture:
        architecture = TIMM_ROTARY if (rotary := is_eva(source.model)) else TIMM
        arguments |= _timm_parts(source, architecture, rotary=rotary)
    config = {
        "architecture": architecture,
        "num_classes": source.spec.num_classes,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": source.spec.image_shape,
            "num_classes": source.spec.num_classes,
            **source.preprocessing.timm_config,
        },
        **({"label_names": list(source.class_names)} if source.class_names else {}),
    }

    def build() -> nn.Module:
        import timm

        return timm.create_model(architecture, pretrained=False, **arguments)

    return LibraryExport(tensors, config, _compared(source, "timm", architecture, build, tensors))


def huggingface_files(source: SourceModel) -> LibraryExport:
    """Returns weights and ``config.json`` that ``from_pretrained(FOLDER)`` of Hugging Face's transformers loads.

    Raises an InputError if Hugging Face's model does not have the same outputs.
    """
    tensors = to_huggingface(source.model)
    try:
        kind, config = _huggingface_config(source, tensors)
    except (ImportError, RuntimeError):
        raise InputError("the format of Hugging Face needs transformers; pip install transformers") from None
    _, height, width = source.spec.image_shape
    model, square = require_patches(source.model), height == width
    grid, patch = model.geometry.grid, model.patch
    if grid[0] != grid[1] and kind.__name__.startswith("Dinov2"):
        raise InputError(
            f"Hugging Face's DINOv2 has square grids only, not {format_grid(grid)}; use the format 'timm' or 'vitpos'"
        )
    config.image_size = height if square else [height, width]
    config.patch_size = patch[0] if patch[0] == patch[1] else [*patch]
    config.architectures = [kind.__name__]
    if source.class_names and source.origin.library != "Hugging Face":
        config.id2label = dict(enumerate(source.class_names))
        config.label2id = {name: number for number, name in config.id2label.items()}
    report = _compared(source, "Hugging Face", kind.__name__, lambda: kind(config), tensors)
    with torch.random.fork_rng(devices=[]):
        library_model = kind(config).to(next(model.parameters()).dtype)
    library_model.load_state_dict(tensors)
    return LibraryExport(tensors, config.to_dict(), report, library_model)


def _compared(
    source: SourceModel, library: str, name: str, build: Callable[[], Any], tensors: Mapping[str, Tensor]
) -> StepReport:
    """Returns a report that compares the library's model with the vitpos model; raises an InputError if outputs differ."""
    change = f"weights of {library}'s {name}"
    package = {"timm": "timm", "Hugging Face": "transformers"}[library]
    numbers: dict[str, float] = {"tensors": len(tensors)}
    try:
        import_module(package)
    except (ImportError, RuntimeError) as error:  # the latter from a torchvision for another torch
        return StepReport(
            "format", change, numbers, f"not compared: {package} is not there ({sanitize(error, limit=80)})"
        )
    own = next(source.model.parameters()).dtype
    small = sum(tensor.numel() for tensor in tensors.values()) <= MAX_DOUBLE
    for dtype in dict.fromkeys([torch.float64, own] if small else [own]):  # some models of libraries need float32
        try:
            difference = _difference(source, build, tensors, dtype)
            break
        except Exception as error:  # of another library: any type
            reason = one_line(error)
    else:
        raise InputError(
            f"{library}'s {name} does not take this model ({reason}); choose an encoding and a shape that it has"
        )
    if not difference <= (most := TOLERANCE.get(dtype, 0.05)):
        raise InputError(
            f"{library}'s {name} would have other outputs (difference {difference:.2g}, at most {most:g} is allowed); "
            "try coords 'rebuild', a square grid, or the format 'vitpos'"
        )
    return StepReport("format", change, numbers | {"output_difference": difference})


def _difference(
    source: SourceModel, build: Callable[[], Any], tensors: Mapping[str, Tensor], dtype: torch.dtype
) -> float:
    """Returns the largest difference of the outputs of the vitpos model and the library's, both computed in ``dtype``."""
    with torch.random.fork_rng(devices=[]):
        module = build().to(dtype).eval()
    module.load_state_dict(dict(tensors), strict=True)
    images = random_images(source.spec.image_shape, dtype)
    with torch.inference_mode():
        return largest_difference(copy.deepcopy(source.model).to(dtype)(images), _output(module(images)))


def _output(output: Any) -> Tensor:
    """Returns the logits or features (B, D) of what a model of a library returns; without both, the first token."""
    hidden = getattr(output, "last_hidden_state", None)
    if isinstance(hidden, Tensor) and all(getattr(output, key, None) is None for key in FROM_LOGITS):
        return hidden[:, 0]
    return logits_of(output)


def timm_arguments(source: SourceModel) -> dict[str, Any]:
    """Returns the arguments of ``timm.create_model`` that give its model the sizes of the vitpos model."""
    model, spec = source.model, source.spec
    channels, *size = spec.image_shape
    if not isinstance(model, ViT | Swin):
        return {"num_classes": spec.num_classes, "in_chans": channels}
    sizes = {
        "img_size": size,
        "patch_size": list(model.patch),
        "in_chans": channels,
        "num_classes": spec.num_classes,
        "embed_dim": model.geometry.dim,
    }
    options = spec.options
    if isinstance(model, Swin):
        window = [*options["window"]] if isinstance(options["window"], tuple) else options["window"]
        return sizes | {"depths": options["depths"], "num_heads": options["heads"], "window_size": window}
    pool = {"global_pool": "token" if options["pool"] == "cls" else "avg"}
    if options["head"].startswith("attention"):
        pool = {"global_pool": "map"}
    ratio = {} if source.origin.library == "timm" else {"mlp_ratio": options["mlp_ratio"]}
    return sizes | {"depth": model.geometry.depth, "num_heads": model.geometry.heads} | pool | ratio


def _timm_parts(source: SourceModel, architecture: str, *, rotary: bool) -> dict[str, Any]:
    """Returns the arguments of ``timm.create_model`` that describe the parts of a ViT that timm did not make."""
    model, options = source.model, source.spec.options
    if not isinstance(model, ViT):
        raise InputError(f"timm has no architecture for a {type(model).__name__} of vitpos; use the format 'vitpos'")
    block = _options(BLOCKS, options["block"])
    activations = TIMM_ACTIVATIONS[:1] if rotary else TIMM_ACTIVATIONS
    if block["mlp"] not in activations:
        known = " or ".join(activations)
        raise InputError(f"timm's {architecture} has the MLP {known}, not {block['mlp']}; use the format 'vitpos'")
    for eps in {one.eps for one in model.modules() if isinstance(one, nn.LayerNorm)} - {TIMM_EPS}:
        raise InputError(f"timm's {architecture} has norms with eps={TIMM_EPS:g}, not {eps:g}; use the format 'vitpos'")
    cls = options["pool"] == "cls"
    registers = model.geometry.num_prefix - cls
    tables = [part for part in model.encoding.parts if "vectors" in part.hooks]
    arguments = {
        "class_token": cls,
        "init_values": 1e-5 if block.get("layer_scale") else None,
        "qkv_bias": "q" in block["bias"],
        "qk_norm": options["qk_norm"] == "layernorm",
        "no_embed_class": all(part.prefix_vectors() is None for part in tables),
    }
    if rotary:
        arguments |= {
            "attn_type": "rope",
            "qkv_fused": True,
            "swiglu_mlp": False,
            "scale_mlp": False,
            "num_reg_tokens": registers,
            "use_abs_pos_emb": bool(tables),
            "use_fc_norm": model.norm.after_pooling,
        }
        return arguments | _timm_rope(model)
    stem = STEMS.parse(options["stem"])[0].name
    if block["mlp"] != TIMM_ACTIVATIONS[0]:
        arguments["act_layer"] = block["mlp"]
    return arguments | {
        "reg_tokens": registers,
        "pos_embed": "learn" if tables else "none",
        "pre_norm": stem == "norm",
        "fc_norm": model.norm.after_pooling,
    }


def _timm_rope(model: ViT) -> dict[str, Any]:
    """Returns the arguments of ``timm.create_model`` that describe the axial rotary encoding of a vitpos ViT."""
    (rotary, *others) = [part for part in model.encoding.parts if "rotate" in part.hooks]
    if others or type(rotary) is not RoPE:  # the class decides: timm has a counterpart of this encoding only
        raise InputError(f"timm has no counterpart of vitpos' {type(rotary).__name__} in a model that is not from timm")
    span = [scale * side for scale, side in zip(rotary.scale, rotary.geometry.grid, strict=True)]
    return {
        "rope_temperature": float(rotary.base),
        "rope_grid_indexing": "xy" if rotary.axes == "column_first" else "ij",
        "rope_rotate_half": rotary.pairing == "halves",
        "rope_grid_offset": float(rotary.offset),
        "ref_feat_shape": [round(side) for side in span],
    }


def _options(registry: Registry, spec: str) -> dict[str, Any]:
    (term,) = registry.parse(spec)
    return registry.with_defaults(term)


def _huggingface_config(source: SourceModel, tensors: Mapping[str, Tensor]) -> tuple[Any, Any]:
    """Returns the class of Hugging Face's model and its configuration, whose sizes of images are set later."""
    if source.origin.library == "Hugging Face":
        return source.origin.kind, copy.deepcopy(source.origin.config)
    model, options = source.model, source.spec.options
    if not isinstance(model, ViT):
        raise InputError(
            f"Hugging Face has no counterpart of vitpos' {type(model).__name__}; use the format 'timm' or 'vitpos'"
        )
    scaled = any(".lambda1" in name for name in tensors)
    block = _options(BLOCKS, options["block"])
    gated = block["mlp"].startswith("swiglu")
    others = "rotate" in model.encoding.hooks or STEMS.parse(options["stem"])[0].name != "plain"
    mlp_exists = scaled if gated else block["mlp"] in ACTIVATION_NAMES.values()
    if others or HEADS.parse(options["head"])[0].name not in HF_HEADS or not mlp_exists:
        raise InputError(
            "vitpos writes configurations of Hugging Face for models from Hugging Face and for the families ViT and "
            "DINOv2, and this model has other parts; use the format 'timm' or 'vitpos'"
        )
    sizes = {
        "hidden_size": model.geometry.dim,
        "num_hidden_layers": model.geometry.depth,
        "num_attention_heads": model.geometry.heads,
        "num_channels": model.channels,
        "num_labels": max(source.spec.num_classes, 1),
        "layer_norm_eps": next(one.eps for one in model.modules() if isinstance(one, nn.LayerNorm)),
        "qkv_bias": block["bias"] == "qkv",
    }
    hidden = int(model.geometry.dim * options["mlp_ratio"])
    from transformers import AutoConfig

    registers = model.geometry.num_prefix - 1
    if not scaled:
        activation = next(name for name, mlp in ACTIVATION_NAMES.items() if mlp == block["mlp"])
        config = AutoConfig.for_model("vit", intermediate_size=hidden, hidden_act=activation, **sizes)
    else:
        name = "dinov2_with_registers" if registers else "dinov2"
        more = {"num_register_tokens": registers} if registers else {}
        ratio = {"mlp_ratio": options["mlp_ratio"], "use_swiglu_ffn": gated}
        config = AutoConfig.for_model(name, **sizes, **more, **ratio)
    classes = {"vit": "ViT", "dinov2": "Dinov2", "dinov2_with_registers": "Dinov2WithRegisters"}
    module = import_module(f"transformers.models.{config.model_type}.modeling_{config.model_type}")
    linear = HEADS.parse(options["head"])[0].name == "linear"
    kind = getattr(module, classes[config.model_type] + ("ForImageClassification" if linear else "Model"))
    return kind, config
