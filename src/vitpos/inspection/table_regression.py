"""Can the place be told from its vector? (MJP, CVPR 2023: Table 8.)

Every place is predicted by fits that have not seen it. Table 8 takes the minimum-norm solution, because there are fewer
places than dimensions; a ridge regression whose penalty is chosen without the held-out places is the fairer question.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry
from vitpos.encodings.sinusoidal import Sinusoidal
from vitpos.errors import UserError
from vitpos.inspection.ridge import nested_ridge
from vitpos.inspection.table_stats import INSTALL, MOST, centred, coordinates, spanned, taken, thinned, vectors
from vitpos.patches import generator_of, permutations
from vitpos.positions import Positions

LINEAR, SLOW = ("ridge", "minimum_norm"), ("svm", "mlp")


@dataclass(frozen=True)
class Regression:
    """How well each method tells the place; empty, with a reason, where there are too few places.

    Where all vectors are the same there is a reason beside the numbers, which are those of whoever says the mean.
    ``taken`` says which places, if not all: of large tables every 2nd row and column, or fewer.
    For each method, of the row-major number of the place from 0 (``index``) and of its row and column (``grid``, in
    patches, mean over both): ``…_mae``, the mean absolute error over the held-out places of a fold, mean over folds;
    ``…_r2``, 1 − squared error over variance, of all held-out places together (of ``grid``: mean over row and column, or
    the one that varies); 1 is perfect and 0 as good as always saying the mean. ``…_fit_mae``: as ``…_mae``, of the places
    that a fit has seen; far below it, they are learned by heart. ``…_offset_mae``: the error of signed offsets between two
    held-out places of a fold, left out where a fold has one place. Each is the mean over shufflings, and ``…_std`` its
    deviation.
    """

    methods: dict[str, dict[str, float]]
    reason: str = ""
    taken: str = ""


def regression(
    table: Tensor, *, methods: Sequence[str] = LINEAR, folds: int = 5, shuffles: int | None = None, seed: int = 0
) -> Regression:
    """Predicts the places of a table (R, C, D) from its vectors, by cross-validation on shuffled places.

    ridge: the penalty is chosen on inner folds. minimum_norm: least squares with an intercept, as scikit-learn's
    LinearRegression. svm, mlp: scikit-learn's SVR and MLPRegressor on standardised vectors and targets; minutes.
    MJP's relative regression predicts |offset|, which no linear function of a difference of vectors is, and its 2-D
    targets wrap in 8 bits. A linear fit of signed offsets on differences, over all pairs of training places, has the
    weights of the fit of places on vectors, so offsets here are differences of predicted places.
    ``shuffles`` are 10 unless given, or fewer of large tables: 2,000 places in all, but at least 1. Of a table of more
    than 2,000 places every k-th row and column is taken; places keep their numbers, and errors are in patches all the same.
    """
    few, steps = thinned(table)
    x, grid = centred(vectors(few)), (few.shape[0], few.shape[1])
    shuffles = min(10, max(1, MOST // len(x))) if shuffles is None else shuffles
    wrong = [name for name in methods if name not in LINEAR + SLOW]
    if wrong or folds < 2 or shuffles < 1:
        raise UserError(
            f"regression got methods={tuple(methods)}, folds={folds}, shuffles={shuffles}; "
            f"take some of {', '.join(LINEAR + SLOW)}, 2 folds or more and 1 shuffling or more"
        )
    if len(x) < 4:
        return Regression({}, f"{len(x)} places are too few to hold some of them out twice")
    places = coordinates(grid) * torch.tensor(steps)
    targets = {"index": places @ torch.tensor([[table.shape[1]], [1]], dtype=places.dtype), "grid": places}
    orders, folds = permutations(shuffles, len(x), seed=seed), min(folds, len(x))
    held, turned = _held(orders, folds), spanned(x)
    found = {}
    for method in methods:
        if method == "ridge":
            said = nested_ridge(*turned, list(targets.values()), orders, folds)
        elif method == "minimum_norm":
            said = _minimum_norm(*turned, list(targets.values()), held)
        else:
            said = [_learned(method, x, target, held, seed) for target in targets.values()]
        pairs = zip(targets.items(), said, strict=True)
        found[method] = {k: v for (name, target), one in pairs for k, v in _scores(name, target, one, held).items()}
    return Regression(found, "" if x.any() else "all position vectors are the same", taken(steps))


def baselines(table: Tensor, *, seed: int = 0) -> dict[str, Tensor]:
    """Tables on the same grid to compare with: ``noise``, white and of the table's deviation; ``sin_cos``, fixed 2-D waves.

    The waves have the table's width, or the next that 4 divides.
    """
    rows, columns, width = table.shape
    noise = torch.randn(table.shape, generator=generator_of(seed), dtype=torch.float64)
    width += -width % 4
    waves = Sinusoidal(Geometry(dim=width, heads=1, depth=1, grid=(rows, columns)))
    zeros = torch.zeros(1, rows * columns, width, dtype=torch.float64)
    return {
        "noise": noise * table.detach().cpu().double().std(correction=0),
        "sin_cos": waves.embed(zeros, Positions.of((rows, columns)))[0].unflatten(0, (rows, columns)),
    }


def _held(orders: Tensor, folds: int) -> Tensor:
    """(S, k, N): which places each fold holds out, a stretch of the order (S, N) that they are shuffled into."""
    sizes = torch.tensor([len(part) for part in torch.arange(orders.shape[1]).tensor_split(folds)])
    fold = torch.arange(folds).repeat_interleave(sizes)[orders.argsort(1)]  # (S, N)
    return fold[:, None] == torch.arange(folds)[:, None]


def _minimum_norm(directions: Tensor, values: Tensor, targets: Sequence[Tensor], held: Tensor) -> list[Tensor]:
    """Least squares with an intercept, of all solutions the shortest: (S, k, N, K) for each target (N, K)."""
    y = torch.cat(list(targets), 1)
    z = directions * values if len(values) else y.new_zeros(len(y), 1)
    said = torch.stack([_predicted(z, y, one) for one in held])
    return list(said.split([target.shape[1] for target in targets], 3))


def _predicted(z: Tensor, y: Tensor, held: Tensor) -> Tensor:
    """(k, N, K): what fits that each hold out a fold (k, N) say of all places."""
    train = (~held).to(z.dtype)
    share = train / train.sum(1, keepdim=True)
    from_mean, from_target = z - (share @ z)[:, None], y - (share @ y)[:, None]  # (k, N, …)
    weights = torch.linalg.lstsq(from_mean * train[..., None], from_target * train[..., None], driver="gelsy").solution
    return from_mean @ weights + (share @ y)[:, None]


def _learned(method: str, x: Tensor, y: Tensor, held: Tensor, seed: int) -> Tensor:
    """(S, k, N, K): what scikit-learn's regressors say of all places."""
    said = y.repeat(*held.shape[:2], 1, 1).numpy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Stochastic Optimizer: Maximum iterations")
        for one, folds in zip(said, held.numpy(), strict=True):
            for whole, left in zip(one, folds, strict=True):
                whole[:] = _regressor(method, seed).fit(x.numpy()[~left], y.numpy()[~left]).predict(x.numpy())
    return torch.from_numpy(said)


def _regressor(method: str, seed: int) -> Any:
    try:
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.multioutput import MultiOutputRegressor
        from sklearn.neural_network import MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR
    except ImportError as error:
        raise UserError(f"regression by '{method}' needs scikit-learn ({error}); {INSTALL}") from error
    learner = MultiOutputRegressor(SVR() if method == "svm" else MLPRegressor(random_state=seed))
    return TransformedTargetRegressor(make_pipeline(StandardScaler(), learner), transformer=StandardScaler())


def _scores(name: str, y: Tensor, said: Tensor, held: Tensor) -> dict[str, float]:
    wrong = said - y  # (S, k, N, K)
    sizes = wrong.abs().mean(3)
    errors = (wrong * held[..., None]).sum(1)  # (S, N, K), each from the fit that has not seen the place
    varies = (y != y[0]).any(0)
    r2 = 1 - (errors.square().sum(1) / (y - y.mean(0)).square().sum(0))[:, varies].mean(1)
    each = {"mae": _mean(sizes, held), "r2": r2, "fit_mae": _mean(sizes, ~held)}
    if (held.sum(2) > 1).all():
        each["offset_mae"] = torch.stack([_offsets(*pair) for pair in zip(errors, held, strict=True)])
    return {
        f"{name}_{metric}{end}": number.item()
        for metric, values in each.items()
        for end, number in (("", values.mean()), ("_std", values.std(correction=0)))
    }


def _mean(sizes: Tensor, places: Tensor) -> Tensor:
    """(S, k, N) → (S,): the mean over the places of each fold, mean over folds."""
    return ((sizes * places).sum(2) / places.sum(2)).mean(1)


def _offsets(errors: Tensor, held: Tensor) -> Tensor:
    """The mean error of offsets between two different places of a fold, mean over folds."""
    each = []
    for fold in held:
        differences = (errors[fold][:, None] - errors[fold]).abs().mean(2)  # (M, M)
        each.append(differences.sum() / (len(differences) * (len(differences) - 1)))
    return torch.stack(each).mean()
