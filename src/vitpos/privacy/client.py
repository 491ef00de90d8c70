"""The client in federated learning that is attacked: computes and shares the gradient of one image at a time.

A defense, such as clipping and noise, may change the gradient before it is shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vitpos.block_masks import block_mask, permute_masked
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.float64 import float64_device
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator, permute_patches
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients, build_defense, compute_gradients
from vitpos.training.loss import loss

Scenario = Literal["plain", "find_shuffled", "find_original"]
Precision = Literal["float64", "float32"]


@dataclass(frozen=True)
class SharedGradient:
    """The gradient of one image that a client shares, with that image, its label and the target of the attack.

    The target is the image with which a reconstruction is compared. It is the image that the client's model gets, except
    in the scenario ``"find_original"``, where the client shuffles patches and the target is the original image.
    ``gradients`` maps parameter names to tensors. ``noise_std`` is the std of the noise that a defense added to them;
    ``pruned`` is True if it set small numbers to zero, ``clipped`` if it may have rescaled them.
    """

    image: Tensor  # (1, C, height, width), normalized image that the client's model gets
    target: Tensor  # (1, C, height, width), normalized image to reconstruct
    label: Tensor  # (1,)
    positions: Positions | None  # positions that the client's model gets; None for those of the grid
    gradients: Gradients
    scenario: Scenario = "plain"
    noise_std: float = 0.0  # of the noise that was added to every number of the gradient
    pruned: bool = False  # whether small numbers were set to zero
    clipped: bool = False  # whether the gradient may have been rescaled

    @property
    def prune_threshold(self) -> float | None:
        """Returns the magnitude up to which an attacker regards an entry of the gradient as pruned; None without pruning.

        It is four times the std of the noise, since noise may be added after pruning.
        """
        return 4 * self.noise_std if self.pruned else None


@dataclass(frozen=True)
class Client:
    """A client of federated learning that shares one gradient for each of the first ``images`` test images.

    The loss is cross-entropy with the true label plus the encoding's penalty; the model is in evaluation mode. Attacks have
    these options, except ``ctx``, beside their own.

    Args:
        ctx: Model, data and training recipe, which gives the default defense.
        images: Number of test images, each of which is attacked separately.
        scenario: Image that the client uses, and the target, as in MJP's Table 5. ``"plain"``: the original image.
            ``"find_shuffled"``: the client shuffles the patches under a mask, and the target is the shuffled image.
            ``"find_original"``: the client shuffles them, and the target is the original image.
        mask_ratio: Maximum fraction of patches that are shuffled.
        hide_masked: Hides the positions of shuffled patches from the client's model: these patches get the encoding's
            vector for unknown positions (MJP) instead. Has no effect on encodings without one.
        precision: Floating-point type of the client's computation.
        defense: Defense applied to the gradient, such as ``clip + noise``; by default that of training.
        seed: Seed of masks, permutations and noise.
    """

    ctx: EvalContext
    images: int = 8
    scenario: Scenario = "plain"
    mask_ratio: float = 0.27
    hide_masked: bool = True
    precision: Precision = "float64"
    defense: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.images < 1:
            raise InputError(f"an attack got images={self.images}; take 1 or more")
        if not 0 <= self.mask_ratio <= 1:
            raise InputError(f"an attack got mask_ratio={self.mask_ratio}; take a fraction from 0 to 1")
        if self.scenario != "plain" and not isinstance(self.ctx.model, PatchClassifier):
            raise InputError(
                f"scenario {self.scenario!r} shuffles patches, which this model does not have; take 'plain'"
            )

    def __len__(self) -> int:
        return min(self.images, len(self.ctx.data.test))

    def shared_gradients(self) -> Iterator[SharedGradient]:
        """Yields one `SharedGradient` per image: the gradient after the defense, the image, and the attack's target."""
        model = to_precision(self.ctx.model, self.precision)
        like = next(model.parameters())
        split = self.ctx.data.test.head(self.images)
        original = self.ctx.data.normalize(split.images[:].to(like.device)).to(like)
        images, mask = (original, None) if self.scenario == "plain" else self._shuffle(original)
        targets = images if self.scenario == "find_shuffled" else original
        defend = build_defense(self.ctx.recipe.defense if self.defense is None else self.defense)
        generator = make_generator(self.seed)
        for i, label in enumerate(split.labels.to(like.device)):
            one = slice(i, i + 1)
            positions = self._hide(images[one], mask[one]) if mask is not None else None
            gradients = client_gradient(model, images[one], label[None], positions)
            known = self.scenario, defend.noise, defend.pruned, defend.clipped
            yield SharedGradient(
                images[one], targets[one], label[None], positions, defend(gradients, generator), *known
            )

    def _shuffle(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Permutes the patches of images (B, C, height, width) under random masks, one per image.

        Returns the images and the masks (B, N), True at permuted patches.
        """
        assert isinstance(self.ctx.model, PatchClassifier)
        grid, generator = self.ctx.model.positions(images).grid, make_generator(self.seed)
        mask = block_mask(grid, self.mask_ratio, batch=len(images), generator=generator)
        order = permute_masked(mask, generator=generator).to(images.device)
        return permute_patches(images, grid, order), mask.to(images.device)

    def _hide(self, images: Tensor, mask: Tensor) -> Positions | None:
        """Returns the positions of the N patches of one image for the client's model; None for those of the grid.

        Positions where ``mask`` (1, N) is True are hidden: the model adds its vector for unknown positions there. The
        result is None if ``hide_masked`` is False or the encoding has no such vector. Of ``images``
        (1, C, height, width), only the size is used.
        """
        assert isinstance(self.ctx.model, PatchClassifier)
        hides = self.hide_masked and self.ctx.model.encoding.unknown_vector() is not None
        return self.ctx.model.positions(images).hide(mask) if hides else None


def to_precision(model: Classifier, precision: Precision = "float64") -> Classifier:
    """Returns a copy of the model in another floating-point type, in evaluation mode; float64 on its `float64_device`."""
    device = float64_device(model.device) if precision == "float64" else model.device
    return deepcopy(model).to(device).to(getattr(torch, precision)).eval()


def client_gradient(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    positions: Positions | None = None,
    *,
    create_graph: bool = False,
    exclude_prefix: str | None = None,
) -> Gradients:
    """Returns the gradient of the loss of a batch for every trainable parameter, as parameter name → tensor.

    Args:
        images: Normalized images (B, C, height, width); clients share gradients of one image.
        labels: Labels (B,).
        positions: Positions of the patches; those of the grid by default.
        create_graph: Builds the graph that second derivatives need.
        exclude_prefix: Leaves out parameters whose names begin with it, such as ``"encoding."``.
    """
    with torch.enable_grad():
        value, _ = loss(model, images, labels, positions)
        return compute_gradients(value, model, create_graph=create_graph, exclude_prefix=exclude_prefix)
