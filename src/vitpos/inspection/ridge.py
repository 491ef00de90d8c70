"""Ridge regression whose penalty is chosen by nested cross-validation, without fitting anything twice."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vitpos.inspection.table_stats import MANY

PENALTIES = torch.logspace(-8, 3, 12, dtype=torch.float64)  # in units of the mean variance along a direction


def penalties(places: int) -> Tensor:
    """Those that are tried: all, or every other one where there are more than ``MANY`` places."""
    return PENALTIES if places <= MANY else PENALTIES[1::2]


def nested_ridge(
    directions: Tensor, values: Tensor, targets: Sequence[Tensor], orders: Tensor, folds: int
) -> list[Tensor]:
    """What ridge regressions on centred vectors say of all places: (S, k, N, K) for each target (N, K).

    Vectors are given by their directions (N, r) and singular values (r,), which is all that a regression sees of them.
    Of places in a shuffled order (S, N), each of k folds leaves out a stretch, and so does each inner fold of the rest.
    For each fold and target the penalty with the least squared error over the inner folds is taken. The intercept is
    free. With Q = residual maker of the fit on all N places over its penalty, the errors of a fit without the places F are
    Q_FF⁻¹ (Q y)_F exactly, and that fit has the Q of the rest T less Q_TF Q_FF⁻¹ Q_FT: one decomposition serves all fits.
    """
    y = torch.cat(list(targets), 1)
    widths = [target.shape[1] for target in targets]
    scale = values.square().sum() / len(y) if len(values) else torch.ones_like(y[0, 0])
    strengths = penalties(len(y)) * scale
    said = y.repeat(len(orders), folds, 1, 1)
    for one, order in zip(said, orders, strict=True):
        makers = _residual_makers(directions[order], values.square(), strengths)  # (P, N, N)
        residuals = makers @ y[order]
        for whole, fold in zip(one, torch.arange(len(y)).tensor_split(folds), strict=True):
            errors, costs = _left_out(makers, residuals, strengths, fold, folds)
            best = [cost.sum(1).argmin() for cost in costs.split(widths, 1)]
            chosen = [part[at] for part, at in zip(errors.split(widths, 2), best, strict=True)]
            whole[order] -= torch.cat(chosen, 1)
    return list(said.split(widths, 3))


def _residual_makers(z: Tensor, squares: Tensor, strengths: Tensor) -> Tensor:
    """(P, N, N): for each penalty, I − hat matrix of the ridge regression with a free intercept, over the penalty."""
    makers = z / (squares + strengths[:, None])[:, None] @ z.mT
    if z.shape[1] < len(z) - 1:  # directions along which vectors do not differ, and no regression tells anything
        makers += (torch.eye(len(z), dtype=z.dtype) - 1 / len(z) - z @ z.mT) / strengths[:, None, None]
    return makers


def _left_out(makers: Tensor, residuals: Tensor, strengths: Tensor, fold: Tensor, folds: int) -> tuple[Tensor, Tensor]:
    """Of fits without a fold: their errors (P, N, K) of all places, and their squared errors (P, K) over the inner folds.

    Errors are true less predicted values.
    """
    start, stop, count = int(fold[0]), int(fold[-1]) + 1, makers.shape[-1]
    across = makers[:, start:stop]
    root = torch.linalg.cholesky(across[..., start:stop])
    halves = torch.linalg.solve_triangular(root, torch.cat([across, residuals[:, start:stop]], 2), upper=False)
    across, towards = halves.split([count, residuals.shape[2]], 2)  # (P, M, N), (P, M, K)
    left = residuals - across.mT @ towards  # (P, N, K)
    errors = left * strengths[:, None, None]
    errors[:, start:stop] = torch.linalg.solve_triangular(root.mT, towards, upper=True)
    rest = torch.cat([torch.arange(start), torch.arange(stop, count)])
    costs = torch.zeros_like(errors[:, 0])
    part = torch.arange(len(rest)) * min(folds, len(rest)) // len(rest)
    for places in rest.split(part.bincount().tolist()):
        own = makers[:, places][..., places] - across[..., places].mT @ across[..., places]
        costs += torch.cholesky_solve(left[:, places], torch.linalg.cholesky(own)).square().sum(1)
    return errors, costs
