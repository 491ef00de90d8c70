"""How much of the attention logits is position and how much content."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.inspection._batches import grid_seen
from vitpos.inspection.attention_stats import hear_logits
from vitpos.models.activations import on_one_grid
from vitpos.models.base import Classifier, PatchClassifier


@dataclass(frozen=True)
class LogitParts:
    """The logits of every head, taken apart over pairs of places × images.

    position: (depth, H) variance of what a pair of places gets in all images alike; content: (depth, H) mean over pairs
    of the variance over images. bias: (depth, H, N, N) the mean logit of each pair over its row's mean, which stands in
    for a table where an encoding has none; −∞ where a head does not see.
    """

    position: Tensor
    content: Tensor
    bias: Tensor
    images: int

    @property
    def share(self) -> Tensor:
        """(depth, H): position / (position + content), 1 if images change nothing; NaN if nothing changes anything."""
        return self.position / (self.position + self.content)


def logit_parts(
    model: Classifier, data: Dataset, *, shuffled: bool = False, limit: int | None = 256, seed: int = 0
) -> LogitParts:
    """A two-way analysis of variance of the logits among patches, over pairs of places and ``limit`` test images.

    A softmax does not see what is added to a whole row, so each row is first centred on its mean. With that the third
    part, what a whole image gets alike, is 0: images differ only in what they give to some pairs, which is content.
    Pairs of a patch with itself are left out of rows and variances, for to know oneself is not to know a place; so are
    pairs that a head does not see (−∞) and pairs with prefix tokens.
    Both parts are unbiased: a mean over B images still holds 1/B of the variance over images, which is taken away as in
    an analysis with random effects. A position part of nothing therefore comes out around 0, on either side.
    ``shuffled`` takes images whose patches change places, freshly in each: then what the average picture shows at a
    place is no position, and a model without positions has none.
    """
    seen = on_one_grid(model, "an analysis of logits")
    sums = LogitSums(seen, math.prod(grid_seen(seen, data)))
    return sums.parts(hear_logits(seen, data, sums.add, limit=limit, seed=seed, shuffled=shuffled))


class LogitSums:
    """Sums over images of centred logits among patches (depth, H, N, N) and of their squares, in float64."""

    def __init__(self, model: PatchClassifier, count: int):
        shape, device = (model.geometry.depth, model.geometry.heads, count, count), model.project.weight.device
        self.sums, self.squares = (torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(2))
        self.sees = torch.zeros(shape, dtype=torch.bool, device=device)
        self.others = ~torch.eye(count, dtype=torch.bool, device=device)

    def add(self, layer: int, logits: Tensor) -> None:
        """Another batch (B, H, N, N)."""
        self.sees[layer] = logits[0].isfinite()  # whom a head sees goes by places alone
        centred = _centred(logits.double(), self.sees[layer], self.others)
        self.sums[layer] += centred.sum(0)
        self.squares[layer] += centred.square_().sum(0)

    def parts(self, images: int) -> LogitParts:
        """The analysis of variance over the images heard of."""
        if images < 2:
            raise UserError(f"an analysis of logits over {images} image tells nothing of content; take a limit from 2")
        pairs = self.sees & self.others
        mean = self.sums / images
        within = ((self.squares / images - mean.square()) * images / (images - 1)).clamp_min(0)
        content = _mean_over(within, pairs)
        position = _mean_over(mean.square(), pairs) - content / images
        return LogitParts(position.cpu(), content.cpu(), mean.masked_fill(~self.sees, -torch.inf).cpu(), images)


def _centred(logits: Tensor, sees: Tensor, others: Tensor) -> Tensor:
    """Logits (B, H, N, N) less the mean of each row over the others that it sees (H, N, N); 0 where it does not see."""
    logits = logits.masked_fill(~sees, 0)
    counted = sees & others
    means = (logits * counted).sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp_min(1)
    return (logits - means).masked_fill_(~sees, 0)


def _mean_over(values: Tensor, pairs: Tensor) -> Tensor:
    """The mean of (depth, H, N, N) over the pairs that count: (depth, H)."""
    return (values * pairs).sum((-1, -2)) / pairs.sum((-1, -2)).clamp_min(1)
