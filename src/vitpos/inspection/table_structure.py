"""Tests statements about position tables, such as "neighbors are similar", with effect sizes, p-values and verdicts.

Similarity is the cosine of centered vectors; a large common vector would bring all cosines near 1. Every statement of
``STATEMENTS`` but the last is a difference of mean cosines. ``neighbors`` and ``two_dimensional`` claim that positions
matter at all and are tested by permuting the positions. ``same_row`` and ``same_column`` claim more than proximity, so
they are measured at matched distance and tested against random tables in which similarity depends on distance alone.
``border``, ``corners`` and ``norm`` claim more than offsets and are tested against random tables in which similarity
depends on |Δrow| and |Δcolumn| alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.inspection.null_models import DistanceNull, NullModel, OffsetNull
from vitpos.inspection.table_stats import (
    CONSTANT,
    LARGE,
    center,
    cosine_similarity,
    flatten_table,
    grid_coordinates,
    subsample,
    subsample_text,
)
from vitpos.patches import seeded_permutations

MIN_POSITIONS = 7  # with fewer, random arrangements pass too often
MAX_LOOKUPS = 2**22  # cosines gathered at a time
STATEMENTS = {
    "neighbors": "adjacent positions have more similar vectors than other pairs",
    "same_row": "positions in the same row have more similar vectors than their distance explains",
    "same_column": "positions in the same column have more similar vectors than their distance explains",
    "two_dimensional": "vertical neighbors are more similar than pairs that are closer in row-major order",
    "border": "border positions are less similar to central ones than their offsets explain",
    "corners": "corner positions are less similar to central ones than their offsets explain",
    "norm": "vectors are longer in the center than on the border",
}
EQUAL = 1e-6  # relative difference of norms below which they are equal, as for float32 sinusoids
NULL_MODELS = {"same_row": DistanceNull, "same_column": DistanceNull, "border": OffsetNull, "corners": OffsetNull}


@dataclass(frozen=True)
class Finding:
    """The test of one statement about a position table, such as "adjacent positions have more similar vectors".

    observed: the difference that the statement claims to be positive, such as the mean cosine of adjacent pairs minus
    that of other pairs. expected: its mean over permuted or random tables without the claimed structure. effect:
    observed − expected. raw: as observed, with cosines of vectors that are not centered. p: two-sided p-value, twice
    the smaller tail, each (1 + samples at least as extreme) / (1 + samples). verdict: "yes", "opposite" or "no
    structure" (p above the significance level); for ``norm`` "center-weighted", "edge-aware" or "no structure". There
    is no correction for several statements: at level .01, one in a hundred passes by chance. Undefined values are None,
    and ``reason`` says why. subsampled: which positions of a large table were used; neighbors are then neighbors among
    these.
    """

    statement: str
    observed: float | None = None
    expected: float | None = None
    effect: float | None = None
    raw: float | None = None
    p: float | None = None
    verdict: str | None = None
    reason: str = ""
    subsampled: str = ""


def structure(
    table: Tensor, *, level: float = 0.01, shuffles: int | None = None, tables: int | None = None, seed: int = 0
) -> dict[str, Finding]:
    """Tests seven statements on a table (R, C, D); returns statement name → effect, p-value and verdict.

    neighbors: mean cosine of horizontally and vertically adjacent positions minus that of all other pairs. same_row,
    same_column: mean cosine of pairs in the same row (column) minus that of all others. two_dimensional: mean cosine of
    vertical neighbors, which are C apart in row-major order, minus that of non-adjacent pairs less than C apart;
    negative for a table ordered in one dimension. border, corners: mean cosine within the border (corners) and within
    the center, averaged, minus that between the two; the center is the inner half of rows and columns. norm: mean norm
    in the center minus that on the border, divided by the mean norm.

    Tables of more than 2,000 positions are subsampled.

    Args:
        level: significance level of the verdicts.
        shuffles: permutations for neighbors and two_dimensional; default 2,000, or 500 above 400 positions.
        tables: random tables for the other statements; default 500, or 400 above 400 positions.
    """
    used, steps = subsample(table)
    x, grid = flatten_table(used), (used.shape[0], used.shape[1])
    large = len(x) > LARGE
    shuffles = (500 if large else 2000) if shuffles is None else shuffles
    tables = (400 if large else 500) if tables is None else tables
    if not 0 < level < 1 or min(shuffles, tables) < 1:
        raise InputError(
            f"structure got level={level}, shuffles={shuffles}, tables={tables}; "
            "use a level between 0 and 1, and at least one shuffle and table"
        )
    identity = torch.arange(len(x))[None]
    orders = torch.cat([identity, seeded_permutations(shuffles, len(x), seed=seed)])
    findings = _findings(x, grid, orders, tables, seed)
    missing = f"a grid of {grid[0]}×{grid[1]} has no such positions to compare"
    judged = {
        name: _with_verdict(findings.get(name, Finding(statement, reason=missing)), level, len(x))
        for name, statement in STATEMENTS.items()
    }
    return {name: replace(finding, subsampled=subsample_text(steps)) for name, finding in judged.items()}


def contrasts(grid: tuple[int, int]) -> dict[str, Tensor]:
    """Returns statement name, such as ``neighbors``, → weights (N, N) of the cosines of all pairs of positions.

    Σ weights · cosines is the difference of mean cosines that the statement claims to be positive. Weights are
    symmetric, sum to 0 and are 0 on the diagonal. Statements for which the grid has no pairs are absent.
    """
    rows, columns = grid
    index = torch.arange(rows * columns)
    row, column = index // columns, index % columns
    down, across, in_order = ((x[:, None] - x).abs() for x in (row, column, index))
    different, adjacent = in_order > 0, down + across == 1
    pairs = {
        "neighbors": (adjacent, different & ~adjacent),
        "same_row": (different & (down == 0), down > 0),
        "same_column": (different & (across == 0), across > 0),
        "two_dimensional": ((down == 1) & (across == 0), different & ~adjacent & (in_order < columns)),
    }
    weights = {
        name: _mean_weights(first) - _mean_weights(second)
        for name, (first, second) in pairs.items()
        if first.any() and second.any()
    }
    border, corners, inner = regions(grid)
    if inner.any():
        for name, outer in (("border", border), ("corners", corners)):
            within = [_region_weights(part, part) for part in (outer, inner) if part.sum() > 1]
            weights[name] = torch.stack(within).mean(0) - _region_weights(outer, inner)
    return weights


def regions(grid: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns three bool masks (N,) over the positions of a grid: the border, its corners, and the center.

    The center is the inner half of rows and columns, without the border.
    """
    coords, sides = grid_coordinates(grid), torch.tensor(grid, dtype=torch.float64)
    at_end = (coords == 0) | (coords == sides - 1)
    inner = (coords - (sides - 1) / 2).abs() < sides / 4
    return at_end.any(1), at_end.all(1), inner.all(1) & ~at_end.any(1)


def _region_weights(first: Tensor, second: Tensor) -> Tensor:
    """Returns weights (N, N) that average over pairs of different positions, one in each of two bool masks (N,).

    The weights of these pairs are equal and sum to 1; all others are 0.
    """
    pairs = (first[:, None] & second) | (second[:, None] & first)
    return _mean_weights(pairs & ~torch.eye(len(first), dtype=torch.bool))


def _mean_weights(pairs: Tensor) -> Tensor:
    return pairs.double() / pairs.sum()


def _findings(x: Tensor, grid: tuple[int, int], orders: Tensor, tables: int, seed: int) -> dict[str, Finding]:
    weights = contrasts(grid)
    centered = center(x)
    if not centered.any():
        return {name: Finding(statement, reason=CONSTANT) for name, statement in STATEMENTS.items()}
    cosines, raw_cosines = cosine_similarity(centered), cosine_similarity(x)
    values = _null_model_values(x, grid, weights, tables, seed)
    values |= {name: permuted_sums(cosines, weights[name], orders) for name in weights if name not in NULL_MODELS}
    findings = {}
    for name, each in values.items():
        own, samples = each[0], each[1:]
        if name == "norm":
            findings[name] = _equal_norms(x) or _finding(name, own, samples, samples.mean(), observed=own, raw=own)
        else:
            observed, raw = ((weights[name] * one).sum() for one in (cosines, raw_cosines))
            null_mean = samples.mean() if name in NULL_MODELS else torch.zeros_like(own)
            findings[name] = _finding(name, own, samples, null_mean, observed=observed, raw=raw)
    return findings


def _equal_norms(x: Tensor) -> Finding | None:
    norms = x.norm(dim=1)
    equal = norms.max() - norms.min() <= EQUAL * norms.mean()
    return Finding(STATEMENTS["norm"], reason="all position vectors have the same norm") if equal else None


def _center_minus_border(norms: Tensor, grid: tuple[int, int]) -> Tensor:
    """Returns how much larger ``norms`` (…, N) are in the center of the grid than on its border, relative to their mean.

    It is (mean in the center − mean on the border) / mean over all N positions, of shape (…). The center is the inner
    half of rows and columns, without the border.
    """
    border, _, inner = regions(grid)
    return (norms[..., inner].mean(-1) - norms[..., border].mean(-1)) / norms.mean(-1)


def permuted_sums(cosines: Tensor, weight: Tensor, orders: Tensor) -> Tensor:
    """Returns (n,): Σ_ij weight_ij · cosines[order_i, order_j] for each of n permutations ``orders`` (n, N) of positions.

    The sum of all cosines is invariant, so only pairs whose weight differs from the most common one are gathered.
    """
    first, second = torch.triu_indices(len(weight), len(weight), 1)
    upper = weight[first, second]
    common = upper.mode().values
    kept = (upper != common).nonzero()[:, 0]
    first, second, extra = first[kept], second[kept], upper[kept] - common
    parts = orders.split(max(1, MAX_LOOKUPS // max(1, len(kept))))
    sums = torch.cat([cosines[part[:, first], part[:, second]] @ extra for part in parts])
    return 2 * (sums + common * cosines.triu(1).sum())


def _null_model_values(
    x: Tensor, grid: tuple[int, int], weights: dict[str, Tensor], tables: int, seed: int
) -> dict[str, Tensor]:
    """Returns name of a tested structure → its values (1 + n,): of the position table x (N, D), then of n random tables.

    A value is positive if the structure is there: for ``norm`` the relative difference of mean norms between center and
    border; for ``same_row``, ``same_column``, ``border`` and ``corners`` a weighted sum, over pairs of vectors, of
    (cosine − mean cosine at the same distance or offset). The n = ``tables`` random tables are sampled from a null
    model: their similarity depends on distance alone for ``same_row`` and ``same_column``, and on |Δrow| and |Δcolumn|
    alone for the others.

    Args:
        weights: name of a structure → weights (N, N) of the cosines; other names than these five are ignored.
    """
    values: dict[str, Tensor] = {}
    models: list[NullModel] = [DistanceNull(grid), by_offset := OffsetNull(grid)]
    for model in models:
        tested = {name: weight for name, weight in weights.items() if NULL_MODELS.get(name) is type(model)}
        values |= _residual_contrasts(model, center(x), tested, tables, seed) if tested else {}
    if regions(grid)[2].any():
        sampled = by_offset.sample_tables(x, samples=tables, seed=seed, centered=False)
        norms = [x.norm(dim=1)[None], *(batch.norm(dim=2).double() for batch in sampled)]
        values["norm"] = _center_minus_border(torch.cat(norms), grid)
    return values


def _residual_contrasts(
    model: NullModel, x: Tensor, weights: dict[str, Tensor], tables: int, seed: int
) -> dict[str, Tensor]:
    """Returns statement → its values (1 + n,): that of the table x (N, D), then those of n = ``tables`` random tables.

    The random tables are sampled from the null model. A value is the sum over pairs of positions of weight × (cosine −
    mean cosine of all pairs at the same distance or offset).

    Args:
        weights: statement → weights (N, N).
    """
    residual = torch.stack([model.residual_weights(weight) for weight in weights.values()])  # (statements, N, N)
    blocks = [block.flatten(1).mT.float() for block in model.symmetry.blocks(residual)]
    sums = [(cosine_similarity(x) * residual).sum((1, 2))[None]]
    for batch in model.sample_tables(x, samples=tables, seed=seed):
        parts = model.symmetry.split(torch.nn.functional.normalize(batch, dim=2))
        each = zip(parts, blocks, strict=True)
        sums.append(torch.stack([(part @ part.mT).flatten(1) @ block for part, block in each]).double().sum(0))
    return dict(zip(weights, torch.cat(sums).unbind(1), strict=True))


def _finding(name: str, own: Tensor, samples: Tensor, null_mean: Tensor, *, observed: Tensor, raw: Tensor) -> Finding:
    """Returns the result of testing the statement ``name``, such as "neighbors": effect and p-value, without verdict.

    Args:
        own: (), value of the table, which the p-value compares with ``samples``.
        samples: (n,), values of permuted or random tables.
        null_mean: (), expected value without the claimed structure.
        observed: (), difference of mean cosines, or of norms, that the statement claims to be positive.
        raw: (), as observed, with cosines of vectors that are not centered.
    """
    rounding = 1e-6 * max(own.abs().item(), samples.abs().max().item())  # sampled tables are in float32
    tails = ((samples >= own - rounding).sum(), (samples <= own + rounding).sum())
    p = min(1.0, 2 * (1 + min(tails).item()) / (1 + len(samples)))
    effect = own - null_mean
    return Finding(STATEMENTS[name], observed.item(), (observed - effect).item(), effect.item(), raw.item(), p)


def _with_verdict(finding: Finding, level: float, positions: int) -> Finding:
    if finding.p is None or finding.effect is None:
        return finding
    if positions < MIN_POSITIONS:
        return replace(finding, reason=f"{positions} positions are too few for a verdict")
    is_norm = finding.statement == STATEMENTS["norm"]
    positive, negative = ("center-weighted", "edge-aware") if is_norm else ("yes", "opposite")
    verdict = "no structure" if finding.p > level else positive if finding.effect > 0 else negative
    return replace(finding, verdict=verdict)
