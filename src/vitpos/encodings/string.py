"""Separable translationally invariant position encodings, Cayley variant (STRING; Schenck et al., ICML 2025)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings._rotary import PrefixMode, Rotation, skew_matrices
from vitpos.encodings.base import Geometry
from vitpos.encodings.rope_mixed import RoPEMixed
from vitpos.positions import Positions


class STRING(RoPEMixed):
    """Rotates q and k as RoPE-Mixed does, in a learned basis per layer and head: x → Pᵀ R(row, column) P x.

    R is the rotation of RoPE-Mixed. P = (I − S)(I + S)⁻¹ with a learned skew-symmetric S (d×d) is orthogonal (Cayley
    transform). Among patches this equals RoPE-Mixed with W_q and W_k multiplied by P: the same set of functions,
    parametrized in another way. The paper leaves Pᵀ out because it cancels in q·k; here it stays, because prefix tokens
    are not rotated and must be in the same basis as the patches. ``frequencies`` returns those of RoPE-Mixed; pair t
    rotates in the plane that rows 2t and 2t + 1 of P span.

    No code of the authors was found, and the initial values in the paper are not clear. Here S starts at 0, so that
    training starts as RoPE-Mixed with its initial frequencies.

    Args:
        base: Base of the initial frequencies.
        prefix_mode: Where prefix tokens (CLS and registers) are placed: at the ``origin`` (0, 0), at the ``center`` of
            the training grid, or at a ``learned`` position; with ``unrotated``, their logits with patches use q and k
            before rotation.
    """

    _name = "string"
    paper = "Schenck et al., ICML 2025"
    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry: Geometry, *, base: float = 10.0, prefix_mode: PrefixMode = "origin"):
        super().__init__(geometry, base=base, prefix_mode=prefix_mode)
        self.head_dim = geometry.dim // geometry.heads
        entries = self.head_dim * (self.head_dim - 1) // 2
        self.generators = nn.Parameter(torch.zeros(geometry.depth, geometry.heads, entries))

    def basis(self, layer: int, dtype: torch.dtype) -> Tensor:
        """Returns the learned orthogonal matrices P (H, d, d) of block number ``layer``, one per head, in ``dtype``.

        q and k are multiplied by P before the rotation and by Pᵀ after it. P is computed in float32 or better.
        """
        wide = torch.promote_types(dtype, torch.float32)
        skew = skew_matrices(self.generators[layer].to(wide), self.head_dim)
        identity = torch.eye(self.head_dim, device=skew.device, dtype=wide)
        return torch.linalg.solve(identity + skew, identity - skew).to(dtype)  # the two factors commute

    def rotation(self, pos: Positions, layer: int, dtype: torch.dtype) -> Rotation:
        """Returns a function that rotates q or k (B, H, N, d) at these positions, in the learned basis of a layer."""
        rotation = super().rotation(pos, layer, dtype)
        basis = pos.without_autocast(lambda: self.basis(layer, dtype))
        return lambda x: rotation(x @ basis.mT) @ basis
