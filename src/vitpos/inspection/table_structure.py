"""What is said of learned position tables, as numbers with verdicts.

Likeness is the cosine of vectors less their mean vector: a large common part would bring all cosines near 1. Every
statement but the last is a difference of mean cosines. That neighbours are alike, and that the list of places has become a
grid, claims that places matter at all: this is tested by shuffling the places. That rows and columns matter claims more
than nearness, since two places of a row are near each other as well: this is measured at matched distance, and tested
against random tables whose likeness depends on distance alone, and as it does in this one. That corners, the rim and the
centre matter claims more than offsets: in the same way, at matched offsets and by tables whose likeness depends on these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitpos.errors import UserError
from vitpos.inspection.contrasts import contrasts, regions
from vitpos.inspection.null_models import DistanceLaw, Law, OffsetLaw
from vitpos.inspection.similarity import cosine_similarity
from vitpos.inspection.table_stats import MANY, centred, taken, thinned, vectors
from vitpos.patches import permutations

FEWEST = 7  # places; of fewer, chance finds any arrangement too often
LARGEST = 2**22  # cosines looked up at a time
STATEMENTS = {
    "nearby": "neighbouring places have more alike vectors than other pairs",
    "same_row": "places of a row have more alike vectors than their distance explains",
    "same_column": "places of a column have more alike vectors than their distance explains",
    "grid": "vertical neighbours are more alike than pairs that are nearer to each other in the list of places",
    "rim": "places of the rim are less like the centre's than their offsets explain",
    "corners": "corners are less like the centre than their offsets explain",
    "norm": "vectors are longer in the centre than on the rim",
}
SAME = 1e-6  # of a length: what differs by less, as fixed waves in float32 do, does not differ
BEYOND = {"same_row": DistanceLaw, "same_column": DistanceLaw, "rim": OffsetLaw, "corners": OffsetLaw}


@dataclass(frozen=True)
class Finding:
    """What a table says of one statement.

    observed: the difference that the statement is about. expected: what it is without the claimed structure. effect:
    observed − expected. raw: as observed, of cosines without centring. p: two-sided, twice the smaller tail, each
    (1 + draws as extreme) / (1 + draws). verdict: "yes", "the opposite", or "no structure" where p is above the level;
    of the norm "centre-weighted", "edge-aware" or "no structure". Each statement is judged by itself: at a level of .01
    one of a hundred without structure is believed. What cannot be said is None, and ``reason`` says why. ``taken`` says
    which places are compared, if not all: neighbours are then neighbours among these.
    """

    statement: str
    observed: float | None = None
    expected: float | None = None
    effect: float | None = None
    raw: float | None = None
    p: float | None = None
    verdict: str | None = None
    reason: str = ""
    taken: str = ""


def structure(
    table: Tensor, *, level: float = 0.01, shuffles: int | None = None, tables: int | None = None, seed: int = 0
) -> dict[str, Finding]:
    """The statements about a table (R, C, D), each with its effect, its p and a verdict.

    nearby: mean cosine of horizontal and vertical neighbours less that of all other pairs. same_row, same_column: of the
    pairs of a row (column) less that of all others. grid: of vertical neighbours, which are C apart in the list of places,
    less that of pairs less than C apart that are no neighbours; an order in one dimension makes it negative. rim,
    corners: within the rim (the corners) and within the centre, in the mean, less that between the two; the centre is the
    inner half of rows and columns. norm: mean length of the centre's vectors less that of the rim's, over that of all.
    ``shuffles`` of the places (2,000 unless given, or 500 above 400 places) test nearby and grid; ``tables`` drawn at
    random (500, or 400) test what is beyond nearness: at a level of .01 no verdict hangs on a single draw. Of a table
    of more than 2,000 places every k-th row and column is taken.
    """
    few, steps = thinned(table)
    x, grid = vectors(few), (few.shape[0], few.shape[1])
    many = len(x) > MANY
    shuffles = (500 if many else 2000) if shuffles is None else shuffles
    tables = (400 if many else 500) if tables is None else tables
    if not 0 < level < 1 or min(shuffles, tables) < 1:
        raise UserError(
            f"structure got level={level}, shuffles={shuffles}, tables={tables}; "
            "take a level between 0 and 1, and draw at least once"
        )
    as_they_are = torch.arange(len(x))[None]
    orders = torch.cat([as_they_are, permutations(shuffles, len(x), seed=seed)])
    found = _findings(x, grid, orders, tables, seed)
    lacking = f"a grid of {grid[0]}×{grid[1]} has no such places to compare"
    judged = {
        name: _judged(found.get(name, Finding(said, reason=lacking)), level, len(x))
        for name, said in STATEMENTS.items()
    }
    return {name: replace(finding, taken=taken(steps)) for name, finding in judged.items()}


def _findings(x: Tensor, grid: tuple[int, int], orders: Tensor, tables: int, seed: int) -> dict[str, Finding]:
    weights = contrasts(grid)
    rest = centred(x)
    if not rest.any():
        return {name: Finding(said, reason="all position vectors are the same") for name, said in STATEMENTS.items()}
    cosines, raw = cosine_similarity(rest), cosine_similarity(x)
    values = _beyond_nearness(x, grid, weights, tables, seed)
    values |= {name: _shuffled(cosines, weights[name], orders) for name in weights if name not in BEYOND}
    found = {}
    for name, each in values.items():
        own, chance = each[0], each[1:]
        if name == "norm":
            found[name] = _unlike_lengths(x) or _finding(name, own, chance, chance.mean(), observed=own, raw=own)
        else:
            seen, plain = ((weights[name] * one).sum() for one in (cosines, raw))
            usual = chance.mean() if name in BEYOND else torch.zeros_like(own)
            found[name] = _finding(name, own, chance, usual, observed=seen, raw=plain)
    return found


def _unlike_lengths(x: Tensor) -> Finding | None:
    """Why nothing can be said of lengths, if they are all the same."""
    norms = x.norm(dim=1)
    same = norms.max() - norms.min() <= SAME * norms.mean()
    return Finding(STATEMENTS["norm"], reason="all position vectors are of one length") if same else None


def _centre_less_rim(norms: Tensor, grid: tuple[int, int]) -> Tensor:
    """(…, N) → (…): mean length in the centre less that on the rim, over that of all."""
    rim, _, centre = regions(grid)
    return (norms[..., centre].mean(-1) - norms[..., rim].mean(-1)) / norms.mean(-1)


def _shuffled(cosines: Tensor, weight: Tensor, orders: Tensor) -> Tensor:
    """(n,): the weighted sum of cosines (N, N) for each order of places (n, N).

    Nothing that shuffles moves the sum of all cosines: only pairs of another weight than the commonest are looked up.
    """
    first, second = torch.triu_indices(len(weight), len(weight), 1)
    upper = weight[first, second]
    common = upper.mode().values
    moved = (upper != common).nonzero()[:, 0]
    first, second, extra = first[moved], second[moved], upper[moved] - common
    parts = orders.split(max(1, LARGEST // max(1, len(moved))))
    sums = torch.cat([cosines[part[:, first], part[:, second]] @ extra for part in parts])
    return 2 * (sums + common * cosines.triu(1).sum())


def _beyond_nearness(
    x: Tensor, grid: tuple[int, int], weights: dict[str, Tensor], tables: int, seed: int
) -> dict[str, Tensor]:
    """(1 + n,) for each statement: its difference at matched distance or offset, of the table and of n random ones."""
    found: dict[str, Tensor] = {}
    laws: list[Law] = [DistanceLaw(grid), by_offset := OffsetLaw(grid)]
    for law in laws:
        asked = {name: weight for name, weight in weights.items() if BEYOND.get(name) is type(law)}
        found |= _likeness(law, centred(x), asked, tables, seed) if asked else {}
    if regions(grid)[2].any():
        drawn = by_offset.tables(x, draws=tables, seed=seed, whole=True)
        lengths = [x.norm(dim=1)[None], *(batch.norm(dim=2).double() for batch in drawn)]
        found["norm"] = _centre_less_rim(torch.cat(lengths), grid)
    return found


def _likeness(law: Law, rest: Tensor, weights: dict[str, Tensor], tables: int, seed: int) -> dict[str, Tensor]:
    matched = torch.stack([law.matched(weight) for weight in weights.values()])  # (statements, N, N)
    blocks = [block.flatten(1).mT.float() for block in law.mirrors.blocks(matched)]
    sums = [(cosine_similarity(rest) * matched).sum((1, 2))[None]]
    for batch in law.tables(rest, draws=tables, seed=seed):
        parts = law.mirrors.split(torch.nn.functional.normalize(batch, dim=2))
        each = zip(parts, blocks, strict=True)
        sums.append(torch.stack([(part @ part.mT).flatten(1) @ block for part, block in each]).double().sum(0))
    return dict(zip(weights, torch.cat(sums).unbind(1), strict=True))


def _finding(name: str, own: Tensor, chance: Tensor, usual: Tensor, *, observed: Tensor, raw: Tensor) -> Finding:
    """With the p of the table's own number () among those that chance gives (n,), which are usually ``usual``."""
    rounding = 1e-6 * max(own.abs().item(), chance.abs().max().item())  # random tables are in float32
    tails = ((chance >= own - rounding).sum(), (chance <= own + rounding).sum())
    p = min(1.0, 2 * (1 + min(tails).item()) / (1 + len(chance)))
    effect = own - usual
    return Finding(STATEMENTS[name], observed.item(), (observed - effect).item(), effect.item(), raw.item(), p)


def _judged(found: Finding, level: float, places: int) -> Finding:
    if found.p is None or found.effect is None:
        return found
    if places < FEWEST:
        return replace(found, reason=f"{places} places are too few for a verdict")
    yes, opposite = (
        ("centre-weighted", "edge-aware") if found.statement == STATEMENTS["norm"] else ("yes", "the opposite")
    )
    verdict = "no structure" if found.p > level else yes if found.effect > 0 else opposite
    return replace(found, verdict=verdict)
