"""Whoever shares a gradient: a model, one picture at a time, and what is done to the gradient before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.masks import block_mask, permute_masked
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator, permute_patches
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients, build_defense, compute_gradients

Setting = Literal["a", "b", "c"]
Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class Case:
    """One picture of a client, what an attack is to find, and all that the client gives away: a gradient."""

    inputs: Tensor  # (1, C, height, width): what the model was given
    goal: Tensor  # (1, C, height, width): what is to be found
    label: Tensor  # (1,)
    positions: Positions | None  # None: every patch at its own place
    gradients: Gradients
    setting: Setting = "a"
    noise: float = 0.0  # deviation of what was added to every number of it
    pruned: bool = False  # whether numbers were left out
    clipped: bool = False  # whether it may have been scaled

    @property
    def floor(self) -> float | None:
        """The size up to which a number is one that was left out, with its noise if there is any; None: none was."""
        return 4 * self.noise if self.pruned else None


@dataclass(frozen=True)
class Client:
    """A model and the first test pictures, each of which is shared as a gradient of its own.

    ``setting`` is that of MJP's Table 5. a: the picture as it is. b: patches under a mask of ``ratio`` are shuffled, and
    the shuffled picture is to be found. c: the same, and the picture as it was is to be found. ``told``: the model is told
    that places under the mask are unknown, if it has a vector for that. The loss is cross-entropy with the true label, plus
    the encoding's penalty; the model is in evaluation mode. ``defense`` is done to the gradient before it is shared; if
    none is named, what was done in training.
    """

    model: Classifier
    data: Dataset
    images: int = 8
    setting: Setting = "a"
    ratio: float = 0.27
    told: bool = True
    precision: Precision = "float64"
    defense: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.images < 1:
            raise UserError(f"an attack got images={self.images}; take 1 or more")
        if not 0 <= self.ratio <= 1:
            raise UserError(f"an attack got ratio={self.ratio}; take a share from 0 to 1")
        if self.setting != "a" and not isinstance(self.model, PatchClassifier):
            raise UserError(f"setting {self.setting!r} shuffles patches, which this model does not have; take 'a'")

    def cases(self) -> Iterator[Case]:
        """The pictures one after the other."""
        model = exact(self.model, self.precision)
        like = next(model.parameters())
        few = self.data.test.head(self.images)
        pictures = few.images[:].to(like.device)
        whole = self.data.normalize(pictures).to(like)
        seen, mask = (whole, None) if self.setting == "a" else self._shuffled(whole)
        defend = build_defense(self.model.defense if self.defense is None else self.defense)
        generator = make_generator(self.seed)
        for i, label in enumerate(few.labels.to(like.device)):
            one = slice(i, i + 1)
            places = self._places(seen[one], mask[one]) if mask is not None else None
            gradients = share(model, seen[one], label[None], places)
            goal = seen if self.setting == "b" else whole
            yield Case(
                seen[one],
                goal[one],
                label[None],
                places,
                defend(gradients, generator),
                self.setting,
                defend.noise,
                defend.pruned,
                defend.clipped,
            )

    def _shuffled(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The pictures with patches under a mask (B, N) shuffled; both depend on the seed alone."""
        assert isinstance(self.model, PatchClassifier)
        grid, generator = self.model.positions(images).grid, make_generator(self.seed)
        mask = block_mask(grid, self.ratio, batch=len(images), generator=generator)
        return permute_patches(images, grid, permute_masked(mask, generator=generator).to(images.device)), mask.to(
            images.device
        )

    def _places(self, images: Tensor, mask: Tensor) -> Positions | None:
        assert isinstance(self.model, PatchClassifier)
        return self.model.positions(images).hide(mask) if self.told and self.model.encoding.can_be_told else None


def exact(model: Classifier, precision: Precision = "float64") -> Classifier:
    """A copy that computes in another precision, in evaluation mode."""
    return deepcopy(model).to(getattr(torch, precision)).eval()


def share(
    model: Classifier,
    inputs: Tensor,
    label: Tensor,
    positions: Positions | None = None,
    *,
    again: bool = False,
    but: str | None = None,
) -> Gradients:
    """The gradient of the loss of one picture, as :func:`~vitpos.training.defenses.gradients_of` has it."""
    with torch.enable_grad():
        logits, penalty = model.step(inputs, positions)
        return compute_gradients(
            F.cross_entropy(logits, label) + penalty, model, create_graph=again, exclude_prefix=but
        )
