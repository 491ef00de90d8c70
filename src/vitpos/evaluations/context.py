"""The input of every evaluation and attack: a model, its data and recipe, and predictions that are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.predict import Key, Transform, features_and_logits, predict_classes
from vitpos.evaluations.result import Result
from vitpos.models.base import Classifier, PatchClassifier, require_classes
from vitpos.patches import patch_grid
from vitpos.training.recipe import Recipe

NO_PATCHES = "the model has no patches"  # the reason of evaluations that need some


@dataclass(frozen=True)
class EvalContext:
    """A trained model with its data and recipe, the first argument of every evaluation ``(ctx, **options) -> Result``.

    Predictions on unchanged images are computed once and used by all evaluations of a context. Make a new context after
    the weights of the model have changed.

    Args:
        model: The model to evaluate. Predictions switch it to evaluation mode.
        data: The data set; its test split is evaluated.
        recipe: How the model was trained. Attacks on gradients apply its defense (clipping, noise or pruning) by default.
        progress: Called with the fraction of the evaluation that is done, 0 to 1.
        log: The log of the training, a dictionary per epoch (``epoch``, ``loss``, ``accuracy`` and so on); empty if it is
            not known.
    """

    model: Classifier
    data: Dataset
    recipe: Recipe = field(default_factory=Recipe)
    progress: Callable[[float], None] = lambda fraction: None
    log: Sequence[Mapping[str, float]] = ()
    _samples: dict[tuple[int | None, int], EvalContext] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def evaluate(self, evaluation: str | Callable[..., Result]) -> Result:
        """Runs an evaluation or attack on this context and returns its `Result`.

        Args:
            evaluation: A spec such as ``"jigsaw(per='image')"``, or a function ``ctx -> Result``.
        """
        require_classes(self.model, self.data.classes, self.data.spec)
        result: Result = EVALUATIONS.build(evaluation, self)
        return result

    def predict_logits(self, transform: Transform | None = None) -> Tensor:
        """Returns the logits (n, classes) of the n test images.

        Args:
            transform: Called with each batch of uint8 images and the index of its first image; returns the images and the
                positions that the model gets (None: those of the patch grid). Without it the images are unchanged, and the
                logits are computed only once.
        """
        return self.features_and_logits(transform)[1]

    def features_and_logits(self, transform: Transform | None = None) -> tuple[Tensor, Tensor]:
        """Returns features (n, D), which enter the classification head, and logits (n, classes) of the n test images.

        Args:
            transform: Called with each batch of uint8 images and the index of its first image; returns the images and the
                positions that the model gets (None: those of the patch grid). Without it the images are unchanged, and the
                result is computed only once.
        """
        return features_and_logits(self.model, self.data, transform) if transform else self._unchanged

    def predict_classes(self, transforms: Mapping[Key, Transform]) -> dict[Key, Tensor]:
        """Returns the predicted classes (n,) of the n test images under each transform, as key → classes.

        Every image is loaded once.

        Args:
            transforms: Key → function that is called with each batch of uint8 images and the index of its first image, and
                returns the images and the positions that the model gets (None: those of the patch grid).
        """
        return predict_classes(self.model, self.data, transforms)

    def sample(self, max_images: int | None, *, seed: int = 0) -> EvalContext:
        """Returns a context with ``max_images`` random test images.

        If ``max_images`` is None or at least the number of test images, this context is returned.
        The context is created once per ``max_images`` and ``seed``, so that evaluations of the same sample use the same
        predictions.
        """
        if (max_images, seed) not in self._samples:
            data = self.data.sample_test(max_images, seed=seed)
            self._samples[max_images, seed] = self if data is self.data else replace(self, data=data)
        return self._samples[max_images, seed]

    @cached_property
    def _unchanged(self) -> tuple[Tensor, Tensor]:
        return features_and_logits(self.model, self.data)


def grid_for(ctx: EvalContext, evaluation: str) -> tuple[int, int]:
    """Returns (rows, columns) of the patches into which the model divides a test image.

    Raises InputError if the model has no patches; ``evaluation`` is the name of the evaluation in the message.
    """
    if not isinstance(ctx.model, PatchClassifier):
        raise InputError(f"evaluation {evaluation!r} needs grid=(rows, columns) for a model without patches")
    height, width = ctx.data.test.images.shape[2:]
    return patch_grid((height, width), ctx.model.patch)
