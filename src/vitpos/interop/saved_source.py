"""A folder of `save_pretrained` as a model that `vitpos.convert` can build with other sizes."""

from __future__ import annotations

from pathlib import Path

from vitpos.interop.model_spec import Convertible, ModelSpec, Origin
from vitpos.interop.pretrained import ModelConfig, from_pretrained, image_shape_of
from vitpos.models.base import PatchClassifier


def saved_source(folder: Path) -> Convertible:
    """Returns the model in a folder of `save_pretrained`, and what it is built from."""
    model = from_pretrained(folder)
    stated = ModelConfig.of(model)
    spec = ModelSpec(stated.model, stated.encoding, image_shape_of(model), stated.num_classes)
    if isinstance(model, PatchClassifier) and model.train_grid != model.geometry.grid and "train_grid" in spec.options:
        spec = spec.with_options(train_grid=model.train_grid)
    return Convertible(model, spec, Origin(), {}).with_model(model, spec)
