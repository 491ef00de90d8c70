"""`ModelSpec`: the specs from which a model is built, and `SourceModel`: a model with its `ModelSpec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.interop.blueprint import Blueprint
from vitpos.interop.names import Names
from vitpos.interop.preprocessing import Preprocessing
from vitpos.interop.pretrained import ModelConfig, image_shape_of
from vitpos.models import MODELS
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.registry.specs import Term


@dataclass(frozen=True)
class ModelSpec:
    """What a model is built from.

    Args:
        model: Spec of the model, such as ``vit(patch=16)``.
        encoding: Spec of its position encoding.
        image_shape: Channels, height and width of the images.
        num_classes: Number of logits; 0 for features.
    """

    model: str
    encoding: str
    image_shape: Shape
    num_classes: int

    @property
    def term(self) -> Term:
        """Returns the name and the given options of the model."""
        (term,) = MODELS.parse(self.model)
        return term

    @property
    def options(self) -> dict[str, Any]:
        """Returns all options of the model, those that are not given with their defaults."""
        return MODELS.with_defaults(self.term)

    def with_options(self, **options: Any) -> ModelSpec:
        """Returns a copy with other options of the model; an option that is None is left out."""
        given = self.term.options | options
        term = Term(self.term.name, {key: value for key, value in given.items() if value is not None})
        return replace(self, model=str(term))

    def build(self) -> Classifier:
        """Returns a new model; the global random state does not change."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model: Classifier = MODELS.build(self.model, self.image_shape, self.num_classes, self.encoding)
        return model


@dataclass(frozen=True)
class Origin:
    """The library that a model comes from.

    Args:
        library: ``timm``, ``Hugging Face``, or empty for a model that is not from a library.
        architecture: Name of the model in timm.
        kind: Class of the model, for Hugging Face.
        config: Configuration of the model, for Hugging Face.
        names: Returns the library's names of the weights of the vitpos model.
    """

    library: str = ""
    architecture: str = ""
    kind: Any = None
    config: Any = None
    names: Callable[[Any], Names | None] = lambda model: None


@dataclass(frozen=True)
class SourceModel:
    """A vitpos model in evaluation mode, what it is built from, and where it comes from: the input of a conversion.

    Args:
        model: The model.
        spec: What it is built from.
        origin: The library that it comes from.
        about: What the weights file of a training states: ``cell``, its settings, and ``image_shape``; empty otherwise.
        preprocessing: How the images of the original checkpoint are normalized, if it states it.
    """

    model: Classifier
    spec: ModelSpec
    origin: Origin = Origin()
    about: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def with_model(self, model: Classifier, spec: ModelSpec) -> SourceModel:
        """Returns a copy with another model, which gets the names of weights of the library."""
        model = model.to(next(self.model.parameters()).dtype).eval()
        model._weight_names = self.origin.names(model)
        return replace(self, model=model, spec=spec)


def from_blueprint(blueprint: Blueprint, module: Any) -> SourceModel:
    """Builds the vitpos model that ``blueprint`` describes; returns it with its specs and source library.

    Args:
        blueprint: Describes the model.
        module: The model of the library.
    """
    name = next(name for name in MODELS if MODELS.load(name) is blueprint.model)
    (term,) = MODELS.parse(
        str(Term(name, {key: value for key, value in blueprint.options.items() if value is not None}))
    )
    spec = ModelSpec(str(term), blueprint.encoding, blueprint.image_shape, blueprint.num_classes)
    origin = replace(origin_of(blueprint, module), kind=type(module), config=getattr(module, "config", None))
    return SourceModel(blueprint.build(), spec, origin)


def from_classifier(model: Classifier) -> SourceModel:
    """Returns a `SourceModel` of a vitpos model, with the specs that it was built from; the model is not copied.

    Raises an InputError if the model was built from objects instead of specs.
    """
    stated = ModelConfig.of(model)
    spec = ModelSpec(stated.model, stated.encoding, image_shape_of(model), stated.num_classes)
    if isinstance(model, PatchClassifier) and model.train_grid != model.geometry.grid and "train_grid" in spec.options:
        spec = spec.with_options(train_grid=model.train_grid)
    return SourceModel(model, spec).with_model(model, spec)


def origin_of(blueprint: Blueprint, module: Any) -> Origin:
    """Returns the library of a model, its names of weights, and, for a model of timm, its architecture."""
    cfg = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
    architecture = str(cfg.get("architecture", "")) if isinstance(cfg, Mapping) and blueprint.library == "timm" else ""
    return Origin(blueprint.library, architecture, names=blueprint.names)


def encoding_terms(spec: str) -> list[Term]:
    """Returns the terms of the spec of an encoding; raises an InputError if it is not valid."""
    try:
        return ENCODINGS.parse(spec)
    except InputError as error:
        raise InputError(f"encoding {spec!r}: {error}") from None
