"""`ModelSpec`: the specs and sizes from which a model is built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.models import MODELS
from vitpos.models.base import Classifier, Shape
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

    def with_options(self, **options: Any) -> Self:
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


def encoding_terms(spec: str) -> list[Term]:
    """Returns the terms of the spec of an encoding; raises an InputError if it is not valid."""
    try:
        return ENCODINGS.parse(spec)
    except InputError as error:
        raise InputError(f"encoding {spec!r}: {error}") from None
