"""What every evaluation and attack is given: a model, its data and recipe, and predictions that are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import Key, Transform, features_and_logits, predict_classes
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import patch_grid
from vitpos.training.recipe import Recipe

Grid = tuple[int, int]  # rows, columns


@dataclass(frozen=True)
class EvalContext:
    """A trained model with everything that an evaluation ``(ctx, **options) -> Result`` may use.

    Predictions on unchanged images are computed once and shared by all evaluations of one context, so that the weights
    of its model must not change; make a new context after they did.

    Args:
        model: the model to evaluate, which predictions put into evaluation mode.
        data: the data set; its test split is evaluated.
        recipe: how the model was trained. A client of an attack shares gradients under the recipe's defense.
        progress: called with the fraction of the evaluation that is done, 0 to 1.
    """

    model: Classifier
    data: Dataset
    recipe: Recipe = field(default_factory=Recipe)
    progress: Callable[[float], None] = lambda fraction: None
    _samples: dict[tuple[int | None, int], EvalContext] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def predict(self, transform: Transform | None = None) -> Tensor:
        """Logits (n, classes) of the test images, each batch passed through ``transform`` first."""
        return self.features_and_logits(transform)[1]

    def features_and_logits(self, transform: Transform | None = None) -> tuple[Tensor, Tensor]:
        """Features (n, D) that the head reads, and logits (n, classes)."""
        return features_and_logits(self.model, self.data, transform) if transform else self._unchanged

    def predict_classes(self, transforms: Mapping[Key, Transform]) -> dict[Key, Tensor]:
        """Predicted classes (n,) under each of several transforms; every image is read once."""
        return predict_classes(self.model, self.data, transforms)

    def sample(self, limit: int | None, *, seed: int = 0) -> EvalContext:
        """The context of ``limit`` test images sampled by a seed; itself if that is all of them.

        It is made once for each limit and seed, so that evaluations of the same sample share its predictions.
        """
        if (limit, seed) not in self._samples:
            data = self.data.sample_test(limit, seed=seed)
            self._samples[limit, seed] = self if data is self.data else replace(self, data=data)
        return self._samples[limit, seed]

    @cached_property
    def _unchanged(self) -> tuple[Tensor, Tensor]:
        return features_and_logits(self.model, self.data)


def require_patches(model: Classifier, evaluation: str) -> PatchClassifier:
    """The model, if it has patches; else a UserError that names the evaluation."""
    if not isinstance(model, PatchClassifier):
        raise UserError(f"evaluation {evaluation!r} is for models with patches; leave it out for this one")
    return model


def grid_for(ctx: EvalContext, grid: Grid | None, evaluation: str) -> tuple[Grid, Grid | None]:
    """The grid to cut the test images by (by default the model's patches), and the grid of the model's patches, if any."""
    height, width = ctx.data.test.images.shape[2:]
    own = patch_grid((height, width), ctx.model.patch) if isinstance(ctx.model, PatchClassifier) else None
    chosen = grid or own
    if chosen is None:
        raise UserError(f"evaluation {evaluation!r} needs grid=(rows, columns) for a model without patches")
    return chosen, own
