"""Positions counted by content: what gates and counts look like, and whether the bias goes by what patches show."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.encodings.base import PositionEncoding, parts
from vitpos.encodings.cope import CoPE
from vitpos.encodings.sape2 import SaPE2
from vitpos.errors import UserError
from vitpos.inspection._batches import grid_seen, pictures
from vitpos.models.activations import Attending, look_inside, on_one_grid
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.positions import Positions

ROUNDING = 1e-5  # of the size of values in float32: what varies less does not vary


@dataclass(frozen=True)
class ByContent:
    """How the bias of two patches goes with how alike they are, at equal offsets.

    correlation: (depth, H) mean over images of the partial correlation, from −1 to 1: below 0, patches that are alike
    get less of the bias than others that lie to each other in the same way. spread: (depth, H) its standard deviation
    over images. An image in which either does not vary does not count; NaN where none is left.
    """

    correlation: Tensor
    spread: Tensor
    images: int


def bias_by_content(model: Classifier, data: Dataset, *, limit: int | None = 256, seed: int = 0) -> ByContent:
    """SaPE2's case study as a number (its Figure 4 shows two pictures), also for CoPE, over ``limit`` test images.

    For every two different patches of an image: the bias as it is added to the logit, and the cosine between what the
    attention reads of the two. Both are centred on their mean over the pairs with the same distance in rows and in
    columns, so that neither can gain by nearness; then their correlation, in each image, layer and head.
    """
    seen, counting = _counting(model)
    pairs, groups = _different(grid_seen(seen, data), seen.project.weight.device)
    found: list[list[Tensor]] = [[] for _ in range(seen.geometry.depth)]

    def correlate(attending: Attending) -> None:
        bias = counting.bias(*attending.queries_and_keys(), attending.pos, attending.layer)
        content = F.normalize(attending.x[:, attending.prefix :].double(), dim=-1)
        said, alike = (x.double().flatten(-2)[..., pairs] for x in (bias, (content @ content.mT)[:, None]))
        found[attending.layer].append(_partial_correlation(said, alike, groups))

    with torch.inference_mode():
        for images in pictures(seen, data, limit=limit, seed=seed):
            look_inside(seen, images, attention=correlate)
        values = torch.stack([torch.cat(layer) for layer in found]).cpu()  # (depth, B, H)
    told = ~values.isnan()
    mean = values.nanmean(1)
    deviations = (values - mean[:, None]).square().nan_to_num(0).sum(1) / (told.sum(1) - 1).clamp_min(0)
    return ByContent(mean, deviations.sqrt(), values.shape[1])


@dataclass(frozen=True)
class Counted:
    """Gates and counts, from one patch of each image, over the grid: (B, H, R, C); NaN where nothing is counted."""

    gates: Tensor
    counts: Tensor


def gates_seen_from(model: Classifier, images: Tensor, place: tuple[int, int], *, layer: int = -1) -> list[Counted]:
    """How the patch at ``place`` (row, column) counts in normalised images (B, C, height, width), in one layer.

    Along its row, then along its column in SaPE2; along the row-major order of all patches in CoPE.
    """
    seen, counting = _counting(model)
    grid, depth = seen.positions(images).grid, seen.geometry.depth
    if not (0 <= place[0] < grid[0] and 0 <= place[1] < grid[1] and -depth <= layer < depth):
        raise UserError(
            f"there is no place {place} in layer {layer} of {depth} layers on a grid of {grid[0]}x{grid[1]}; "
            "count all of them from 0"
        )
    query = place[0] * grid[1] + place[1]
    found: list[Counted] = []

    def keep(attending: Attending) -> None:
        if attending.layer == layer % depth:
            both = counting.counts(*attending.queries_and_keys(), attending.pos, attending.layer)
            found.extend(Counted(*(x[:, :, query].unflatten(-1, grid).cpu() for x in pair)) for pair in both)

    seen.eval()
    with torch.inference_mode():
        look_inside(seen, images, attention=keep)
    return found


def counts_by_content(encoding: PositionEncoding) -> SaPE2 | CoPE | None:
    """The part of an encoding that counts positions by content; None if there is none."""
    return next((part for part in parts(encoding) if isinstance(part, SaPE2 | CoPE)), None)


def _counting(model: Classifier) -> tuple[PatchClassifier, SaPE2 | CoPE]:
    seen = on_one_grid(model, "a look at gates")
    counting = counts_by_content(seen.encoding)
    if counting is None:
        raise UserError("a look at gates needs an encoding that counts by content; take one with sape2 or cope")
    return seen, counting


def _different(grid: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """The pairs (P,) of different patches, of all N·N, and the group (P,) of equal distances in rows and columns."""
    steps = Positions.of(grid, device=device).offsets()[0].abs().long().flatten(0, 1)  # (N·N, 2)
    pairs = steps.any(1).nonzero()[:, 0]
    return pairs, (steps[:, 0] * grid[1] + steps[:, 1])[pairs]


def _partial_correlation(a: Tensor, b: Tensor, groups: Tensor) -> Tensor:
    """Of two sets of values (…, P) within groups: (…), NaN where one of them varies by no more than rounding."""
    left, right = _within(a, groups), _within(b, groups)
    still = (left.norm(dim=-1) <= ROUNDING * a.norm(dim=-1)) | (right.norm(dim=-1) <= ROUNDING * b.norm(dim=-1))
    found = (F.normalize(left, dim=-1) * F.normalize(right, dim=-1)).sum(-1)
    return found.masked_fill(still, torch.nan)


def _within(values: Tensor, groups: Tensor) -> Tensor:
    """Values (…, P) less the mean of their group."""
    sizes = groups.bincount().clamp_min(1)
    sums = values.new_zeros(*values.shape[:-1], len(sizes)).index_add_(-1, groups, values)
    return values - (sums / sizes)[..., groups]
