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
