"""`SourceModel`: a model that is converted, with its `ModelSpec` and the library that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vitpos.interop.blueprint import Blueprint
from vitpos.interop.model_spec import ModelSpec
from vitpos.interop.names import Names
from vitpos.interop.preprocessing import Preprocessing
from vitpos.interop.pretrained import ModelConfig, image_shape_of
from vitpos.models import MODELS
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.registry.specs import Term


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
        preprocessing: How the original checkpoint preprocesses its images, as far as it states it.
        class_names: Names of the outputs; empty if the original checkpoint states none.
    """

    model: Classifier
    spec: ModelSpec
    origin: Origin = Origin()
    about: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    class_names: tuple[str, ...] = ()

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
