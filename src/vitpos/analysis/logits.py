"""How much of the attention logits is position and how much content."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.analysis.passes import grid_seen, pictures
from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.models.base import Classifier
from vitpos.models.inside import Attending, look_inside, on_one_grid


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
    rows, columns = grid_seen(seen, data)
    count, device = rows * columns, seen.project.weight.device
    shape = (seen.geometry.depth, seen.geometry.heads, count, count)
    sums, squares = (torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(2))
    sees = torch.zeros(shape, dtype=torch.bool, device=device)
    others = ~torch.eye(count, dtype=torch.bool, device=device)

    def add(attending: Attending) -> None:
        layer, prefix = attending.layer, attending.prefix
        logits = attending.logits()[..., prefix:, prefix:].double()
        sees[layer] = logits[0].isfinite()  # whom a head sees goes by places alone
        centred = _centred(logits, sees[layer], others)
        sums[layer] += centred.sum(0)
        squares[layer] += centred.square_().sum(0)

    images = 0
    with torch.inference_mode():
        for batch in pictures(seen, data, limit=limit, seed=seed, shuffled=shuffled):
            look_inside(seen, batch, attention=add)
            images += len(batch)
    if images < 2:
        raise UserError(f"an analysis of logits over {images} image tells nothing of content; take a limit from 2")
    pairs = sees & others
    mean = sums / images
    within = ((squares / images - mean.square()) * images / (images - 1)).clamp_min(0)
    content = _mean_over(within, pairs)
    position = _mean_over(mean.square(), pairs) - content / images
    return LogitParts(position.cpu(), content.cpu(), mean.masked_fill(~sees, -torch.inf).cpu(), images)


def _centred(logits: Tensor, sees: Tensor, others: Tensor) -> Tensor:
    """Logits (B, H, N, N) less the mean of each row over the others that it sees (H, N, N); 0 where it does not see."""
    logits = logits.masked_fill(~sees, 0)
    counted = sees & others
    means = (logits * counted).sum(-1, keepdim=True) / counted.sum(-1, keepdim=True).clamp_min(1)
    return (logits - means).masked_fill_(~sees, 0)


def _mean_over(values: Tensor, pairs: Tensor) -> Tensor:
    """The mean of (depth, H, N, N) over the pairs that count: (depth, H)."""
    return (values * pairs).sum((-1, -2)) / pairs.sum((-1, -2)).clamp_min(1)
