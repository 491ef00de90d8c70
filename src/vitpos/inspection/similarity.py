"""How alike the position vectors of places are."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.models.base import PatchClassifier
from vitpos.positions import Positions


def position_vectors(model: PatchClassifier, grid: tuple[int, int] | None = None) -> Tensor:
    """(N, D): what the encoding adds to the token of each place of the model's grid, or of another one fitted to it."""
    own = model.geometry.grid
    pos = Positions.of(grid or own, fit=own)
    weight = model.project.weight
    zeros = weight.new_zeros(1, pos.cells.shape[1], model.geometry.dim)
    with torch.inference_mode():
        return model.encoding.embed(zeros, pos.to(weight.device))[0].cpu()


def cosine_similarity(vectors: Tensor) -> Tensor:
    """(N, D) → (N, N): the cosine between every two vectors; 0 where one of them is zero."""
    norms = vectors.norm(dim=1, keepdim=True)
    unit = torch.where(norms > 0, vectors / norms, 0)
    return unit @ unit.mT


def linear_cka(one: Tensor, other: Tensor) -> float | None:
    """How alike two sets of vectors (N, D) and (N, E) of the same places are: 1 if one is the other, turned and scaled.

    Linear centred kernel alignment (Kornblith et al., ICML 2019); None if one of them does not vary.
    """
    a, b = (x.double() - x.double().mean(0) for x in (one, other))
    lengths = (a.mT @ a).norm() * (b.mT @ b).norm()
    return float((a.mT @ b).square().sum() / lengths) if lengths > 0 else None
