"""Opens an untrusted folder of Hugging Face: only known model types, without its code, quantization and lookups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.interop.huggingface_mae import MAE, plain_vit
from vitpos.interop.tensor_files import CONFIG, read_json_object
from vitpos.models.image_limits import check_image_size
from vitpos.printable import sanitize

MODEL_TYPES = (  # that `huggingface_blueprint` rebuilds or `vitpos.attach` serves
    *("vit", "vit_mae", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit"),
    *("clip", "clip_vision_model", "siglip", "siglip_vision_model"),
)
REFUSED = {  # entry of config.json → what transformers would do with it
    "auto_map": "names Python code",
    "quantization_config": "has quantized weights",
}
ADAPTER = "adapter_config.json"
OLD_ENTRIES = ("num_labels", "torch_dtype")  # not among the entries that a configuration writes today
IGNORED_ENTRIES = ("_name_or_path",)  # the name of another model
REPORTED = {"output_loading_info": True, "ignore_mismatched_sizes": True}  # for `check_loading_report`
WITH_CLASSES = ("ForImageClassification", "ForImageClassificationWithTeacher")


def open_folder(folder: Path, tensors: Mapping[str, Tensor] | None) -> nn.Module:
    """Returns the model that a folder of Hugging Face describes, without network access and without code of the folder.

    Args:
        folder: The folder, with ``config.json``.
        tensors: The weights that were read from it; None for random weights.
    """
    with without_messages():
        config = read_config(folder)
        if tensors is None:
            return random_model(config)
        with torch.device("meta"):
            kind: Any = type(random_model(config))
        # the name None: nothing is looked up, in the folder or elsewhere
        model, report = kind.from_pretrained(
            None, config=config, state_dict=dict(tensors), local_files_only=True, **REPORTED
        )
    return check_loading_report(model, report, str(folder))


def read_config(folder: Path) -> Any:
    """Returns the configuration in a folder of Hugging Face, with the entries that its class has, and no others."""
    from transformers import CONFIG_MAPPING

    values = read_json_object(folder / CONFIG)
    refuse_code(values, str(folder))
    if (folder / ADAPTER).exists():
        raise InputError(f"{folder} has an {ADAPTER}, which names another model; merge the adapter into its weights")
    kind = values.get("model_type")
    if kind not in MODEL_TYPES:
        raise InputError(
            f"{folder} is of the type {sanitize(kind)!r}; a folder may have the types {', '.join(MODEL_TYPES)}; "
            "build another model with transformers yourself and pass it"
        )
    default = CONFIG_MAPPING[kind]()
    config = type(default).from_dict(_known(values, default.to_dict()))
    vision = getattr(config, "vision_config", config)
    check_image_size(
        str(folder),
        vision.image_size,
        channels=vision.num_channels,
        patch=vision.patch_size,
        depth=vision.num_hidden_layers,
    )
    return config


def refuse_code(values: Mapping[str, Any], what: str) -> None:
    """Raises an InputError if a ``config.json``, or a part of it, names code or quantized weights.

    ``what`` is the folder or the name of the model, for the message.
    """
    for part in (values, *(one for one in values.values() if isinstance(one, dict))):
        for name, effect in REFUSED.items():
            if part.get(name):
                raise InputError(
                    f"{what} {effect} ({name} in its {CONFIG}), which vitpos does not use; "
                    "build the model with transformers yourself and pass it"
                )


def factory_of(config: Any) -> Any:
    """Returns the class of transformers that builds the model of a configuration, with or without its classifier."""
    import transformers

    if "CLIPVisionModelWithProjection" in (config.architectures or ()):  # which the automatic classes do not return
        return transformers.CLIPVisionModelWithProjection
    classifies = any(str(one).endswith(WITH_CLASSES) for one in config.architectures or ())
    return transformers.AutoModelForImageClassification if classifies else transformers.AutoModel


def random_model(config: Any) -> nn.Module:
    """Returns the model of a configuration with random weights."""
    factory = factory_of(config)
    automatic = hasattr(factory, "from_config")
    return cast(nn.Module, factory.from_config(config, trust_remote_code=False) if automatic else factory(config))


def check_loading_report(model: Any, report: Mapping[str, Any], what: str) -> nn.Module:
    """Returns a model of transformers; raises an InputError if weights of its file are missing, left over or misshapen.

    A pooler that the file does not have is removed. Of an MAE only the encoder is returned, as a plain ViT.

    Args:
        model: The model.
        report: The loading report that ``from_pretrained`` returned with the options `REPORTED`.
        what: The folder or the name of the model, for the message.
    """
    missing = sorted(map(str, report["missing_keys"]))
    if missing and all(name.startswith("pooler.") for name in missing):
        model.pooler, missing = None, []
    unexpected = sorted(str(one) for one in report["unexpected_keys"] if not str(one).endswith("position_ids"))
    if type(model).__name__ == MAE:
        unexpected = [name for name in unexpected if not name.startswith("decoder.")]
    mismatched = sorted(str(name) for name, *_ in report["mismatched_keys"])
    kind = f"a {type(model).__name__}"
    for names, problem in (
        (mismatched, f"weights of other shapes than {kind} of its configuration"),
        (missing, f"not all weights of {kind}"),
        (unexpected, f"weights that {kind} has not"),
    ):
        if names:
            raise InputError(
                f"{what} has {problem}, such as {sanitize(names[0])} ({len(names)} in all); give a complete checkpoint"
            )
    return plain_vit(model)


def _known(values: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries of ``values`` that ``default``, the configuration of a new model, has too; also in its parts."""
    known: dict[str, Any] = {}
    for name, value in values.items():
        nested = default.get(name)
        if name in IGNORED_ENTRIES or (name not in default and name not in OLD_ENTRIES):
            continue
        if isinstance(nested, dict) and "model_type" in nested:
            value = _known(value if isinstance(value, dict) else {}, nested)
        known[name] = value
    return known


@contextmanager
def without_messages() -> Iterator[None]:
    """Context manager in which transformers prints neither its report of loaded weights nor progress bars."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
