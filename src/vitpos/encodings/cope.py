"""Contextual position encoding (CoPE; Golovneva et al., 2024) among patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.steps import lookup
from vitpos.errors import UserError
from vitpos.positions import Positions


class CoPE(PositionEncoding):
    """Positions counted by content: gates σ(q·k) summed along the row-major order, a trained vector per count.

    p_ij = Σ_t σ(q_i·k_t/√d) over the patches t from j to the end of the row-major order, clamped to ``steps`` − 1; the
    logit gains q_i·e[p_ij], interpolated between whole counts. One table per layer, shared by its heads, zero at the
    start. An image has no arrow of time: without ``causal`` the sum runs over all patches from j on, so that p neither
    depends on the offset to i nor stays the same when the picture is shifted; ``causal`` keeps the language model's form,
    counting no patch after i. Hidden patches are not counted. Patches are ordered by their cells, whatever the order of
    the tokens.
    """

    paper = "Golovneva et al., arXiv 2024"
    traits = ("grid-blind", "by-cell", "contextual", "trained")

    def __init__(self, geometry: Geometry, *, steps: int = 16, causal: bool = False):
        super().__init__()
        if steps < 2:
            raise UserError(f"encoding 'cope' got steps={steps}; count to 2 or more")
        self.causal = causal
        self.table = nn.Parameter(torch.zeros(geometry.depth, steps, geometry.dim // geometry.heads))

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """(B, H, N, N)."""
        [(_, counts)] = self.counts(q, k, pos, layer)
        q = q[:, :, -pos.cells.shape[1] :]
        return lookup(q @ self.table[layer].mT, counts)

    def counts(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> list[tuple[Tensor, Tensor]]:
        """Along the one order that there is: gates and counts (B, H, N, N) of each patch."""
        count = pos.cells.shape[1]
        q, k = q[:, :, -count:], k[:, :, -count:]
        gates = torch.sigmoid((q * q.shape[-1] ** -0.5) @ k.mT)  # (B, H, N, N)
        if self.causal:
            gates = gates.masked_fill((pos.cells[:, None, :] > pos.cells[:, :, None])[:, None], 0)
        if pos.hiding:
            gates = torch.where(pos.pairs(), gates, 0)
        return [(gates, _sum_from(gates, pos))]


def _sum_from(gates: Tensor, pos: Positions) -> Tensor:
    """For every key, the sum of the gates of the keys at its cell or after it."""
    if pos.raster:
        return gates.flip(-1).cumsum(-1).flip(-1)
    order = pos.cells.argsort(1, descending=True)[:, None, None].expand_as(gates)
    return torch.zeros_like(gates).scatter(3, order, gates.gather(3, order).cumsum(-1))
