"""What shared gradients say of the gradient at each patch token, for any encoding that adds to tokens.

A token is z_i = W x_i + b + e_i, where e_i is what the encoding adds. With a_i = ∂l/∂z_i, the gradient of b is Σ a_i, and
the gradient of every parameter that reaches e_i channel by channel (a table, the last layer of a network, the unknown
vector of the masked jigsaw puzzle) is M a for a matrix M of weights that depends on places alone. Which parameters these
are, and their M, is found by asking the encoding itself, so that it holds for any encoding and any sum of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitpos.models.base import PatchClassifier
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients


@dataclass(frozen=True)
class Equations:
    """M a = y: the weights (m, N) of what is seen (m, D), for the gradients a (N, D) at the N patch tokens."""

    weights: Tensor
    seen: Tensor

    @cached_property
    def outright(self) -> bool:
        """Whether a table says the gradients of all places, one by one and first of all."""
        count = self.weights.shape[1]
        return len(self.weights) >= count and torch.equal(self.weights[:count], torch.eye(count).to(self.weights))

    @cached_property
    def rank(self) -> int:
        """How many of the N places they tell apart."""
        return self.weights.shape[1] if self.outright else int(torch.linalg.matrix_rank(self.weights))

    def judged(self, rank: int, condition: float, *, prefix: int = 0) -> dict[str, float]:
        """What an attack says of itself: it is a guess if equations or rank are too few for all tokens."""
        places = self.weights.shape[1]
        guess = self.rank < places or rank < places + prefix
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
        """By how much an error of what is seen may grow on the way to the gradients at the tokens."""
        if self.outright:
            return 1.0
        values = torch.linalg.svdvals(self.weights)[: self.rank]
        return float(values[0] / values[-1])

    @cached_property
    def growth(self) -> float:
        """By how much the deviation of what is seen does grow on that way, if it is the same everywhere."""
        return 1.0 if self.outright else float(torch.linalg.pinv(self.weights).norm()) / self.weights.shape[1] ** 0.5

    def solve(self) -> Tensor:
        """(N, D): the gradients at the tokens; the smallest ones that fit where the equations are too few."""
        return self.seen[: self.weights.shape[1]] if self.outright else torch.linalg.pinv(self.weights) @ self.seen


def equations(model: PatchClassifier, gradients: Gradients, pos: Positions, *, summed: bool = True) -> Equations:
    """All that the gradients of one picture say of its tokens, if its places are those of ``pos``.

    ``summed``: with the sum over all tokens, which the bias of the projection says, beside what the encoding says.
    """
    found = list(_of_encoding(model, gradients, pos))
    bias = gradients["project.bias"][None]
    found += (
        [(torch.ones(1, pos.cells.shape[1]).to(bias), bias)]
        if summed
        else [(bias.new_zeros(0, pos.cells.shape[1]), bias[:0])]
    )
    weights, seen = zip(*found, strict=True)
    return Equations(torch.cat(weights), torch.cat(seen))


def _of_encoding(model: PatchClassifier, gradients: Gradients, pos: Positions) -> Iterator[tuple[Tensor, Tensor]]:
    """The weights and what is seen of each parameter that reaches what is added channel by channel."""
    named = dict(model.encoding.named_parameters())
    with torch.enable_grad():
        added = what_is_added(model, pos)[0]  # (N, D)
    test = torch.randn(added.shape, generator=torch.Generator().manual_seed(0)).to(added)
    for name, tested in _gradient(added, named, test).items():
        for rows in _as_rows(named[name], added.shape[1]):
            weights = _weights(added, named[name], rows)
            expected = weights @ test
            if torch.allclose(rows(tested), expected, atol=1e-6 * float(expected.abs().max())):
                useful = weights.abs().amax(1) > 0
                yield weights[useful], rows(gradients[f"encoding.{name}"])[useful]
                break


def without_penalty(
    model: PatchClassifier, gradients: Gradients, pos: Positions, *, clipped: bool = False, pruned: bool = False
) -> Gradients:
    """The gradients less those of the encoding's penalty, which depends on weights and places and on no picture.

    If a client ``clipped``, both were scaled: by how much, those parameters say that the penalty alone reaches, such as
    its head; if there are none, as in ``mjp(dal='pca')``, that is not known and nothing is assumed. Unless numbers
    were left out (``pruned``), a gradient of exactly zero stays: a client hid a place that an attacker takes for known.
    """
    named = {f"encoding.{name}": parameter for name, parameter in model.encoding.named_parameters()}
    with torch.enable_grad():
        penalty = model.encoding.penalty(pos, model.encoding)
    known = _gradient(penalty, named) if isinstance(penalty, Tensor) else {}
    scale = _scale(model, gradients, known, pos) if clipped and known else 1.0
    return {
        name: torch.where((g == 0) & (not pruned), g, g - scale * known[name]) if name in known else g
        for name, g in gradients.items()
    }


def _scale(model: PatchClassifier, gradients: Gradients, known: Gradients, pos: Positions) -> float:
    """How many times the ``known`` gradients of a penalty are in those that were shared, by what no logit reaches."""
    (rows, columns), (height, width) = pos.grid, model.patch
    picture = model.project.weight.new_zeros(
        1, model.project.weight.shape[1] // (height * width), rows * height, columns * width
    )
    with torch.enable_grad():
        logits, _ = model.step(picture, pos)
    reached = _gradient(logits.sum(), {name: model.get_parameter(name) for name in known})
    alone = [(known[name], gradients[name]) for name in known if name not in reached]
    shared = sum(float((one * other).sum()) for one, other in alone)
    whole = sum(float(one[other != 0].square().sum()) for one, other in alone)
    return shared / whole if whole else 1.0


def what_is_added(model: PatchClassifier, pos: Positions) -> Tensor:
    """(1, N, D): what the encoding adds to tokens, at once and, if it only adds there too, before the first block."""
    count, dim = pos.cells.shape[1], model.geometry.dim
    at_once = model.encoding.embed(model.project.weight.new_zeros(1, count, dim), pos)
    return model.encoding.refresh(at_once, pos, 0) if only_adds(model, pos) else at_once


def only_adds(model: PatchClassifier, pos: Positions) -> bool:
    """Whether what the encoding does before the first block is the same for all tokens, unlike a convolution."""
    shape = 1, pos.cells.shape[1], model.geometry.dim
    tokens = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(model.project.weight)
    with torch.no_grad():
        moved = model.encoding.refresh(tokens, pos, 0) - model.encoding.refresh(torch.zeros_like(tokens), pos, 0)
    return torch.allclose(moved, tokens, atol=1e-6)


def _gradient(of: Tensor, named: Mapping[str, Tensor], along: Tensor | None = None) -> dict[str, Tensor]:
    """Gradients by name, of those that there are."""
    if not of.requires_grad:
        return {}
    found = torch.autograd.grad(of, list(named.values()), along, retain_graph=True, allow_unused=True)
    return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


def _as_rows(parameter: Tensor, dim: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """The ways to read a parameter's shape as rows (K, D) of vectors that are added to tokens."""
    if parameter.shape[-1] == dim:
        yield lambda x: x.reshape(-1, dim)
    if parameter.ndim == 2 and len(parameter) == dim:
        yield lambda x: x.mT


def _weights(added: Tensor, parameter: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    """(K, N): how much of each row each token (N, D) was given; as many tokens are asked at once as there are channels."""
    count, dim = added.shape
    columns = []
    for start in range(0, count, dim):
        asked = torch.zeros_like(added)
        asked[start : start + dim] = torch.eye(dim).to(added)[: count - start]
        (found,) = torch.autograd.grad(added, parameter, asked, retain_graph=True)
        columns.append(rows(found)[:, : count - start])
    return torch.cat(columns, 1)
