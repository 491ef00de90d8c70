"""Continuous log-spaced position bias (CPB of Swin-v2; Liu et al., CVPR 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.positions import Positions


class CPB(PositionEncoding):
    """Adds a bias per head and layer that an MLP computes from the log-spaced offset: 16·sigmoid(MLP(Δ)).

    Δ per axis = sign·log2(1 + 8·|offset|/(M − 1))/log2 8 with M the training grid's side (an axis of one cell has offset
    0). The MLP is 2 → ``hidden_dim`` (ReLU) → heads, without a last bias. Swin-v2 uses it with cosine attention, which is
    an option of the model: ``vit(qk_norm='cosine')``.

    Args:
        hidden_dim: Width of the MLP.
    """

    paper = "Liu et al. (Swin-v2), CVPR 2022"
    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry: Geometry, *, hidden_dim: int = 512):
        super().__init__()
        check_positive("cpb", hidden_dim=hidden_dim)
        self.train_grid = geometry.grid
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(2, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, geometry.heads, bias=False))
            for _ in range(geometry.depth)
        )

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B|1, H, N, N) that is added to the attention logits of patches in block number ``layer``."""
        index, offsets = self.cached(pos, "offsets", lambda: _distinct_offsets(pos))
        spans = offsets.new_tensor([max(side - 1, 1) for side in self.train_grid])
        spaced = offsets.sign() * torch.log2(1 + 8 * offsets.abs() / spans) / 3
        values = 16 * torch.sigmoid(self.networks[layer](spaced.to(q.dtype)))  # (distinct, H)
        return values[index].permute(0, 3, 1, 2)


def _distinct_offsets(pos: Positions) -> tuple[Tensor, Tensor]:
    """Returns (index, offsets) of all pairs of positions, so that the MLP is evaluated once per distinct offset.

    ``offsets`` (distinct, 2) are in rows and columns; ``index`` (B|1, N, N) gives the row of ``offsets`` of each pair.
    """
    offsets = pos.offsets()
    if torch.compiler.is_compiling():  # the number of distinct offsets is not known while tracing
        flat = offsets.flatten(0, 2)
        return torch.arange(flat.shape[0], device=flat.device).view(offsets.shape[:3]), flat
    offsets, index = offsets.flatten(0, 2).unique(dim=0, return_inverse=True)
    return index.view(pos.coords.shape[0], *[pos.coords.shape[1]] * 2), offsets
