"""Linear equations for the gradients at the patch tokens, from shared gradients, for any encoding that adds vectors.

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
class Equations:
    """The linear system M a = y for the gradients a (N, D) at the N patch tokens.

    Args:
        weights: M (m, N).
        seen: y (m, D), rows of the shared gradients.
    """

    weights: Tensor
    seen: Tensor

    @cached_property
    def outright(self) -> bool:
        """Whether the first N rows of M are the identity, as for a position table, so that y contains a."""
        count = self.weights.shape[1]
        return len(self.weights) >= count and torch.equal(self.weights[:count], torch.eye(count).to(self.weights))

    @cached_property
    def rank(self) -> int:
        """Rank of M; the system determines all token gradients if it is N."""
        return self.weights.shape[1] if self.outright else int(torch.linalg.matrix_rank(self.weights))

    def judged(self, rank: int, condition: float, *, prefix: int = 0) -> dict[str, float]:
        """Returns the metrics of a closed form that an attacker can compute too.

        The reconstruction is a guess if the rank of M, or that of the token gradients, is less than the number of tokens.

        Args:
            rank: Rank of the token gradients, at most N + ``prefix``.
            condition: Condition number of the token gradients.
            prefix: Number of prefix tokens.
        """
        count = self.weights.shape[1]
        guess = self.rank < count or rank < count + prefix
        numbers = {
            "equations": self.rank,
            "places": self.condition,
            "rank": rank,
            "condition": condition,
            "guess": guess,
        }
        return {name: float(number) for name, number in numbers.items()}

    @cached_property
    def condition(self) -> float:
        """Condition number of M: the ratio of its largest to its smallest nonzero singular value."""
        if self.outright:
            return 1.0
        values = torch.linalg.svdvals(self.weights)[: self.rank]
        return float(values[0] / values[-1])

    @cached_property
    def growth(self) -> float:
        """Ratio of the std of the noise in the solution a to that in y, for independent noise of equal std."""
        return 1.0 if self.outright else float(torch.linalg.pinv(self.weights).norm()) / self.weights.shape[1] ** 0.5

    def solve(self) -> Tensor:
        """Returns the token gradients (N, D); the least-norm solution if the system is underdetermined."""
        return self.seen[: self.weights.shape[1]] if self.outright else torch.linalg.pinv(self.weights) @ self.seen


def equations(model: PatchClassifier, gradients: Gradients, pos: Positions, *, summed: bool = True) -> Equations:
    """Returns the linear system for the token gradients of one image with positions ``pos``.

    Args:
        summed: Includes the sum over all tokens, which is the gradient of the projection's bias, besides the equations
            of the encoding.
    """
    rows = list(_of_encoding(model, gradients, pos))
    bias = gradients["project.bias"][None]
    rows += (
        [(torch.ones(1, pos.index.shape[1]).to(bias), bias)]
        if summed
        else [(bias.new_zeros(0, pos.index.shape[1]), bias[:0])]
    )
    weights, seen = zip(*rows, strict=True)
    return Equations(torch.cat(weights), torch.cat(seen))


def _of_encoding(model: PatchClassifier, gradients: Gradients, pos: Positions) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields rows of M (m, N) and y (m, D) for each parameter of the encoding whose gradient is M a.

    Whether it is, is tested with a random gradient at the tokens.
    """
    named = dict(model.encoding.named_parameters())
    with torch.enable_grad():
        added = input_vectors(model.encoding, pos, model.project.bias)[0][0]  # (N, D)
    test = torch.randn(added.shape, generator=torch.Generator().manual_seed(0)).to(added)
    for name, actual in _gradient(added, named, test).items():
        for rows in _as_rows(named[name], added.shape[1]):
            weights = _weights(added, named[name], rows)
            expected = weights @ test
            if torch.allclose(rows(actual), expected, atol=1e-6 * float(expected.abs().max())):
                used = weights.abs().amax(1) > 0
                yield weights[used], rows(gradients[f"encoding.{name}"])[used]
                break


def without_penalty(
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
    scale = _scale(model, gradients, of_penalty, pos) if clipped and of_penalty else 1.0
    return {
        name: torch.where((g == 0) & (not pruned), g, g - scale * of_penalty[name]) if name in of_penalty else g
        for name, g in gradients.items()
    }


def _scale(model: PatchClassifier, gradients: Gradients, of_penalty: Gradients, pos: Positions) -> float:
    """Returns the least-squares factor of the penalty's gradients in the shared ones, 1 if it cannot be determined.

    Only parameters that no logit depends on are used.
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


def _gradient(of: Tensor, named: Mapping[str, Tensor], along: Tensor | None = None) -> dict[str, Tensor]:
    """Returns the gradients by name of the tensors that ``of`` depends on; ``along`` is the gradient at ``of``."""
    if not of.requires_grad:
        return {}
    found = torch.autograd.grad(of, list(named.values()), along, retain_graph=True, allow_unused=True)
    return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


def _as_rows(parameter: Tensor, dim: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yields functions that reshape a parameter to rows (K, D), vectors as wide as the tokens."""
    if parameter.shape[-1] == dim:
        yield lambda x: x.reshape(-1, dim)
    if parameter.ndim == 2 and len(parameter) == dim:
        yield lambda x: x.mT


def _weights(added: Tensor, parameter: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the weights (K, N) of each row of a parameter in the vectors ``added`` (N, D) to the tokens.

    Each backward pass gives the weights of D tokens, one per channel.
    """
    count, dim = added.shape
    columns = []
    for start in range(0, count, dim):
        one_hot = torch.zeros_like(added)
        one_hot[start : start + dim] = torch.eye(dim).to(added)[: count - start]
        (gradient,) = torch.autograd.grad(added, parameter, one_hot, retain_graph=True)
        columns.append(rows(gradient)[:, : count - start])
    return torch.cat(columns, 1)
