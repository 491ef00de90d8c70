"""Reads a model together with what it is built from, so that `vitpos.convert` can build it with other sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from vitpos.data import DATASETS
from vitpos.data.dataset import load as load_data
from vitpos.errors import InputError
from vitpos.files import read_metadata
from vitpos.interop.attach import is_attached
from vitpos.interop.library_export import timm_arguments
from vitpos.interop.load import check_arguments, find_blueprint, from_attached, open_module, planned_module
from vitpos.interop.model_spec import ModelSpec, Origin, SourceModel, from_blueprint, from_classifier, origin_of
from vitpos.interop.preprocessing import stated_preprocessing, timm_preprocessing
from vitpos.interop.pretrained import from_pretrained, is_saved
from vitpos.lab.cell_folder import WEIGHTS
from vitpos.lab.cell_models import load_models, read_image_shape
from vitpos.lab.cells import Cell
from vitpos.lab.format_version import FORMAT_VERSION
from vitpos.lab.load import is_ours
from vitpos.lab.trust import is_trusted
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.registry.specs import Term
from vitpos.training.recipe import Recipe

RESIZE_VIEW = "resize"
MAX_LAYERS = 1000  # of a model of timm that a file states


def read_source(
    what: str | Path | nn.Module, *, architecture: str | None = None, pretrained: bool = True
) -> SourceModel:
    """Returns a model and what it is built from; `vitpos.load` describes the arguments."""
    if isinstance(what, Classifier):
        return from_classifier(deepcopy(what).cpu())
    if not isinstance(what, nn.Module) and not str(what).startswith(("timm:", "hf:")):
        path = Path(what)
        if (path / "experiment.json").exists() and not (path / "cell.json").exists():
            raise InputError(f"{path} is a run; give one of its cells, as {path}/cells/…")
        if is_ours(path):
            return _from_cell(path)
        if is_saved(path):
            return from_classifier(from_pretrained(path))
    if isinstance(what, nn.Module) and is_attached(what):
        return from_classifier(from_attached(what))
    if isinstance(what, nn.Module):
        stated = timm_preprocessing(getattr(what, "pretrained_cfg", None), "the model's pretrained_cfg")
        return replace(from_blueprint(find_blueprint(what), what), preprocessing=stated)
    module, config = open_module(what, architecture=architecture, pretrained=pretrained)
    source = from_blueprint(find_blueprint(module), module)
    return replace(source, preprocessing=stated_preprocessing(str(what), config))


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
    return source.with_model(model, spec)


def _origin(stored: Any, path: Path) -> Origin:
    """Returns the model of timm that a weights file is from, so that `to_timm` uses its names; else an empty `Origin`."""
    if not isinstance(stored, dict) or not isinstance(stored.get("timm"), str):
        return Origin()
    with suppress(InputError):  # timm is not installed, or does not know the model
        arguments = check_arguments(stored.get("model_args"), MAX_LAYERS, path)
        module = planned_module(stored["timm"], arguments)
        return origin_of(find_blueprint(module), module)
    return Origin()


def cell_of(source: SourceModel) -> dict[str, Any]:
    """Returns the settings that a weights file of a converted model states, so that `vitpos.load` builds it again.

    The data are those of the original training, resized if the images have another size now; empty if they are unknown.
    """
    stored: Mapping[str, Any] = source.about.get("cell", {})
    spec = source.spec
    count = spec.num_classes
    classes = list(stored.get("classes", ())) or [str(number) for number in range(count)]
    data = str(stored.get("data", ""))
    if data and source.about["image_shape"] != spec.image_shape:
        data = resized_data(data, spec.image_shape)
    cell = asdict(Cell(data, spec.model, spec.encoding, int(stored.get("seed", 0)), Recipe(), ()))
    origin = {}
    if source.origin.architecture:
        origin = {"origin": {"timm": source.origin.architecture, "model_args": timm_arguments(source)}}
    kept = {key: stored[key] for key in ("train", "evaluations", "plugins", "varied") if key in stored}
    return {
        "format_version": FORMAT_VERSION,
        **cell,
        **kept,
        **origin,
        "classes": classes,
        "image_shape": spec.image_shape,
        "plugins": stored.get("plugins", {}),
    }


def resized_data(data: str, shape: Shape) -> str:
    """Returns the spec of a data set whose images have the height and width of ``shape``.

    Images of files are decoded at this size; others are resized by the view ``resize``.
    """
    terms = DATASETS.parse(data)
    size = (shape[1], shape[2])
    if {"path", "size"} <= set(DATASETS.describe(terms[0].name).options):
        terms = [Term(terms[0].name, terms[0].options | {"size": size}), *terms[1:]]
        return " + ".join(map(str, terms))
    while terms[-1].name == RESIZE_VIEW:
        terms = terms[:-1]
    return " + ".join(map(str, [*terms, Term(RESIZE_VIEW, {"size": size})]))
