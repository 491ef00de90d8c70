"""The linear system for the gradients at the patch tokens, from shared gradients, for any encoding that adds vectors.

Token i is z_i = W x_i + b + e_i: the patch projection, with weight W and bias b, of the pixels x_i, plus the vector e_i of
the encoding. With the loss l and a_i = ∂l/∂z_i, the gradient of b is Σ a_i. A parameter that enters e_i linearly and
separately per channel (a table, the last layer of an MLP, MJP's vector for unknown positions) has the gradient M a, where
the matrix M depends on positions only. These parameters and their M are found by differentiating the encoding, so that the
equations hold for any encoding and any sum of encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitpos.models.base import PatchClassifier
from vitpos.models.token_embedding import input_vectors
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients


@dataclass(frozen=True)
class LinearSystem:
    """The linear system M a = y of m equations for a (N, D), the gradients of the loss at the N patch tokens of width D.

    Args:
        matrix: M (m, N), which depends on the positions only.
        rhs: y (m, D), rows of the shared gradients of parameters.
    """

    matrix: Tensor
    rhs: Tensor

    @cached_property
    def is_table(self) -> bool:
        """Returns whether the first N rows of ``matrix`` (m, N) are the identity, as for a position table.

        The first N rows of ``rhs`` are then the gradients at the N patch tokens.
        """
        count = self.matrix.shape[1]
        return len(self.matrix) >= count and torch.equal(self.matrix[:count], torch.eye(count).to(self.matrix))

    @cached_property
    def rank(self) -> int:
        """Returns the rank of ``matrix`` (m, N); the gradients at all N patch tokens are determined if it is N."""
        return self.matrix.shape[1] if self.is_table else int(torch.linalg.matrix_rank(self.matrix))

    @cached_property
    def condition(self) -> float:
        """Returns the condition number of ``matrix``: the ratio of its largest to its smallest nonzero singular value."""
        if self.is_table:
            return 1.0
        values = torch.linalg.svdvals(self.matrix)[: self.rank]
        return float(values[0] / values[-1])

    @cached_property
    def noise_gain(self) -> float:
        """Returns the std of the noise in the solution, RMS over tokens, for independent noise of std 1 in ``rhs``."""
        return 1.0 if self.is_table else float(torch.linalg.pinv(self.matrix).norm()) / self.matrix.shape[1] ** 0.5

    def solve(self) -> Tensor:
        """Returns the gradients (N, D) at the patch tokens; the least-norm solution if the system is underdetermined."""
        return self.rhs[: self.matrix.shape[1]] if self.is_table else torch.linalg.pinv(self.matrix) @ self.rhs

    def diagnostics(self, rank: int, condition: float, *, num_prefix: int = 0) -> dict[str, float]:
        """Returns the metrics of a closed-form attack that an attacker can compute without the true image, as name → value.

        ``rank_positions`` and ``condition_positions`` are the rank and condition number of this system; ``rank`` and
        ``condition`` are the arguments. ``underdetermined`` is 1 if this system has a rank less than N, the number of
        patches, or the token gradients have one less than N + ``num_prefix``; otherwise 0.

        Args:
            rank: Rank of the matrix of token gradients.
            condition: Condition number of the matrix of token gradients.
            num_prefix: Number of prefix tokens (CLS and registers) among the tokens.
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
    """Returns the `LinearSystem` whose solution (N, D) is the gradient of the loss at the N patch tokens of one image.

    Args:
        gradients: Parameter name → shared gradient.
        pos: Positions that the attacker assumes for the patches.
        include_sum: Adds to the equations of the encoding one for the sum over all patch tokens, which is the gradient of
            the bias of the patch projection.
    """
    weight = gradients["project.weight"]
    bias = gradients["project.bias"][None] if "project.bias" in gradients else weight.new_zeros(0, len(weight))
    ones = torch.ones(len(bias), pos.index.shape[1]).to(bias)
    rows = [*_encoding_rows(model, gradients, pos), (ones, bias) if include_sum else (ones[:0], bias[:0])]
    matrix, rhs = zip(*rows, strict=True)
    return LinearSystem(torch.cat(matrix), torch.cat(rhs))


def _encoding_rows(model: PatchClassifier, gradients: Gradients, pos: Positions) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields equations M a = y for the gradients a (N, D) at the patch tokens, as pairs of M (m, N) and y (m, D).

    There is one pair for each parameter of the encoding, such as a position table, whose gradient is M a with the same M
    for all D channels; other parameters are skipped. Whether this holds is tested with a random a. y is the shared
    gradient of the parameter, from ``gradients`` (parameter name → tensor), as m vectors of width D.
    """
    named = dict(model.encoding.named_parameters())
    with torch.enable_grad():
        added = input_vectors(model.encoding, pos, model.project.weight[:, 0])[0][0]  # (N, D)
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
    """Returns ``gradients`` (parameter name → tensor) minus the gradient of the encoding's penalty.

    The penalty is the loss that some encodings add to the cross-entropy. It depends on weights and positions but not on
    the image, so that an attacker can compute its gradient.

    Args:
        pos: Positions that the attacker assumes for the patches.
        clipped: The client may have rescaled the gradient. The factor is estimated from the parameters that affect only
            the penalty, such as MJP's localization head; without such parameters, as in
            ``mjp(localization='pca')``, it is taken to be 1.
        pruned: The client set small numbers to zero. If False, numbers that are exactly zero are left unchanged, because
            they belong to positions that the client hid and the attacker assumes to be known.
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
    """Returns an estimate of the factor by which clipping rescaled the gradient; 1 if it cannot be determined.

    It is the factor that best maps the gradients of the encoding's penalty (a loss that some encodings add), which the
    attacker can compute, to the shared gradients. Only parameters that do not affect the logits are used.

    Args:
        gradients: Parameter name → shared gradient.
        of_penalty: Parameter name → gradient of the penalty.
        pos: Positions that the attacker assumes for the patches.
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
    """Returns name → gradient of ``output`` for those tensors in ``named`` (name → tensor) that it depends on.

    ``grad_output`` is the gradient at ``output``, with its shape; it may be left out for a scalar.
    """
    if not output.requires_grad:
        return {}
    found = torch.autograd.grad(output, list(named.values()), grad_output, retain_graph=True, allow_unused=True)
    return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


def _as_rows(parameter: Tensor, dim: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yields functions that reshape a parameter, or its gradient, to K vectors of the token width D = ``dim``: (K, D).

    There is one function if the last dimension is D, and one, the transpose, if the parameter is a matrix with D rows.
    """
    if parameter.shape[-1] == dim:
        yield lambda x: x.reshape(-1, dim)
    if parameter.ndim == 2 and len(parameter) == dim:
        yield lambda x: x.mT


def _coefficients(added: Tensor, parameter: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the coefficients (K, N) of a sum: vector n in ``added`` is Σ_k coefficient (k, n) · row k of ``parameter``.

    They are correct only if the vectors depend linearly on the parameter, which the caller tests.

    Args:
        added: (N, D), the vectors that the encoding adds to the N patch tokens.
        parameter: Parameter of the encoding that the vectors depend on, with K rows of width D.
        rows: Reshapes the gradient of ``parameter`` to (K, D).
    """
    count, dim = added.shape
    columns = []
    for start in range(0, count, dim):
        one_hot = torch.zeros_like(added)
        one_hot[start : start + dim] = torch.eye(dim).to(added)[: count - start]
        (gradient,) = torch.autograd.grad(added, parameter, one_hot, retain_graph=True)
        columns.append(rows(gradient)[:, : count - start])
    return torch.cat(columns, 1)
