"""Ridge regression whose penalty is chosen by nested cross-validation, without fitting anything twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

PENALTIES = torch.logspace(-8, 3, 12, dtype=torch.float64)  # in units of the mean variance along a direction


def nested_ridge(x: Tensor, targets: Sequence[Tensor], held: Tensor, inner: Tensor) -> list[Tensor]:
    """What ridge regressions on (N, D) vectors say of places that they have not seen: (S, N, K) for each target (N, K).

    ``held`` (S, k, N) says which places each of k folds leaves out, ``inner`` (S, k, m, N) which of the rest each inner
    fold leaves out as well. For each fold and target the penalty with the least squared error over the inner folds is
    taken. The intercept is free. With Q = residual maker of the fit on all N places, the errors of a fit without the
    places F are Q_FF⁻¹ (Q y)_F exactly: one eigendecomposition serves all fits.
    """
    y = torch.cat(list(targets), 1)
    widths = [target.shape[1] for target in targets]
    outer_left, inner_left = _indexed(held), _indexed(held[:, :, None] | inner)
    counted = torch.gather(inner, 3, inner_left[0]) & inner_left[1]  # of all left out, those that the choice is made on
    errors, costs = [], []
    for maker in _residual_makers(x):
        errors.append(_left_out(maker, y, *outer_left))  # (S, k, M, ΣK)
        squares = _left_out(maker, y, *inner_left).square() * counted[..., None]
        costs.append(squares.sum((2, 3)))  # (S, k, ΣK)
    found = []
    for part, cost, own in zip(
        torch.stack(errors).split(widths, 4), torch.stack(costs).split(widths, 3), targets, strict=True
    ):
        best = cost.sum(3).argmin(0)  # (S, k)
        chosen = part.gather(0, best[None, :, :, None, None].expand(1, -1, -1, *part.shape[3:]))[0]
        found.append(own - _placed(chosen, *outer_left, len(own)))
    return found


def _residual_makers(x: Tensor) -> Iterator[Tensor]:
    """For each penalty λ, (N, N): I − hat matrix of the ridge regression with a free intercept, over λ."""
    rest = x - x.mean(0)
    kernel = rest @ rest.mT
    scale = kernel.trace() / len(x)
    scale = scale if scale > 0 else torch.ones_like(scale)
    values, directions = torch.linalg.eigh(kernel + 2 * scale)  # which makes the intercept's direction the last one
    values, directions = values[:-1].clamp(min=0), directions[:, :-1]
    for penalty in PENALTIES:
        yield directions / (values + penalty * scale) @ directions.mT


def _indexed(left: Tensor) -> tuple[Tensor, Tensor]:
    """(…, N) → (…, M): the places left out, filled up to the longest, and which of these are no filling."""
    most = int(left.sum(-1).max())
    index = left.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)[..., :most]
    return index, left.gather(-1, index)


def _left_out(maker: Tensor, y: Tensor, index: Tensor, there: Tensor) -> Tensor:
    """(S, …, M, K): true less predicted values of left-out places, 0 for filling; one shuffling at a time, for memory."""
    pairs = zip(index, there, strict=True)
    return torch.stack([_solved(maker, maker @ y, *pair) for pair in pairs])


def _solved(maker: Tensor, residuals: Tensor, index: Tensor, there: Tensor) -> Tensor:
    block = maker[index[..., :, None], index[..., None, :]]
    both = there[..., :, None] & there[..., None, :]
    block = torch.where(both, block, torch.eye(block.shape[-1], dtype=block.dtype))
    right = torch.where(there[..., None], residuals[index], 0)
    return torch.cholesky_solve(right, torch.linalg.cholesky(block))


def _placed(errors: Tensor, index: Tensor, there: Tensor, count: int) -> Tensor:
    """(S, k, M, K) → (S, N, K): the errors of all folds, each at its place."""
    at = torch.where(there, index, count).flatten(1, 2)[..., None].expand(-1, -1, errors.shape[-1])
    whole = errors.new_zeros(len(errors), count + 1, errors.shape[-1])
    return whole.scatter(1, at, errors.flatten(1, 2))[:, :count]
