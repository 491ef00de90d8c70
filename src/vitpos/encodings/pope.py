"""Polar coordinate positional embedding (PoPE; Gopalakrishnan et al., 2025), along both axes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class PoPE(PositionEncoding):
    """Gives every channel of q and k a magnitude that depends on content and an angle that depends on position.

    The logit of patches i and j is Σ_c softplus(q_ic)·softplus(k_jc)·cos(θ_ic − θ_jc − δ_c)/√d, c = 0 … d − 1, with a
    learned phase δ (depth, H, d), clamped to [−2π, 0]. The first d/2 channels have angles θ = column·ω_t, the last d/2
    row·ω_t, with ω_t = base^(−t/(d/2)), t = 0 … d/2 − 1; RoPE has half as many frequencies. q and k become twice as
    wide: (B, H, N, d) → (B, H, N, 2d).

    The paper treats text. The use of the two axes, the order of channels and the plain q·k for pairs with a prefix
    token follow the package PoPE-pytorch (version 0.2.1). The clamp has no gradient above 0: a phase that starts at 0
    and first moves upward is not learned any further.

    Args:
        base: Base of the frequencies.
        uniform_phase: Starts the phases uniformly in [−2π, 0] instead of at 0.
    """

    paper = "Gopalakrishnan et al., arXiv 2025"
    traits = ("translation_invariant", "learnable")
    unrotated_prefix = True

    def __init__(self, geometry: Geometry, *, base: float = 10000.0, uniform_phase: bool = False):
        super().__init__()
        check_positive("pope", base=base)
        self.base, self.head_dim = base, geometry.dim // geometry.heads
        if self.head_dim % 2:
            raise InputError(f"encoding 'pope' needs an even head width, not {self.head_dim}; change dim or heads")
        shape = geometry.depth, geometry.heads, self.head_dim
        self.phase = nn.Parameter(-2 * math.pi * torch.rand(shape) if uniform_phase else torch.zeros(shape))

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the patch queries and keys (B, H, N, 2d): magnitude times cosine, then magnitude times sine."""
        cos, sin = self.cached(pos, "unit vectors", lambda: self._unit_vectors(pos, q.dtype), q.dtype)
        phase = self.phase[layer, :, None].clamp(-2 * math.pi, 0.0).to(q.dtype)  # (H, 1, d)
        phase_cos, phase_sin = phase.cos(), phase.sin()
        key_cos, key_sin = cos * phase_cos - sin * phase_sin, sin * phase_cos + cos * phase_sin  # of θ + δ
        q, k = F.softplus(q), F.softplus(k)
        return torch.cat([q * cos, q * sin], -1), torch.cat([k * key_cos, k * key_sin], -1)

    def fused_logits(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the attention logits (B, H, T, T) of q and k (B, H, T, d), or None without prefix tokens.

        Pairs with a prefix token (CLS or register) get the plain q·k/√d, pairs of patches the logits of PoPE. This is
        faster than ``rotate``, which doubles the width of q and k, because rotated products are computed for pairs of
        patches only.
        """
        prefix = q.shape[2] - pos.index.shape[1]
        if not prefix:
            return None
        patch_q, patch_k = self.rotate(q[:, :, prefix:], k[:, :, prefix:], pos, layer)
        patch_rows = torch.cat([q[:, :, prefix:] @ k[:, :, :prefix].mT, patch_q @ patch_k.mT], 3)
        return torch.cat([q[:, :, :prefix] @ k.mT, patch_rows], 2) * q.shape[-1] ** -0.5

    def _unit_vectors(self, pos: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the cosines and the sines, each (B|1, 1, N, d) in ``dtype``, of the angles of all d channels.

        An angle is the column (first d/2 channels) or the row (last d/2) times a fixed frequency, in float32 or better.
        """
        coords = pos.coords.to(torch.promote_types(dtype, torch.float32)).flip(-1)  # column before row
        count = self.head_dim // 2
        steps = torch.arange(count, device=coords.device, dtype=coords.dtype)
        angles = (coords[..., None] * self.base ** (-steps / count)).flatten(2)[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)
