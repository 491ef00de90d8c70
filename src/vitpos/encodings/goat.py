"""Attention with a trainable prior over positions (GOAT; Litman and Guo, 2026), for grids of patches."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class GOAT(PositionEncoding):
    """Uses some channels of q and k for positions: a learned function of the offset and a learned bias of each key.

    The logit of tokens i and j is q̂_i·k̂_j/√c + Σ_r [A_r cos(ω_r·Δ) + B_r sin(ω_r·Δ)] + u(j). q̂ and k̂ are the first
    c = d − 2·rank − 1 channels; the sum, which the paper calls the log-prior, takes the place of the others. Δ is the
    offset p_i − p_j in rows for the first half of the frequencies and in columns for the other; pairs with a prefix
    token (CLS or register) have no such term; A and B (depth, H, rank) start at 0. u(j) = gain·MLP(f_j) with a gain per
    head and an MLP per layer. f_j are 2·key_rank cosines and sines of row and column, the row-major index, and its
    logarithm, both scaled to 1 at the last cell of the training grid. With ``key_bias`` the first prefix token has an
    additional learned bias per head.

    The reference is the package goat-attention 0.1.1 as configured for ViTs. Its frequencies ω_r = base^(−r/(rank − 1))
    are divided between the axes, the high ones for rows and the low ones for columns, and at the default base the
    sum hardly depends on columns; ``split_frequencies=False`` gives both axes the same range. Without prefix tokens
    the package gives the additional bias to the first patch; here it is omitted.

    Args:
        rank: Number of frequencies of the sum over r; 8 by default, or d/4 in narrower heads.
        key_rank: Number of frequencies in the input of the MLP of u.
        base: Base of the frequencies.
        key_bias: Whether there is a bias u(j); without it the prior depends on offsets alone, and c = d − 2·rank.
        split_frequencies: Divides one sequence of frequencies between the axes; if False, both axes use the full range.
    """

    paper = "Litman and Guo, arXiv 2026"
    traits = ("learnable", "biases_prefix")

    def __init__(
        self,
        geometry: Geometry,
        *,
        rank: int | None = None,
        key_rank: int = 8,
        base: float = 10000.0,
        key_bias: bool = True,
        split_frequencies: bool = True,
    ):
        super().__init__()
        check_positive("goat", base=base)
        head_dim = geometry.dim // geometry.heads
        if rank is None and head_dim < 8:
            raise InputError(f"encoding 'goat' needs heads of 8 channels or more, not {head_dim}; change dim or heads")
        rank = min(8, head_dim // 4) if rank is None else rank
        self.content_dim = head_dim - 2 * rank - key_bias
        if rank < 2 or key_rank < 2 or self.content_dim < 1:
            raise InputError(
                f"encoding 'goat' got rank={rank}, key_rank={key_rank} for heads of width {head_dim}; "
                "choose 2 or more, and a rank below half of the width"
            )
        self.geometry, self.rank, self.key_rank = geometry, rank, key_rank
        self.base, self.split_frequencies = base, split_frequencies
        self.even = nn.Parameter(torch.zeros(geometry.depth, geometry.heads, rank))  # A, of the cosines
        self.odd = nn.Parameter(torch.zeros(geometry.depth, geometry.heads, rank))  # B, of the sines
        self.key_networks = nn.ModuleList()
        if key_bias:
            self.key_networks.extend(_key_network(2 * key_rank + 2) for _ in range(geometry.depth))
            self.key_gain = nn.Parameter(torch.ones(geometry.depth, geometry.heads))
            if geometry.num_prefix:
                self.first_bias = nn.Parameter(torch.zeros(geometry.depth, geometry.heads))

    def fused_logits(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the attention logits (B, H, T, T) of all T tokens in block number ``layer``, from q and k (B, H, T, d).

        They are the scaled product of the content channels of q and k (the first ones) plus a learned term that depends
        on positions alone (the prior).
        """
        q, k = q[..., : self.content_dim] * self.content_dim**-0.5, k[..., : self.content_dim]
        return q @ k.mT + self.prior(pos, layer, q.shape[2] - pos.index.shape[1], q.dtype)

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, T, T) that, added to q·k/√d, gives GOAT's logits.

        It is 0 for pairs with a hidden position, which encodings must not use (masked, as in MJP training).
        """
        bias = self.fused_logits(q, k, pos, layer) - q @ k.mT * q.shape[-1] ** -0.5
        prefix = q.shape[2] - pos.index.shape[1]
        return bias.where(pos.known_pairs(prefix), 0) if pos.has_hidden else bias

    def prior(self, pos: Positions, layer: int, prefix: int, dtype: torch.dtype) -> Tensor:
        """Returns the part of the logits (B|1, H, T, T) that depends on positions alone; T is ``prefix`` plus N tokens."""
        make = partial(self._features, pos, prefix, dtype)
        cos, sin, key_features = self.cached(pos, f"features with {prefix} prefix tokens", make, dtype)
        even, odd = self.even[layer, :, None], self.odd[layer, :, None]  # (H, 1, rank)
        queries = torch.cat([even * cos + odd * sin, even * sin - odd * cos], -1)  # (B|1, H, T, 2·rank)
        prior = queries @ torch.cat([cos, sin], -1).mT
        if not self.key_networks:
            return prior
        keys = self.key_gain[layer, :, None] * self.key_networks[layer](key_features).mT  # (B|1, H, T)
        if prefix:
            keys = keys + F.pad(self.first_bias[layer, :, None], (0, keys.shape[-1] - 1))
        return prior + keys[:, :, None]

    def _features(self, pos: Positions, prefix: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the cosines and sines (B|1, 1, T, rank) of the prior, and the inputs (B|1, T, 2·key_rank + 2) of the MLP.

        The MLP computes a bias for each key from the cosines and sines of ``key_rank`` frequencies at its position and
        from its row-major index, scaled to 0 … 1, once linearly and once logarithmically.
        """
        coords = pos.coords.to(torch.promote_types(dtype, torch.float32))
        cos, sin = (F.pad(x, (0, 0, prefix, 0))[:, None] for x in self._cos_sin(coords, self.rank))
        cos_sin = F.pad(torch.cat(self._cos_sin(coords, self.key_rank), -1), (0, 0, prefix, 0))
        rows, columns = self.geometry.grid
        cells = F.pad(coords @ coords.new_tensor([columns, 1]), (prefix, 0))  # (B|1, T)
        index = cells + torch.arange(cells.shape[1]).to(cells).clamp_max(prefix)  # 0 … prefix − 1, then the patches
        last = max(prefix + rows * columns - 1, 1)
        logarithm = index.clamp_min(0).log1p() / math.log1p(last)
        key_features = torch.cat([cos_sin, torch.stack([index / last, logarithm], -1)], -1)
        return cos.to(dtype), sin.to(dtype), key_features.to(dtype)

    def _cos_sin(self, coords: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        """Returns the cosines and the sines, each (B|1, N, rank), of coordinates (B|1, N, 2) times fixed frequencies.

        The first half of the frequencies (rounded up) multiplies the row, the second half the column.
        """
        counts = rank - rank // 2, rank // 2  # of rows, of columns
        steps = [torch.arange(count, dtype=coords.dtype, device=coords.device) for count in counts]
        if self.split_frequencies:
            exponents = [steps[0] / (rank - 1), (steps[1] + counts[0]) / (rank - 1)]
        else:
            exponents = [step / max(len(step) - 1, 1) for step in steps]
        angles = [coords[..., axis, None] * self.base ** -exponents[axis] for axis in (0, 1)]
        both = torch.cat(angles, -1)
        return both.cos(), both.sin()


def _key_network(features: int) -> nn.Sequential:
    """Returns an MLP that maps ``features`` numbers of a key to its bias; its output is 0 at the start."""
    first, last = nn.Linear(features, 4), nn.Linear(4, 1, bias=False)  # a last bias would cancel in the softmax
    nn.init.normal_(first.weight, std=1e-3)
    nn.init.zeros_(first.bias)
    nn.init.zeros_(last.weight)
    return nn.Sequential(first, nn.SiLU(), last)
