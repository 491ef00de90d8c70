"""The linear system for the gradients at the patch tokens, from shared gradients, for any encoding that adds vectors.

A token is z_i = W x_i + b + e_i, where the encoding adds e_i. With a_i = ∂l/∂z_i, the gradient of b is Σ a_i. A parameter
that enters e_i linearly and separately per channel (a table, the last layer of an MLP, the unknown vector of MJP) has the
gradient M a, where the matrix M depends on positions only. These parameters and their M are found by differentiating the
encoding, so that the equations hold for any encoding and any sum of encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitpos.models.attention import input_vectors
from vitpos.models.base import PatchClassifier
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients


@dataclass(frozen=True)
class LinearSystem:
    """The linear system M a = y for the gradients a (N, D) at the N patch tokens.

    Args:
        matrix: M (m, N).
        rhs: y (m, D), rows of the shared gradients.
    """

    matrix: Tensor
    rhs: Tensor

    @cached_property
    def is_table(self) -> bool:
        """Returns whether the first N rows of M are the identity, as for a position table; y then contains a."""
        count = self.matrix.shape[1]
        return len(self.matrix) >= count and torch.equal(self.matrix[:count], torch.eye(count).to(self.matrix))

    @cached_property
    def rank(self) -> int:
        """Returns the rank of M; the system determines all token gradients if it is N."""
        return self.matrix.shape[1] if self.is_table else int(torch.linalg.matrix_rank(self.matrix))

    @cached_property
    def condition(self) -> float:
        """Returns the condition number of M: the ratio of its largest to its smallest nonzero singular value."""
        if self.is_table:
            return 1.0
        values = torch.linalg.svdvals(self.matrix)[: self.rank]
        return float(values[0] / values[-1])

    @cached_property
    def noise_gain(self) -> float:
        """Returns the ratio of the std of the noise in the solution a to that in y, for independent noise of equal std."""
        return 1.0 if self.is_table else float(torch.linalg.pinv(self.matrix).norm()) / self.matrix.shape[1] ** 0.5

    def solve(self) -> Tensor:
        """Returns the token gradients (N, D); the least-norm solution if the system is underdetermined."""
        return self.rhs[: self.matrix.shape[1]] if self.is_table else torch.linalg.pinv(self.matrix) @ self.rhs

    def diagnostics(self, rank: int, condition: float, *, num_prefix: int = 0) -> dict[str, float]:
        """Returns the metrics of a closed-form attack that do not need the true image, so that attackers know them too.

        The reconstruction is underdetermined if the rank of M, or that of the token gradients, is less than the number of
        tokens.

        Args:
            rank: Rank of the token gradients, at most N + ``num_prefix``.
            condition: Condition number of the token gradients.
            num_prefix: Number of prefix tokens.
        """
        count = self.matrix.shape[1]
        return {
            "rank_positions": float(self.rank),
            "condition_positions": self.condition,
            "rank": float(rank),
            "condition": condition,
            "underdetermined": float(self.rank < count or rank < count + num_prefix),
        }


def token_gradient_system(
    model: PatchClassifier, gradients: Gradients, pos: Positions, *, include_sum: bool = True
) -> LinearSystem:
    """Builds the linear system for the gradients at the tokens of one image.

    Args:
        gradients: Parameter name → shared gradient.
        pos: Positions that the attacker assumes for the patches.
        include_sum: Includes the sum over all tokens, which is the gradient of the projection's bias, besides the
            equations of the encoding.
    """
    bias = gradients["project.bias"][None]
    ones = torch.ones(1, pos.index.shape[1]).to(bias)
    rows = [*_encoding_rows(model, gradients, pos), (ones, bias) if include_sum else (ones[:0], bias[:0])]
    matrix, rhs = zip(*rows, strict=True)
    return LinearSystem(torch.cat(matrix), torch.cat(rhs))


def _encoding_rows(model: PatchClassifier, gradients: Gradients, pos: Positions) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields rows of M (m, N) and y (m, D) for each parameter of the encoding whose gradient is M a.

    Whether it is, is tested with a random gradient at the tokens.
    """
    named = dict(model.encoding.named_parameters())
    with torch.enable_grad():
        added = input_vectors(model.encoding, pos, model.project.bias)[0][0]  # (N, D)
    test = torch.randn(added.shape, generator=torch.Generator().manual_seed(0)).to(added)
    for name, actual in _gradient(added, named, test).items():
        for rows in _as_rows(named[name], added.shape[1]):
            matrix = _coefficients(added, named[name], rows)
            expected = matrix @ test
            if torch.allclose(rows(actual), expected, atol=1e-6 * float(expected.abs().max())):
                used = matrix.abs().amax(1) > 0
                yield matrix[used], rows(gradients[f"encoding.{name}"])[used]
                break


def subtract_penalty(
    model: PatchClassifier, gradients: Gradients, pos: Positions, *, clipped: bool = False, pruned: bool = False
) -> Gradients:
    """Subtracts the gradient of the encoding's penalty, which depends on weights and positions but not on the image.

    Args:
        clipped: The client may have rescaled the gradient. The factor is estimated from the parameters that only the
            penalty depends on, such as its localization head; without such parameters, as in
            ``mjp(localization='pca')``, it is taken to be 1.
        pruned: The client set small numbers to zero. Otherwise gradients of exactly zero are kept, because they belong to
            positions that the client hid and the attacker assumes to be known.
    """
    named = {f"encoding.{name}": parameter for name, parameter in model.encoding.named_parameters()}
    with torch.enable_grad():
        penalty = model.encoding.penalty(pos)
    of_penalty = _gradient(penalty, named) if isinstance(penalty, Tensor) else {}
    scale = _clip_factor(model, gradients, of_penalty, pos) if clipped and of_penalty else 1.0
    return {
        name: torch.where((g == 0) & (not pruned), g, g - scale * of_penalty[name]) if name in of_penalty else g
        for name, g in gradients.items()
    }


def _clip_factor(model: PatchClassifier, gradients: Gradients, of_penalty: Gradients, pos: Positions) -> float:
    """Estimates the factor by which clipping rescaled the gradient; 1 if it cannot be determined.

    It is the least-squares factor between the penalty's gradients, which the attacker can compute, and the shared ones,
    over parameters that no logit depends on.
    """
    (rows, columns), (height, width) = pos.grid, model.patch
    image = model.project.weight.new_zeros(
        1, model.project.weight.shape[1] // (height * width), rows * height, columns * width
    )
    with torch.enable_grad():
        logits, _ = model.forward_with_penalty(image, pos)
    of_logits = _gradient(logits.sum(), {name: model.get_parameter(name) for name in of_penalty})
    pairs = [(of_penalty[name], gradients[name]) for name in of_penalty if name not in of_logits]
    product = sum(float((ours * shared).sum()) for ours, shared in pairs)
    square = sum(float(ours[shared != 0].square().sum()) for ours, shared in pairs)
    return product / square if square else 1.0


def _gradient(output: Tensor, named: Mapping[str, Tensor], grad_output: Tensor | None = None) -> dict[str, Tensor]:
    """Returns name → gradient of ``output`` for those of the tensors ``named`` that it depends on."""
    if not output.requires_grad:
        return {}
    found = torch.autograd.grad(output, list(named.values()), grad_output, retain_graph=True, allow_unused=True)
    return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


def _as_rows(parameter: Tensor, dim: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yields functions that reshape a parameter, or its gradient, to K vectors as wide as the tokens, (K, D)."""
    if parameter.shape[-1] == dim:
        yield lambda x: x.reshape(-1, dim)
    if parameter.ndim == 2 and len(parameter) == dim:
        yield lambda x: x.mT


def _coefficients(added: Tensor, parameter: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the coefficients (K, N) with which K rows of a parameter enter the vectors ``added`` (N, D) to the tokens.

    Each backward pass gives the coefficients of D tokens, one per channel.
    """
    count, dim = added.shape
    columns = []
    for start in range(0, count, dim):
        one_hot = torch.zeros_like(added)
        one_hot[start : start + dim] = torch.eye(dim).to(added)[: count - start]
        (gradient,) = torch.autograd.grad(added, parameter, one_hot, retain_graph=True)
        columns.append(rows(gradient)[:, : count - start])
    return torch.cat(columns, 1)
