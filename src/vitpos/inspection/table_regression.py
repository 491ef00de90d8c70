"""Predicts grid positions from position vectors by cross-validated regression (MJP, CVPR 2023: Table 8).

Every prediction comes from a fit that did not see the position. MJP fits the minimum-norm solution, since there are
fewer positions than dimensions; ridge regression with a penalty chosen on inner folds is the fairer test.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.inspection.table_stats import (
    CONSTANT,
    INSTALL,
    LARGE,
    MAX_POSITIONS,
    center,
    column_space,
    flatten_table,
    grid_coordinates,
    subsample,
    subsample_text,
)
from vitpos.patches import seeded_permutations

LINEAR, EXTRA = ("ridge", "minimum_norm"), ("svm", "mlp")
PENALTIES = torch.logspace(-8, 3, 12, dtype=torch.float64)  # in units of the mean squared norm of centered vectors


@dataclass(frozen=True)
class Regression:
    """Scores of regressions from position vectors to positions; ``methods`` is method → metric → score.

    ``methods`` is empty, with a ``reason``, for fewer than 4 positions. The metrics concern two predicted quantities:
    ``index``, the row-major index of a position from 0, and ``grid``, its row and column in patches (mean of both).
    ``…_mae``: mean absolute error on the held-out positions of a fold, mean over folds; ``…_train_mae``: the same on
    the positions that were fitted, far below ``…_mae`` if the fit memorizes. ``…_r2``: R² over all held-out positions;
    1 is perfect, 0 a constant predictor. ``…_offset_mae``: error of the signed offset between two held-out positions of
    a fold; absent if a fold holds one position. Each is a mean over shufflings of the folds, with its standard
    deviation ``…_std``. ``subsampled`` says which positions of a large table were used. If all vectors are equal, the
    scores are those of a constant predictor and ``reason`` says so.
    """

    methods: dict[str, dict[str, float]]
    reason: str = ""
    subsampled: str = ""


def regression(
    table: Tensor, *, methods: Sequence[str] = LINEAR, folds: int = 5, shuffles: int | None = None, seed: int = 0
) -> Regression:
    """Returns cross-validated scores of predicting the index, row and column of a position from its vector.

    The vectors are those of a table (R, C, D).

    Offsets between positions are differences of predicted positions. A linear fit of signed offsets on differences of
    vectors, over all training pairs, would have the same weights. MJP (CVPR 2023) predicts |offset| instead, which is
    not linear in a difference of vectors, and its 2-D targets overflow their 8-bit type.

    Args:
        methods: ``ridge`` (penalty chosen on inner folds), ``minimum_norm`` (least squares with intercept, as
            scikit-learn's LinearRegression), ``svm`` and ``mlp`` (scikit-learn's SVR and MLPRegressor on standardized
            vectors and targets; minutes).
        folds: number of folds, of the outer and of the inner cross-validation.
        shuffles: repetitions with newly shuffled folds; by default 10, or 2,000 / N (at least 1) if there are more than
            200 positions N.
    """
    used, steps = subsample(table)
    x, grid = center(flatten_table(used)), (used.shape[0], used.shape[1])
    shuffles = min(10, max(1, MAX_POSITIONS // len(x))) if shuffles is None else shuffles
    unknown = [name for name in methods if name not in LINEAR + EXTRA]
    if unknown or folds < 2 or shuffles < 1:
        raise InputError(
            f"regression got methods={tuple(methods)}, folds={folds}, shuffles={shuffles}; "
            f"choose from {', '.join(LINEAR + EXTRA)}, with folds >= 2 and shuffles >= 1"
        )
    if len(x) < 4:
        return Regression({}, f"{len(x)} positions are too few for nested cross-validation")
    coords = grid_coordinates(grid) * torch.tensor(steps)  # in patches of the whole table
    targets = {"index": coords @ torch.tensor([[table.shape[1]], [1]], dtype=coords.dtype), "grid": coords}
    orders, folds = seeded_permutations(shuffles, len(x), seed=seed), min(folds, len(x))
    held_out, (u, values) = _fold_masks(orders, folds), column_space(x)
    scores = {}
    for method in methods:
        if method == "ridge":
            predictions = nested_ridge(u, values, list(targets.values()), orders, folds)
        elif method == "minimum_norm":
            predictions = _minimum_norm(u, values, list(targets.values()), held_out)
        else:
            predictions = [_sklearn(method, x, target, held_out, seed) for target in targets.values()]
        pairs = zip(targets.items(), predictions, strict=True)
        scores[method] = {k: v for (name, y), one in pairs for k, v in _scores(name, y, one, held_out).items()}
    return Regression(scores, "" if x.any() else CONSTANT, subsample_text(steps))


def penalty_grid(positions: int) -> Tensor:
    """Returns the ridge penalties to try: 12 from 10⁻⁸ to 10³, or every other one for more than 400 ``positions``.

    The unit is the mean squared norm of the centered position vectors.
    """
    return PENALTIES if positions <= LARGE else PENALTIES[1::2]


def nested_ridge(u: Tensor, values: Tensor, targets: Sequence[Tensor], orders: Tensor, folds: int) -> list[Tensor]:
    """Returns ridge predictions (S, folds, N, K) for each target (N, K), by nested cross-validation in S shufflings.

    Entry [s, f] is predicted, at all N positions, by the fit without fold f of shuffling s. Its penalty minimizes the
    squared error over the inner folds, per fold and target; the intercept is not penalized.

    Nothing is fitted twice. With Q = (I − hat matrix) / penalty of the fit on all N positions, the errors at the
    positions F of a fit without them are Q_FF⁻¹ (Q y)_F, and the Q of that fit on the remaining positions T is
    Q_TT − Q_TF Q_FF⁻¹ Q_FT.

    Args:
        u, values: left singular vectors (N, r) and singular values (r,) of the centered vectors to predict from.
        targets: each (N, K), K numbers to predict at each of N positions.
        orders: (S, N), shuffled positions. Each fold holds out a contiguous part of an order, and the inner folds split
            the rest likewise.
        folds: number of outer folds, and of inner folds.
    """
    y = torch.cat(list(targets), 1)
    widths = [target.shape[1] for target in targets]
    scale = values.square().sum() / len(y) if len(values) else torch.ones_like(y[0, 0])
    penalties = penalty_grid(len(y)) * scale
    predictions = y.repeat(len(orders), folds, 1, 1)
    for shuffling, order in zip(predictions, orders, strict=True):
        q = _residual_makers(u[order], values.square(), penalties)  # (P, N, N)
        residuals = q @ y[order]
        for prediction, fold in zip(shuffling, torch.arange(len(y)).tensor_split(folds), strict=True):
            errors, costs = _without_fold(q, residuals, penalties, fold, folds)
            best = [cost.sum(1).argmin() for cost in costs.split(widths, 1)]
            chosen = [part[at] for part, at in zip(errors.split(widths, 2), best, strict=True)]
            prediction[order] -= torch.cat(chosen, 1)
    return list(predictions.split(widths, 3))


def _residual_makers(u: Tensor, squares: Tensor, penalties: Tensor) -> Tensor:
    """Returns matrices Q (P, N, N), one for each of P penalties, with Q y = (residuals of the ridge fit of y) / penalty.

    Args:
        u: (N, r), left singular vectors of the centered position vectors.
        squares: (r,), squared singular values of the centered position vectors.
    """
    q = u / (squares + penalties[:, None])[:, None] @ u.mT
    if u.shape[1] < len(u) - 1:  # directions in which the vectors do not vary
        q += (torch.eye(len(u), dtype=u.dtype) - 1 / len(u) - u @ u.mT) / penalties[:, None, None]
    return q


def _without_fold(q: Tensor, residuals: Tensor, penalties: Tensor, fold: Tensor, folds: int) -> tuple[Tensor, Tensor]:
    """Fits K targets y (N, K) by ridge regression without the positions of one fold, for each of P penalties.

    Returns the errors y − ŷ (P, N, K) at all positions, and the squared errors (P, K) over the inner folds, which choose
    the penalty.

    Args:
        q: (P, N, N), maps y to residuals / penalty of the fit on all positions.
        residuals: (P, N, K), q @ y.
        fold: (M,), consecutive indices of the positions held out.
        folds: number of inner folds.
    """
    start, stop, count = int(fold[0]), int(fold[-1]) + 1, q.shape[-1]
    rows = q[:, start:stop]
    root = torch.linalg.cholesky(rows[..., start:stop])
    halves = torch.linalg.solve_triangular(root, torch.cat([rows, residuals[:, start:stop]], 2), upper=False)
    rows, right = halves.split([count, residuals.shape[2]], 2)  # (P, M, N), (P, M, K)
    rest_residuals = residuals - rows.mT @ right  # (P, N, K)
    errors = rest_residuals * penalties[:, None, None]
    errors[:, start:stop] = torch.linalg.solve_triangular(root.mT, right, upper=True)
    rest = torch.cat([torch.arange(start), torch.arange(stop, count)])
    costs = torch.zeros_like(errors[:, 0])
    part = torch.arange(len(rest)) * min(folds, len(rest)) // len(rest)
    for inner in rest.split(part.bincount().tolist()):
        block = q[:, inner][..., inner] - rows[..., inner].mT @ rows[..., inner]
        costs += torch.cholesky_solve(rest_residuals[:, inner], torch.linalg.cholesky(block)).square().sum(1)
    return errors, costs


def _fold_masks(orders: Tensor, folds: int) -> Tensor:
    """Returns bool masks (S, folds, N), True for the positions that a fold of one of S shufflings holds out.

    The folds are contiguous parts of the permutations ``orders`` (S, N).
    """
    sizes = torch.tensor([len(part) for part in torch.arange(orders.shape[1]).tensor_split(folds)])
    fold = torch.arange(folds).repeat_interleave(sizes)[orders.argsort(1)]  # (S, N)
    return fold[:, None] == torch.arange(folds)[:, None]


def _minimum_norm(u: Tensor, values: Tensor, targets: Sequence[Tensor], held_out: Tensor) -> list[Tensor]:
    """Returns predictions (S, folds, N, K) of minimum-norm least squares with intercept, for each target.

    Args:
        u, values: left singular vectors (N, r) and singular values (r,) of the vectors to predict from.
        targets: each (N, K), K numbers to predict at each of N positions.
        held_out: (S, folds, N) bool, True for positions left out of the fit, for each fold of S shufflings.
    """
    y = torch.cat(list(targets), 1)
    x = u * values if len(values) else y.new_zeros(len(y), 1)
    predictions = torch.stack([_least_squares(x, y, masks) for masks in held_out])
    return list(predictions.split([target.shape[1] for target in targets], 3))


def _least_squares(x: Tensor, y: Tensor, held_out: Tensor) -> Tensor:
    """Returns predictions (folds, N, K) of K targets y (N, K) from vectors x (N, D) by one least-squares fit per fold.

    A fit leaves out the positions where its mask in ``held_out`` (folds, N) is True, and predicts all positions.
    """
    train = (~held_out).to(x.dtype)
    weights = train / train.sum(1, keepdim=True)
    x_centered, y_centered = x - (weights @ x)[:, None], y - (weights @ y)[:, None]  # (folds, N, …)
    a, b = x_centered * train[..., None], y_centered * train[..., None]
    return x_centered @ torch.linalg.lstsq(a, b, driver="gelsy").solution + (weights @ y)[:, None]


def _sklearn(method: str, x: Tensor, y: Tensor, held_out: Tensor, seed: int) -> Tensor:
    """Returns predictions (S, folds, N, K) of K targets y (N, K) from vectors x (N, D) by scikit-learn.

    There is one fit for each fold of S shufflings, without the positions where ``held_out`` (S, folds, N) is True.
    ``method`` is ``"svm"`` (SVR) or ``"mlp"`` (MLPRegressor).
    """
    predictions = y.repeat(*held_out.shape[:2], 1, 1).numpy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Stochastic Optimizer: Maximum iterations")
        for shuffling, masks in zip(predictions, held_out.numpy(), strict=True):
            for prediction, mask in zip(shuffling, masks, strict=True):
                fitted = _regressor(method, seed).fit(x.numpy()[~mask], y.numpy()[~mask])
                prediction[:] = fitted.predict(x.numpy())
    return torch.from_numpy(predictions)


def _regressor(method: str, seed: int) -> Any:
    try:
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.multioutput import MultiOutputRegressor
        from sklearn.neural_network import MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR
    except ImportError as error:
        raise InputError(f"regression by '{method}' needs scikit-learn ({error}); {INSTALL}") from error
    learner = MultiOutputRegressor(SVR() if method == "svm" else MLPRegressor(random_state=seed))
    return TransformedTargetRegressor(make_pipeline(StandardScaler(), learner), transformer=StandardScaler())


def _scores(name: str, y: Tensor, predictions: Tensor, held_out: Tensor) -> dict[str, float]:
    """Returns metric → score for one target, called ``name``: mean over S shufflings, and standard deviation (``…_std``).

    The metrics are ``…_mae``, ``…_r2``, ``…_train_mae`` and, if all folds hold out two positions or more,
    ``…_offset_mae``; ``…`` is the name, as in ``grid_mae``.

    Args:
        y: (N, K), K true numbers at each of N positions.
        predictions: (S, folds, N, K), by the fit of each fold in S shufflings.
        held_out: (S, folds, N) bool, True for the positions that a fold holds out.
    """
    errors = predictions - y
    absolute = errors.abs().mean(3)
    held_out_errors = (errors * held_out[..., None]).sum(1)  # (S, N, K)
    varies = (y != y[0]).any(0)
    r2 = 1 - (held_out_errors.square().sum(1) / (y - y.mean(0)).square().sum(0))[:, varies].mean(1)
    metrics = {"mae": _fold_mean(absolute, held_out), "r2": r2, "train_mae": _fold_mean(absolute, ~held_out)}
    if (held_out.sum(2) > 1).all():
        metrics["offset_mae"] = torch.stack([_offset_mae(*one) for one in zip(held_out_errors, held_out, strict=True)])
    return {
        f"{name}_{metric}{suffix}": number.item()
        for metric, values in metrics.items()
        for suffix, number in (("", values.mean()), ("_std", values.std(correction=0)))
    }


def _fold_mean(values: Tensor, masks: Tensor) -> Tensor:
    """Returns (S,): the mean of ``values`` (S, folds, N) over positions where ``masks`` is True, then over folds.

    S is the number of shufflings; ``masks`` (S, folds, N) are bool.
    """
    return ((values * masks).sum(2) / masks.sum(2)).mean(1)


def _offset_mae(errors: Tensor, held_out: Tensor) -> Tensor:
    """Returns the mean absolute error of the predicted offset between two positions that a fold holds out: a scalar.

    Args:
        errors: (N, K), predicted minus true values of K coordinates.
        held_out: (folds, N) bool, True for the positions that a fold holds out.
    """
    means = []
    for mask in held_out:
        differences = (errors[mask][:, None] - errors[mask]).abs().mean(2)  # (M, M)
        means.append(differences.sum() / (len(differences) * (len(differences) - 1)))
    return torch.stack(means).mean()
