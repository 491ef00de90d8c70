"""The client of an attack: it computes the gradient of one image at a time, applies a defense, and shares the result."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.masks import block_mask, permute_masked
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator, permute_patches
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients, build_defense, compute_gradients
from vitpos.training.loss import loss

Setting = Literal["a", "b", "c"]
Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class Case:
    """One image of a client, its shared gradient, and the target of the attack."""

    inputs: Tensor  # (1, C, height, width), normalized image that the client's model gets
    goal: Tensor  # (1, C, height, width), normalized image to reconstruct
    label: Tensor  # (1,)
    positions: Positions | None  # positions that the client's model gets; None for those of the grid
    gradients: Gradients
    setting: Setting = "a"
    noise: float = 0.0  # std of the noise that was added to every number of the gradient
    pruned: bool = False  # whether small numbers were set to zero
    clipped: bool = False  # whether the gradient may have been rescaled

    @property
    def floor(self) -> float | None:
        """Magnitude up to which a number is taken as pruned, four times the std of the noise; None without pruning."""
        return 4 * self.noise if self.pruned else None


@dataclass(frozen=True)
class Client:
    """A client that shares one gradient for each of the first test images.

    The loss is cross-entropy with the true label plus the encoding's penalty; the model is in evaluation mode.

    Args:
        ctx: Model, data and recipe.
        images: Number of test images.
        setting: As in MJP's Table 5: ``"a"`` shares the gradient of the original image; ``"b"`` shuffles the patches under
            a mask, and the target is the shuffled image; ``"c"`` shuffles them, and the target is the original image.
        ratio: Maximum fraction of masked patches in settings b and c.
        told: Hides the masked positions from the model (mask-aware), if its encoding has an unknown vector.
        precision: Floating-point type of the computation.
        defense: Defense applied to each gradient; by default that of the recipe.
        seed: Seed of masks, permutations and noise.
    """

    ctx: EvalContext
    images: int = 8
    setting: Setting = "a"
    ratio: float = 0.27
    told: bool = True
    precision: Precision = "float64"
    defense: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.images < 1:
            raise InputError(f"an attack got images={self.images}; take 1 or more")
        if not 0 <= self.ratio <= 1:
            raise InputError(f"an attack got ratio={self.ratio}; take a fraction from 0 to 1")
        if self.setting != "a" and not isinstance(self.ctx.model, PatchClassifier):
            raise InputError(f"setting {self.setting!r} shuffles patches, which this model does not have; take 'a'")

    def __len__(self) -> int:
        return min(self.images, len(self.ctx.data.test))

    def cases(self) -> Iterator[Case]:
        """Yields one case per image."""
        model = exact(self.ctx.model, self.precision)
        like = next(model.parameters())
        split = self.ctx.data.test.head(self.images)
        original = self.ctx.data.normalize(split.images[:].to(like.device)).to(like)
        inputs, mask = (original, None) if self.setting == "a" else self._shuffled(original)
        defend = build_defense(self.ctx.recipe.defense if self.defense is None else self.defense)
        generator = make_generator(self.seed)
        for i, label in enumerate(split.labels.to(like.device)):
            one = slice(i, i + 1)
            positions = self._places(inputs[one], mask[one]) if mask is not None else None
            gradients = share(model, inputs[one], label[None], positions)
            goal = inputs if self.setting == "b" else original
            yield Case(
                inputs[one],
                goal[one],
                label[None],
                positions,
                defend(gradients, generator),
                self.setting,
                defend.noise,
                defend.pruned,
                defend.clipped,
            )

    def _shuffled(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns images whose patches are shuffled under random masks, and the masks (B, N)."""
        assert isinstance(self.ctx.model, PatchClassifier)
        grid, generator = self.ctx.model.positions(images).grid, make_generator(self.seed)
        mask = block_mask(grid, self.ratio, batch=len(images), generator=generator)
        return permute_patches(images, grid, permute_masked(mask, generator=generator).to(images.device)), mask.to(
            images.device
        )

    def _places(self, images: Tensor, mask: Tensor) -> Positions | None:
        """Returns positions that are hidden under the mask; None if the model is not mask-aware."""
        assert isinstance(self.ctx.model, PatchClassifier)
        hides = self.told and self.ctx.model.encoding.unknown_vector() is not None
        return self.ctx.model.positions(images).hide(mask) if hides else None


def exact(model: Classifier, precision: Precision = "float64") -> Classifier:
    """Returns a copy of the model with another floating-point type, in evaluation mode."""
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
    """Returns the gradient of the loss of a batch for every trainable parameter, by name.

    Args:
        inputs: Normalized images (B, C, height, width); clients share gradients of one image.
        label: Labels (B,).
        positions: Positions of the patches; those of the grid by default.
        again: Builds the graph that second derivatives need (``create_graph`` of PyTorch).
        but: Leaves out parameters whose names begin with it, such as ``"encoding."``.
    """
    with torch.enable_grad():
        return compute_gradients(
            loss(model, inputs, label, positions)[0], model, create_graph=again, exclude_prefix=but
        )
