"""Functional interpolation for relative position encoding (FIRE; Li et al., ICLR 2024), for two axes."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.positions import Positions


class FIRE(PositionEncoding):
    """Adds a bias per head that an MLP computes from the distance of two patches, relative to the farthest patch.

    bias_ij = MLP(ψ(‖p_i − p_j‖)/ψ(max(L, m_i))) with ψ(x) = log(|c|·x + 1), m_i the distance from patch i to the
    farthest patch with a known position, and the MLP 1 → ``hidden_dim`` (ReLU) → heads. The scale c and the threshold L
    are learned. Inputs of the MLP stay between 0 and 1 (−1 and 1 with ``per_axis``), so larger grids need no
    extrapolation. Where no patch is farther than L, the bias depends on the offset alone.

    The paper treats causal sequences, where m_i is the position of the query and L starts at 512; no 2-D form by its
    authors was found. Here L starts at the longest distance in the training grid; it is that distance times a learned
    |factor|, as in the paper's code. It has no gradient while every m_i is larger. With ``distance="per_axis"`` the MLP
    has two inputs, for rows and columns, each with the sign of the offset and with its own m_i and L.

    Args:
        distance: ``euclidean``, or ``per_axis``: the signed offset in rows and in columns.
        hidden_dim: Width of the MLP.
        init_c: Initial value of c.
        share_layers: Uses the same parameters in all layers (FIRE-S in the paper).
    """

    paper = "Li et al., ICLR 2024"
    unsettled = "its authors define fire for sequences only; both 2-D forms are ours"
    traits = ("context_dependent", "learnable")  # m_i depends on which other patches have known positions

    def __init__(
        self,
        geometry: Geometry,
        *,
        distance: Literal["euclidean", "per_axis"] = "euclidean",
        hidden_dim: int = 32,
        init_c: float = 0.1,
        share_layers: bool = False,
    ):
        super().__init__()
        check_positive("fire", hidden_dim=hidden_dim, init_c=init_c)
        self.distance, self.share_layers = distance, share_layers
        spans = [max(side - 1, 1) for side in geometry.grid]
        self.thresholds = (math.hypot(*spans),) if distance == "euclidean" else tuple(map(float, spans))
        inputs, layers = len(self.thresholds), 1 if share_layers else geometry.depth
        self.c = nn.Parameter(torch.full((layers,), init_c))
        self.threshold_factor = nn.Parameter(torch.ones(layers, inputs))
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, geometry.heads))
            for _ in range(layers)
        )

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B|1, H, N, N) that is added to the attention logits of patches in block number ``layer``."""
        layer = 0 if self.share_layers else layer
        wide = torch.promote_types(q.dtype, torch.float32)
        distances, farthest = self.cached(pos, "distances", partial(self._distances, pos, wide), wide)
        c = self.c[layer].abs().to(wide)
        thresholds = self.threshold_factor[layer].abs().to(wide) * distances.new_tensor(self.thresholds)
        scale = torch.log1p(c * torch.maximum(farthest, thresholds)) + 1e-6  # as the paper's code; never 0
        inputs = distances.sign() * torch.log1p(c * distances.abs()) / scale  # (B|1, N, N, 1 or 2)
        return self.networks[layer](inputs.to(q.dtype)).permute(0, 3, 1, 2)

    def _distances(self, pos: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the distances (B|1, N, N, A) of all pairs of patches, and the largest distance (B|1, N, 1, A) per query.

        A is 1 for Euclidean distances and 2 for signed offsets in rows and columns. The largest distance is over keys
        with a known position, one that is not masked.
        """
        offsets = pos.offsets().to(dtype)
        distances = offsets.norm(dim=-1, keepdim=True) if self.distance == "euclidean" else offsets
        known = distances.abs()
        if pos.has_hidden:
            known = known * pos.known[:, None, :, None]
        return distances, known.amax(2, keepdim=True)
