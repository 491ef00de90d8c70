"""Pictures of which some patches are shuffled: does the model still answer as before?"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import respond, share
from vitpos.masks import block_mask, permute_masked, upsample_mask
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator, permute_patches, permute_pixels, seeded_permutation, upsample_order
from vitpos.positions import Positions


def shuffle(
    model: Classifier,
    data: Dataset,
    *,
    ratio: float = 0.15,
    grid: tuple[int, int] | None = None,
    positions: Literal["stay", "follow", "told"] = "stay",
    pixels: bool = False,
    exact: bool = False,
    seed: int = 0,
) -> dict[str, float]:
    """How a model takes test images of which the patches under a block-wise mask are shuffled (MJP, eq. 6 and 7).

    accuracy: share of the shuffled test images, 0 to 1, whose largest logit is their label's.
    consistency: share answered as the whole picture is. consistent_and_right: answered so, and rightly.
    divergence: mean over images of Σ p ln(p / q) over the classes, in nats, where p and q are the softmax probabilities
    of the whole and of the shuffled picture.
    difference: mean over images of the squared distance between what the head reads of the shuffled and of the whole
    picture, as the paper writes it; difference_unsquared: of the distance, as its code computes it;
    difference_relative: of the distance over the length of what it reads of the whole picture.
    shuffled: share of the patches that lie under a mask.
    Each image has a mask of its own that covers at most ``ratio`` of the cells of ``grid`` (without it, the model's
    patches), or so many to the cell if ``exact``, and a permutation of its own; both depend on ``seed`` alone, so that
    all models see the same.
    ``positions``: patches take those of their slots (``stay``), bring their own (``follow``), or the model is ``told``
    that the places under the mask are unknown. A model without an unknown vector (``mjp``) cannot be told, and one without
    tokens has no positions that could follow: no numbers.
    ``pixels`` also moves the pixels inside all cells, by one permutation for all: MJP's SPP with a ratio of 1.
    """
    own = model.positions(data.test.images[:1]).grid if isinstance(model, PatchClassifier) else None
    grid = grid or own
    if grid is None:
        raise UserError("evaluation 'shuffle' needs grid=(rows, columns) for a model without patches")
    if not 0 <= ratio <= 1:
        raise UserError(f"evaluation 'shuffle' got ratio={ratio}; choose a share from 0 to 1")
    can_be_told = isinstance(model, PatchClassifier) and model.encoding.can_be_told
    if (positions == "told" and not can_be_told) or (positions == "follow" and not own):
        return {}
    generator = make_generator(seed)
    mask = block_mask(grid, ratio, batch=len(data.test), exact_count=exact, generator=generator)
    order = permute_masked(mask, generator=generator)

    def change(images: Tensor, start: int) -> tuple[Tensor, Positions | None]:
        rows = slice(start, start + len(images))
        origin, hidden = order[rows].to(images.device), mask[rows].to(images.device)
        moved = permute_patches(images, grid, origin)
        if pixels:
            inside = seeded_permutation(moved.shape[2] * moved.shape[3] // mask.shape[1], seed=seed)
            moved = permute_pixels(moved, grid, inside.to(images.device))
        if not isinstance(model, PatchClassifier) or not own or positions == "stay":
            return moved, None
        if positions == "follow":
            return moved, model.positions(images).permute(upsample_order(origin, grid, own))
        return moved, model.positions(images).hide(upsample_mask(hidden, grid, own))

    whole, usual = respond(model, data)
    read, logits = respond(model, data, change)
    distance = (read - whole).double().norm(dim=1)
    answers, truth = logits.argmax(1), data.test.labels
    same = answers == usual.argmax(1)
    return {
        "accuracy": share(answers == truth),
        "consistency": share(same),
        "consistent_and_right": share(same & (answers == truth)),
        "divergence": _divergence(usual, logits),
        "difference": distance.square().mean().item(),
        "difference_unsquared": distance.mean().item(),
        "difference_relative": (distance / whole.double().norm(dim=1).clamp_min(1e-12)).mean().item(),
        "shuffled": mask.double().mean().item(),
    }


def _divergence(usual: Tensor, logits: Tensor) -> float:
    """The mean Kullback–Leibler divergence of probabilities from the usual ones, of logits (n, classes), in nats."""
    before, after = (x.double().log_softmax(1) for x in (usual, logits))
    return F.kl_div(after, before, reduction="batchmean", log_target=True).item()
