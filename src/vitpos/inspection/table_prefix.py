"""Compares the position vector of a prefix token (CLS) with those of the patches: does it carry a position?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.inspection.table_stats import center, flatten_table
from vitpos.patches import make_generator


@dataclass(frozen=True)
class PrefixSimilarity:
    """The similarity of one vector, such as CLS's position vector, to the position vectors of the patches.

    norm_ratio: norm of the vector divided by the mean norm of the patches' vectors. similarity: largest |cosine| of the
    vector and a centered vector of a patch. p: probability that a vector of random direction has at least this
    similarity, (1 + random vectors at least as similar) / (1 + random vectors). raw_similarity, raw_p: the same with
    vectors of patches that are not centered, so that a vector common to all positions counts too. NaN if the vector, or
    all (centered) vectors of the patches, are 0.
    """

    norm_ratio: float
    similarity: float
    p: float
    raw_similarity: float
    raw_p: float


def prefix_similarity(vector: Tensor, table: Tensor, *, samples: int = 2000, seed: int = 0) -> PrefixSimilarity:
    """Compares a vector (D,) with every vector of a table (R, C, D), and with random vectors in its stead.

    The test is for the position with the largest |cosine|, so it needs no correction for the number of positions.

    Args:
        samples: number of random vectors, whose directions are uniform.
    """
    if samples < 1 or vector.shape != table.shape[2:]:
        raise InputError(
            f"a comparison with a table of width {table.shape[2]} got a vector of shape {tuple(vector.shape)} and "
            f"samples={samples}; give a vector of that width, and 1 sample or more"
        )
    x, row = flatten_table(table), vector.detach().cpu().double()
    random = torch.randn(samples, len(row), generator=make_generator(seed), dtype=torch.float64)
    directions = torch.nn.functional.normalize(torch.cat([row[None], random]), dim=1)  # the first is the vector's
    norms = table.detach().cpu().double().norm(dim=2)
    centered, raw = (_largest_cosine(directions, vectors) for vectors in (center(x), x))
    return PrefixSimilarity((row.norm() / norms.mean()).item(), *_with_p(centered), *_with_p(raw))


def _largest_cosine(directions: Tensor, vectors: Tensor) -> Tensor:
    """Returns the largest |cosine| (S,) of each direction (S, D) and a vector (N, D); NaN if either is always 0."""
    kept = vectors[vectors.any(1)]
    if not len(kept):
        return directions.new_full((len(directions),), torch.nan)
    cosines = directions @ torch.nn.functional.normalize(kept, dim=1).mT
    return cosines.abs().amax(1).masked_fill(~directions.any(1), torch.nan)


def _with_p(cosines: Tensor) -> tuple[float, float]:
    """Returns the first entry of ``cosines`` (1 + S,) and its p-value among the others."""
    own, null = cosines[0], cosines[1:]
    p = (1 + int((null >= own - 1e-12).sum())) / len(cosines)
    return own.item(), torch.nan if own.isnan() else p
