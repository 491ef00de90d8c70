"""Loads a model of timm or Hugging Face as a vitpos ViT, Swin or ResNet that computes the same outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitpos.encodings.base import PositionEncoding, SumEncoding
from vitpos.errors import InputError
from vitpos.interop.architecture import find_trunk
from vitpos.interop.attach import detach, find_attachment, is_attached
from vitpos.interop.blueprint import Blueprint, NotRebuilt
from vitpos.interop.hub_access import hub_access
from vitpos.interop.huggingface_blueprint import huggingface_blueprint
from vitpos.interop.huggingface_folder import (
    REPORTED,
    check_loading_report,
    factory_of,
    open_folder,
    random_model,
    refuse_code,
    without_messages,
)
from vitpos.interop.huggingface_mae import plain_vit
from vitpos.interop.tensor_files import CheckpointContents, read_contents
from vitpos.interop.timm_blueprint import timm_blueprint
from vitpos.models.base import Classifier, EncodingLike
from vitpos.models.image_limits import check_image_size
from vitpos.models.model_limits import ModelLimit
from vitpos.printable import one_line, sanitize

LOADABLE = (
    "timm's VisionTransformer, Eva, SwinTransformer and ResNet, Hugging Face's ViT, DeiT, DINOv2, DINOv3, the encoder "
    "of MAE, and the image towers of CLIP and SigLIP"
)

TEXTS = ("global_pool", "pos_embed", "attn_type", "rope_grid_indexing")
MODEL_ARGUMENTS = (  # of ``timm.create_model`` that a file may state
    *("img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "embed_dims", "depth", "depths", "num_heads"),
    *("mlp_ratio", "window_size", "class_token", "init_values", "qkv_bias", "qk_norm", "no_embed_class", "block_size"),
    *("use_abs_pos_emb", "use_rot_pos_emb", "num_reg_tokens", "reg_tokens", "rope_theta", "rope_temperature"),
    *("pre_norm", "final_norm", "fc_norm", "qkv_fused", "swiglu_mlp", "scale_mlp", "use_fc_norm", *TEXTS),
    *("rope_rotate_half", "rope_grid_offset", "ref_feat_shape"),
)
TIMM_ACTIVATIONS = (
    "gelu",
    "gelu_tanh",
    "quick_gelu",
)  # that a file may state as ``act_layer``; the first is the default
IGNORED = (  # arguments without effect on a model in evaluation mode at its own size
    *("dynamic_img_size", "dynamic_img_pad", "strict_img_size", "weight_init", "fix_init", "head_init_scale"),
    *("drop_rate", "drop_path_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate"),
)
MAX_ARGUMENT, MAX_STAGES = 1 << 20, 64


def is_hub_name(source: str | Path | nn.Module) -> bool:
    """Whether a model is given by its name in timm or on Hugging Face: ``timm:NAME`` or ``hf:NAME``."""
    return not isinstance(source, nn.Module) and str(source).startswith(("timm:", "hf:"))


def load_foreign(
    model: str | Path | nn.Module,
    *,
    encoding: EncodingLike | None = None,
    pretrained: bool = True,
    architecture: str | None = None,
) -> Classifier:
    """Returns a vitpos model that computes the outputs of ``model``; `vitpos.load` describes the arguments."""
    if not isinstance(model, nn.Module):
        model, _ = open_module(model, pretrained=pretrained, architecture=architecture)
    return from_module(model, encoding=encoding)


def open_module(
    source: str | Path, *, pretrained: bool = True, architecture: str | None = None
) -> tuple[nn.Module, Mapping[str, Any]]:
    """Returns the model (``nn.Module``) of timm or Hugging Face, and the configuration that states how it was trained.

    The configuration of a file is that beside it; it is empty for a file alone.
    """
    text = str(source)
    if text in ("timm:", "hf:"):
        raise InputError(f"{text} has no name; add one, such as timm:vit_small_patch16_224 or hf:facebook/dinov2-small")
    if text.startswith("timm:"):
        module = _timm(text.removeprefix("timm:"), pretrained=pretrained)
        return module, configuration_of(module)
    if text.startswith("hf:"):
        folder = Path(text.removeprefix("hf:"))
        if folder.is_dir():
            return _file(folder, None) if pretrained else _huggingface_folder(folder, None)
        module = _huggingface(text.removeprefix("hf:"), pretrained=pretrained)
        return module, configuration_of(module)
    return _file(Path(text), architecture)


def configuration_of(module: nn.Module) -> Mapping[str, Any]:
    """Returns the configuration that a model carries: timm's ``pretrained_cfg``, or the ``config`` of Hugging Face."""
    config: Any = getattr(module, "config", None)
    if hasattr(config, "to_dict"):
        return cast(Mapping[str, Any], config.to_dict())
    return {"pretrained_cfg": dict(getattr(module, "pretrained_cfg", None) or {})}


def from_module(module: nn.Module, *, encoding: EncodingLike | None = None) -> Classifier:
    """Returns a vitpos model that computes the outputs of ``module``, from copies of its weights."""
    if encoding is None and is_attached(module):
        return from_attached(module)
    return find_blueprint(plain_vit(detached(module))).build(encoding)


def detached(module: nn.Module) -> nn.Module:
    """Returns a model without attached encoding: itself, or a copy."""
    return detach(deepcopy(module)) if is_attached(module) else module


def from_attached(module: nn.Module) -> Classifier:
    """Returns a vitpos model that computes the outputs of ``module`` and contains a copy of its attached encoding."""
    attachment = find_attachment(module)
    blueprint, encoding = find_blueprint(detached(module)), deepcopy(attachment.encoding)
    if attachment.combined_encoding is attachment.encoding:  # without positions of the model's own
        return blueprint.build(encoding, spec=attachment.spec)
    own = blueprint.build().encoding
    assert isinstance(own, PositionEncoding)  # there are own positions, so that it is a ViT
    both = SumEncoding([own, encoding])
    spec = None if attachment.spec is None else f"{blueprint.encoding} + {attachment.spec}"
    return blueprint.build(both, spec=spec)


def find_blueprint(module: nn.Module) -> Blueprint:
    """Returns the `Blueprint` of a model of timm or Hugging Face; raises an InputError if it is of another kind."""
    for blueprint in (timm_blueprint, huggingface_blueprint):
        if (found := blueprint(module)) is not None:
            return found
    cause = f"vitpos.load does not know this {type(module).__name__}"
    raise NotRebuilt(
        f"{cause} (known: {LOADABLE}); vitpos.attach works with other Vision Transformers by an adapter", cause
    )


def _timm(name: str, **options: Any) -> nn.Module:
    try:
        import timm
    except ImportError:
        raise InputError("models of timm need the package; pip install timm") from None
    except RuntimeError as error:  # from a torchvision for another torch
        raise InputError(f"timm cannot be imported ({sanitize(error)}); repair that installation") from None
    if name.split(".")[0] not in timm.list_models():
        raise InputError(f"timm has no model {sanitize(name)!r}; timm.list_models('*vit*') lists them")
    from_hub = options.get("pretrained", False)
    return _in_one_line(f"timm:{name}", lambda: timm.create_model(name, **options), from_hub=from_hub)


def _huggingface(name: str, *, pretrained: bool = True) -> nn.Module:
    """Returns a model of Hugging Face's hub; no code of its repository is run."""
    transformers = _transformers()

    def make() -> nn.Module:
        values, _ = transformers.PreTrainedConfig.get_config_dict(name)
        refuse_code(values, f"hf:{sanitize(name)}")
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        if not pretrained:
            return random_model(config)
        with without_messages():
            model, report = factory_of(config).from_pretrained(name, trust_remote_code=False, **REPORTED)
        return check_loading_report(model, report, f"hf:{sanitize(name)}")

    return _in_one_line(f"hf:{name}", make, from_hub=True)


def _huggingface_folder(path: Path, tensors: Mapping[str, Tensor] | None) -> tuple[nn.Module, Mapping[str, Any]]:
    _transformers()
    module = _in_one_line(str(path), lambda: open_folder(path, tensors))
    return module, configuration_of(module)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError("models of Hugging Face need the package; pip install transformers") from None
    return transformers


def _in_one_line(what: str, make: Callable[[], nn.Module], *, from_hub: bool = False) -> nn.Module:
    """Returns ``make()``; any exception of another library becomes an InputError of one line."""
    try:
        with hub_access(what) if from_hub else nullcontext():
            return make()
    except InputError:
        raise
    except Exception as error:  # of a hub, a file or a model: any type
        raise InputError(
            f"{sanitize(what)} was not loaded ({one_line(error)}); "
            "check the name, the network and your access, or give a local folder"
        ) from None


def _file(path: Path, architecture: str | None) -> tuple[nn.Module, Mapping[str, Any]]:
    """Returns the model (``nn.Module``) of a checkpoint, and its configuration.

    The checkpoint is a folder of Hugging Face or timm, or a file and its ``architecture``. The model may not be larger than
    the stored tensors.
    """
    contents = read_contents(path)
    given = architecture or contents.config.get("architecture")
    with ModelLimit(contents.tensors, f"{path}: the model {sanitize(given or 'of its configuration')}"):
        if isinstance(given, str):
            return _with_weights(given.removeprefix("timm:"), contents, named=architecture is not None)
        if path.is_dir() and isinstance(contents.config.get("model_type"), str):
            return _huggingface_folder(path, contents.tensors)
    raise InputError(
        f"{path} does not state its architecture; add its architecture, such as vit_base_patch16_224 (a name of timm), "
        "or build the model, load the file, and pass the model"
    )


def _with_weights(name: str, contents: CheckpointContents, *, named: bool) -> tuple[nn.Module, Mapping[str, Any]]:
    """Returns the timm model ``name`` with the weights that were read from a file, and its configuration.

    Args:
        named: Whether the user gave the name. A name with a tag, such as ``vit_base_patch16_224.mae``, then also gives the
            configuration, unless the checkpoint has one.
    """
    trunk = find_trunk(contents.tensors, contents.config)
    state = contents.tensors if trunk is None else trunk.tensors
    classes = next((len(state[key]) for key in ("head.weight", "head.fc.weight", "fc.weight") if key in state), 0)
    projection = state.get("patch_embed.proj.weight")
    options: dict[str, Any] = {"num_classes": classes}
    if projection is not None and projection.ndim == 4:
        options["in_chans"] = projection.shape[1]
    if not named or name.split(".")[0] == contents.config.get("architecture"):
        options |= _model_arguments(contents)
    planned = planned_module(name, options)  # nothing is allocated before the sizes are compared
    if hasattr(planned, "patch_embed") and hasattr(planned.patch_embed, "img_size"):
        embed: Any = planned.patch_embed
        depth = len(getattr(planned, "blocks", ())) or 1
        channels = options.get("in_chans", 3)
        check_image_size(str(contents.path), embed.img_size, channels=channels, patch=embed.patch_size, depth=depth)
    wanted = {key: tuple(tensor.shape) for key, tensor in planned.state_dict().items()}
    found = {key: tuple(tensor.shape) for key, tensor in state.items()}
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            sizes = f"{sanitize(key)!r} is {found.get(key, 'missing')} and should be {wanted.get(key, 'missing')}"
            raise InputError(f"{contents.path}: {sizes}; give the architecture that it was trained with, not {name!r}")
    module = _timm(name, pretrained=False, **options)
    module.load_state_dict(dict(state))
    config = dict(contents.config)
    if named and "." in name:
        config.setdefault("pretrained_cfg", dict(getattr(module, "pretrained_cfg", None) or {}))
    return module, config


def _model_arguments(contents: CheckpointContents) -> dict[str, Any]:
    """Returns the arguments of ``timm.create_model`` that a file states in ``model_args``: sizes and known options."""
    given = contents.config.get("model_args", {})
    if isinstance(given, str):
        with suppress(ValueError, RecursionError):
            given = json.loads(given)
    return check_arguments(given, len(contents.tensors), contents.path)


def check_arguments(given: object, layers: int, path: Path) -> dict[str, Any]:
    """Returns the arguments of ``timm.create_model`` in a file; raises an InputError for any that are not known sizes.

    Args:
        given: What the file states; {} is returned if it is not a dictionary.
        layers: Maximum number of blocks.
        path: The file, for the message.
    """
    if not isinstance(given, dict):
        return {}
    given = {key: value for key, value in given.items() if key not in IGNORED}
    for key, value in given.items():
        numbers = value if isinstance(value, list) else [value]
        largest = layers if key in ("depth", "depths") else MAX_ARGUMENT
        plain = all(type(one) in (int, float, bool, type(None)) and -1 <= (one or 0) <= largest for one in numbers)
        known = key in MODEL_ARGUMENTS and (plain or (key in TEXTS and type(value) is str))
        known = known or (key == "act_layer" and value in TIMM_ACTIVATIONS)
        if not known or len(numbers) > MAX_STAGES:
            raise InputError(
                f"{path}: its configuration has the argument {sanitize(key)}={sanitize(value, limit=40)}, "
                "which vitpos.load does not use; build the model, load the file, and pass the model"
            )
    return given


def planned_module(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Returns the timm model ``name`` without memory for its weights."""
    with torch.device("meta"):
        return _timm(name, pretrained=False, **arguments)
