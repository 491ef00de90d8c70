"""Parabolic position encoding (PaPE; Øhrstrøm et al., arXiv 2602.01418, 2026)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, check_positive
from vitpos.errors import InputError
from vitpos.positions import Positions


class PaPE(PositionEncoding):
    """Adds to each logit a sum of quadratic functions of the offset, with coefficients computed from the query's token.

    bias_ij = Σ_m [−a_im (u_m·δ)² + b_im (u_m·δ)]/√d with the offset δ = p_i − p_j in rows and columns, learned
    directions u_m (2,), a_i = softplus(W_a h_i) and b_i = W_b h_i, where h_i is the token that enters attention. Each
    layer and head has its own parameters. The sum over the parabolas is a polynomial of degree 2 in p_j, so that six
    numbers per query determine it for any number of parabolas.

    ``rotation_invariant`` is PaPE-RI: bias_ij = −a_i s²‖δ‖²/√d with one a and one s per head; s is random and fixed, as
    in the published code. That code gives patches the coordinates 1, 2, … and CLS the coordinate 0, and adds the bias
    to pairs with CLS too; here only pairs of patches have a bias. Weights are initialized like those of a linear layer.

    Args:
        parabolas: Number of parabolas per head.
        rotation_invariant: Uses one isotropic parabola per head (PaPE-RI).
    """

    paper = "Øhrstrøm et al., arXiv 2026"
    traits = ("translation_invariant", "learnable")

    def __init__(self, geometry: Geometry, *, parabolas: int = 50, rotation_invariant: bool = False):
        super().__init__()
        check_positive("pape", parabolas=parabolas)
        if rotation_invariant and parabolas != 50:
            raise InputError(
                f"encoding 'pape' got parabolas={parabolas} with rotation_invariant=True, which always uses one; "
                "omit 'parabolas'"
            )
        dim, heads, depth = geometry.dim, geometry.heads, geometry.depth
        self.head_dim = dim // heads
        count = 1 if rotation_invariant else parabolas
        self.curvature = nn.Parameter(_uniform(dim, depth, dim, heads * count))  # W_a
        self.scales: Tensor
        self.directions = self.slope = None
        if rotation_invariant:
            self.register_buffer("scales", _uniform(2, depth, heads))
        else:
            self.slope = nn.Parameter(_uniform(dim, depth, dim, heads, count))  # W_b
            self.directions = nn.Parameter(_uniform(2, depth, heads, count, 2))  # u: row, column

    def token_bias(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the bias (B, H, N, N) for the logits of patches, from the tokens (B, N, D) that enter attention."""
        forms = pos.without_autocast(lambda: self._forms(layer))  # (H, M, 3)
        a = F.softplus(x @ self.curvature[layer]).unflatten(2, forms.shape[:2])  # (B, N, H, M)
        b = None
        if self.slope is not None and self.directions is not None:
            along = torch.einsum("dhm,hmf->dfh", self.slope[layer], self.directions[layer])  # (D, 2, H)
            b = (x @ along.flatten(1)).unflatten(2, (2, -1)).permute(2, 0, 3, 1)  # (2, B, H, N)
        return pos.without_autocast(lambda: self._bias(a, b, forms.to(a.dtype), pos).to(x.dtype))

    def _bias(self, a: Tensor, b: Tensor | None, forms: Tensor, pos: Positions) -> Tensor:
        """Returns the bias (B, H, N, N) in float32 or better.

        It is computed from curvatures a (B, N, H, M), slopes b (2, B, H, N) along rows and columns, or None, and the
        coefficients ``forms`` (H, M, 3) of the parabolas.
        """
        wide = torch.promote_types(a.dtype, torch.float32)
        summed = torch.einsum("bnhm,hmf->fbhn", a, forms)
        # a copy in this order of axes: einsum's would fix the batch size of exported models
        rr, rc, cc = summed.clone(memory_format=torch.contiguous_format).to(wide)  # −rr·δr² − rc·δr·δc − cc·δc²
        # any origin gives the same bias; the mean keeps the numbers small, which matters in float32
        coords = pos.coords.to(wide) - pos.coords.to(wide).mean(1, keepdim=True)
        row, column = coords[:, None].unbind(-1)  # (B|1, 1, N)
        by_row, by_column = 2 * rr * row + rc * column, 2 * cc * column + rc * row
        constant = -(by_row * row + by_column * column) / 2
        if b is not None:
            slopes = b.to(wide)
            by_row, by_column = by_row - slopes[0], by_column - slopes[1]
            constant = constant + slopes[0] * row + slopes[1] * column
        of_queries = torch.stack([-rr, -rc, -cc, by_row, by_column, constant], -1) * self.head_dim**-0.5
        of_keys = torch.stack([row * row, row * column, column * column, row, column, torch.ones_like(row)], -1)
        return of_queries @ of_keys.mT

    def _forms(self, layer: int) -> Tensor:
        """Returns (H, M, 3), the coefficients of δr², δr·δc and δc² in (u_m·δ)², for each head and each of M parabolas.

        δ = (δr, δc) is the offset in rows and columns, u_m the direction of parabola m.
        """
        if self.directions is None:
            square = self.scales[layer, :, None].square()
            return torch.stack([square, torch.zeros_like(square), square], -1)
        row, column = self.directions[layer].unbind(-1)
        return torch.stack([row * row, 2 * row * column, column * column], -1)


def _uniform(inputs: int, *shape: int) -> Tensor:
    """Returns random weights of shape ``shape``, uniform in ±1/√inputs, as in a linear layer with ``inputs`` inputs."""
    return (torch.rand(shape) * 2 - 1) * inputs**-0.5
