"""Contextual position encoding (CoPE; Golovneva et al., arXiv 2405.18719, 2024) among patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings._interp1d import interp1d
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions


class CoPE(PositionEncoding):
    """Replaces distances by counts that depend on content, sums of gates σ(q·k), and learns a vector per count.

    p_ij = Σ_t σ(q_i·k_t/√d) over the patches t from j to the end of the row-major order, clamped to ``max_positions −
    1``. The bias is q_i·e[p_ij] with a learned table e, interpolated between integer counts. Each layer has one table,
    shared by its heads, which starts at zero. Patches with a hidden (masked) position are not counted.

    Args:
        max_positions: Number of entries of the table.
        causal: Counts no patch after i, as in language models. By default the sum runs over all patches from j on, so
            that p does not depend on the offset from i and is not invariant to translation.
    """

    paper = "Golovneva et al., arXiv 2024"
    traits = ("grid_shape_invariant", "index_only", "context_dependent", "learnable")

    def __init__(self, geometry: Geometry, *, max_positions: int = 16, causal: bool = False):
        super().__init__()
        if max_positions < 2:
            raise InputError(f"encoding 'cope' got max_positions={max_positions}; choose 2 or more")
        self.causal = causal
        self.table = nn.Parameter(torch.zeros(geometry.depth, max_positions, geometry.dim // geometry.heads))

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, N, N) for the logits of patches: q_i·e[p_ij] with a learned vector e per count p_ij."""
        [(_, counts)] = self.counts(q, k, pos, layer)
        q = q[:, :, -pos.index.shape[1] :]
        return interp1d(q @ self.table[layer].mT, counts)

    def counts(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> list[tuple[Tensor, Tensor]]:
        """Returns [(gates, counts)], both (B, H, N, N).

        Gate σ(q_i·k_j/√d), 0 to 1, is the weight with which patch i counts patch j; count p_ij is the sum of the gates
        of i over the patches from j to the last in row-major order.
        """
        count = pos.index.shape[1]
        q, k = q[:, :, -count:], k[:, :, -count:]
        gates = torch.sigmoid((q * q.shape[-1] ** -0.5) @ k.mT)  # (B, H, N, N)
        if self.causal:
            gates = gates.masked_fill((pos.index[:, None, :] > pos.index[:, :, None])[:, None], 0)
        if pos.has_hidden:
            gates = torch.where(pos.known_pairs(), gates, 0)
        return [(gates, _sum_from(gates.to(torch.promote_types(gates.dtype, torch.float32)), pos))]


def _sum_from(gates: Tensor, pos: Positions) -> Tensor:
    """Returns, for each query i and key j, the sum of the gates of i over the keys from j to the last in row-major order.

    ``gates`` and the result are (B, H, N, N).
    """
    if pos.is_row_major:
        return gates.flip(-1).cumsum(-1).flip(-1)
    order = pos.index.argsort(1, descending=True)[:, None, None].expand_as(gates)
    return torch.zeros_like(gates).scatter(3, order, gates.gather(3, order).cumsum(-1))
