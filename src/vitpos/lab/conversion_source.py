"""Reads a model together with what it is built from, so that `vitpos.convert` can build it with other sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from vitpos.data.dataset import load as load_data
from vitpos.errors import InputError
from vitpos.files import read_metadata
from vitpos.interop.attach import is_attached
from vitpos.interop.class_names import config_names
from vitpos.interop.huggingface_mae import plain_vit
from vitpos.interop.load import (
    check_arguments,
    configuration_of,
    find_blueprint,
    from_attached,
    is_hub_name,
    open_module,
    planned_module,
)
from vitpos.interop.model_spec import ModelSpec
from vitpos.interop.preprocessing import stated_preprocessing, stored_preprocessing, timm_preprocessing
from vitpos.interop.pretrained import from_pretrained, is_saved
from vitpos.interop.source_model import Origin, SourceModel, from_blueprint, from_classifier, origin_of
from vitpos.lab.cell_folder import WEIGHTS
from vitpos.lab.cell_models import is_vitpos_output, load_models, read_image_shape, refuse_run
from vitpos.lab.trust import is_trusted, trusts_everything
from vitpos.models.base import Classifier, PatchClassifier

MAX_LAYERS = 1000  # of a model of timm that a file states


def read_source(
    model: str | Path | nn.Module, *, architecture: str | None = None, pretrained: bool = True
) -> SourceModel:
    """Returns a model and what it is built from; `vitpos.load` describes the arguments."""
    if isinstance(model, Classifier):
        return from_classifier(deepcopy(model).cpu())
    if isinstance(model, nn.Module) and is_attached(model):
        return from_classifier(from_attached(model))
    if isinstance(model, nn.Module):
        stated = timm_preprocessing(getattr(model, "pretrained_cfg", None), "the model's pretrained_cfg")
        model = plain_vit(model)
        source = from_blueprint(find_blueprint(model), model)
        names = _class_names(configuration_of(model), source.spec.num_classes)
        return replace(source, preprocessing=stated, class_names=names)
    if not is_hub_name(model):
        path = Path(model)
        refuse_run(path)
        if is_vitpos_output(path):
            return _from_cell(path)
        if is_saved(path):
            return from_classifier(from_pretrained(path, trust=trusts_everything()))
    module, config = open_module(model, architecture=architecture, pretrained=pretrained)
    source = from_blueprint(find_blueprint(module), module)
    names = _class_names(config, source.spec.num_classes)
    return replace(source, preprocessing=stated_preprocessing(str(model), config), class_names=names)


def _class_names(config: Mapping[str, Any], outputs: int) -> tuple[str, ...]:
    """Returns the names of the outputs in a configuration of timm or Hugging Face; () if it does not name all of them."""
    names = config_names(config)
    return names.shown if names is not None and len(names.names) == outputs else ()


def _from_cell(path: Path) -> SourceModel:
    (cell, make), *_ = load_models(path, need_data=False)
    model = make().cpu()
    weights = path if path.is_file() else path / WEIGHTS
    stored = json.loads(read_metadata(weights)["cell"])
    shape = read_image_shape(weights) if "image_shape" in stored else load_data(cell.data).shape
    if isinstance(model, PatchClassifier):
        grid, patch = model.geometry.grid, model.patch
        shape = (model.channels, grid[0] * patch[0], grid[1] * patch[1])
    spec = ModelSpec(cell.model, cell.encoding, shape, len(stored["classes"]))
    if not is_trusted(path):  # what it names must not be imported through the converted file
        stored = {**stored, "plugins": {}}
    source = SourceModel(model, spec, _origin(stored.get("origin"), weights), {"cell": stored, "image_shape": shape})
    preprocessing = stored_preprocessing(stored.get("preprocessing"), weights.name)
    names = tuple(map(str, stored["classes"]))  # untrusted
    named = names != tuple(map(str, range(len(names))))
    return replace(source, preprocessing=preprocessing, class_names=names if named else ()).with_model(model, spec)


def _origin(stored: Any, path: Path) -> Origin:
    """Returns the model of timm that a weights file is from, so that `to_timm` uses its names; else an empty `Origin`."""
    if not isinstance(stored, dict) or not isinstance(stored.get("timm"), str):
        return Origin()
    with suppress(InputError):  # timm is not installed, or does not know the model
        arguments = check_arguments(stored.get("model_args"), MAX_LAYERS, path)
        module = planned_module(stored["timm"], arguments)
        return origin_of(find_blueprint(module), module)
    return Origin()
