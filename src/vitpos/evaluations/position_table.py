"""What the position table of a trained model contains: structure, spectrum, projection, regression, and the CLS row.

The table are the vectors that the encoding adds to the patch tokens. `vitpos inspect` shows the same numbers of one
model with figures; here they are metrics with seeds.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.result import Result
from vitpos.inspection.projection_null import residual_null, trustworthiness_null
from vitpos.inspection.table_prefix import prefix_similarity
from vitpos.inspection.table_projection import pca, umap
from vitpos.inspection.table_regression import regression
from vitpos.inspection.table_stats import CONSTANT, center, flatten_table, position_table, spectrum
from vitpos.inspection.table_structure import structure
from vitpos.models.base import PatchClassifier

NO_TABLE = "the encoding adds no vectors to the patch tokens"
NO_PREFIX = "the encoding has no vector of the CLS token; use learned(prefix_embed=True) in a model with CLS"


def table_structure(ctx: EvalContext, *, shuffles: int = 2000, tables: int = 500, seed: int = 0) -> Result:
    """Tests of statements about the vectors that the position encoding adds to patches, such as "neighbors are similar".

    Each statement has an effect, positive if it holds, and a two-sided p-value from tables without the claimed
    structure. Similarity is the cosine of centered vectors. neighbors_effect, neighbors_p: adjacent positions are more
    similar than other pairs (null tables: permuted positions). same_row_effect, same_row_p, same_column_effect,
    same_column_p: positions in one row (column) are more similar than their distance explains (random tables in which
    similarity depends on distance alone). two_dimensional_effect, two_dimensional_p: vertical neighbors are more similar
    than pairs that are closer in row-major order (permuted positions). border_effect, border_p, corners_effect,
    corners_p: positions on the border (in the corners) are less similar to those in the center than their offsets
    explain (random tables in which similarity depends on |Δrow| and |Δcolumn| alone). norm_effect, norm_p: vectors are
    longer in the center than on the border, relative to their mean norm (the same random tables).

    Args:
        shuffles: Number of permutations of the positions.
        tables: Number of random tables.
        seed: Seed of both.
    """
    table, reason = _table(ctx)
    if table is None:
        return Result(reason=reason)
    numbers: dict[str, float] = {}
    for name, finding in structure(table, shuffles=shuffles, tables=tables, seed=seed).items():
        numbers[f"{name}_effect"] = _number(finding.effect)
        numbers[f"{name}_p"] = _number(finding.p)
    return Result(numbers)


def table_spectrum(ctx: EvalContext) -> Result:
    """Principal components of the vectors that the position encoding adds to patches (MJP, CVPR 2023: Table 6).

    explained_variance by component: fraction of the variance of the centered vectors, 0 to 1, in the first 1 to 10
    components. effective_rank: exp of the entropy of the variance fractions of all components; 1 if all vectors lie on
    a line, and the number of components if all have the same variance.
    """
    table, reason = _table(ctx)
    if table is None:
        return Result(reason=reason)
    found = spectrum(table)["centered"]
    curve = {float(n): value for n, value in enumerate((found.variance or [])[:10], 1)}
    return Result({"effective_rank": _number(found.effective_rank)}, curves={"explained_variance": curve})


def table_projection(
    ctx: EvalContext,
    *,
    method: Literal["pca", "umap"] = "pca",
    shuffles: int = 2000,
    tables: int = 200,
    seed: int = 0,
) -> Result:
    """Whether the vectors that the position encoding adds to patches, projected to a plane, form a grid (MJP, Figure 7).

    residual: Procrustes distance of the projected vectors from the grid, 0 (a perfect grid) to 1: the sum of squared
    distances after the best rotation, reflection and scaling, both sets of points having a sum of squares of 1.
    residual_expected: its mean with permuted positions; residual_p: fraction of the permutations with a residual as
    small. trustworthiness: to what degree the 5 nearest positions in the projection are nearest by their vectors, 0 to 1
    (Venna and Kaski, 2001). trustworthiness_expected: its mean over tables of white noise; trustworthiness_p: fraction
    of these with as large a value. Both p-values count the table itself and are one-sided. For ``method="umap"``
    there are no tables of noise.

    Args:
        method: Principal components, or UMAP (needs umap-learn, and takes half a minute more).
        shuffles: Number of permutations of the positions.
        tables: Number of tables of white noise.
        seed: Seed of permutations, noise and UMAP.
    """
    table, reason = _table(ctx)
    if table is None:
        return Result(reason=reason)
    projection = pca(table) if method == "pca" else umap(table, seed=seed)
    if projection.points is None:
        return Result(reason=projection.reason)
    residual = residual_null(projection.points, shuffles=shuffles, seed=seed)
    numbers = {
        "residual": residual.value,
        "residual_expected": residual.expected,
        "residual_p": residual.p,
        "trustworthiness": _number(projection.trustworthiness),
    }
    if method == "pca":
        kept = trustworthiness_null(table, tables=tables, seed=seed)
        numbers |= {"trustworthiness_expected": kept.expected, "trustworthiness_p": kept.p}
    return Result(numbers)


def table_regression(
    ctx: EvalContext,
    *,
    method: Literal["ridge", "minimum_norm", "svm", "mlp"] = "ridge",
    folds: int = 5,
    shuffles: int | None = None,
    seed: int = 0,
) -> Result:
    """Cross-validated regression from the vectors that the position encoding adds to patches to positions (MJP, Table 8).

    index_mae: mean absolute error of the row-major index on held-out positions. grid_mae: mean absolute error of row and
    column, in patches, mean of both. index_train_mae, grid_train_mae: the same errors on fitted positions. index_r2,
    grid_r2: R² on held-out positions; 1 is perfect, 0 a constant predictor. index_offset_mae, grid_offset_mae: mean
    absolute error of the signed offset between two held-out positions. All are means over repetitions with
    shuffled folds. index_mae_std and so on: standard deviation over these repetitions.

    Args:
        method: ``ridge`` (penalty chosen on inner folds), ``minimum_norm`` (least squares), ``svm`` (SVR) or ``mlp``
            (MLPRegressor); the last two need scikit-learn and take longer.
        folds: Number of folds.
        shuffles: Number of repetitions; by default 10, fewer above 200 positions.
        seed: Seed of the folds and of the MLP.
    """
    table, reason = _table(ctx)
    if table is None:
        return Result(reason=reason)
    found = regression(table, methods=(method,), folds=folds, shuffles=shuffles, seed=seed)
    return Result(found.methods.get(method, {}), reason="" if found.methods else found.reason)


def table_prefix(ctx: EvalContext, *, samples: int = 2000, seed: int = 0) -> Result:
    """Whether the position vector of the CLS token is similar to that of a patch (MJP, Figure 1).

    It is the vector of the first prefix token: the encoding's own, without the token that it is added to.
    norm_ratio: its norm divided by the mean norm of the patches' vectors. similarity: the largest |cosine| to a
    centered vector of a patch. p: fraction of vectors of random direction that are as similar, the vector itself
    included. raw_similarity, raw_p: the same without centering, so that what all positions have in common counts too.

    Args:
        samples: Number of vectors of random direction.
        seed: Seed of these vectors.
    """
    table, reason = _table(ctx)
    if table is None:
        return Result(reason=reason)
    assert isinstance(ctx.model, PatchClassifier)
    prefix = ctx.model.encoding.prefix_vectors()
    if prefix is None or not len(prefix):
        return Result(reason=NO_PREFIX)
    return Result(vars(prefix_similarity(prefix[0], table, samples=samples, seed=seed)))


def _table(ctx: EvalContext) -> tuple[Tensor | None, str]:
    """Returns the vectors (R, C, D) that the encoding adds to patches and "", or None and the reason that it adds none."""
    if not isinstance(ctx.model, PatchClassifier):
        return None, NO_PATCHES
    table = position_table(ctx.model)
    if table is None:
        return None, NO_TABLE
    return (table, "") if center(flatten_table(table)).any() else (None, CONSTANT)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
