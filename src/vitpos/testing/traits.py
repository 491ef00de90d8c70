"""The check of declared traits: each is tested on a small model, and a trait that holds must be declared."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from vitpos.encodings.base import TRAITS
from vitpos.positions import Positions
from vitpos.testing.helpers import (
    GRID,
    OTHER,
    EncodingError,
    Subject,
    difference,
    forward,
    full_bias,
    order,
    pair_logits,
    table_shapes,
    uncached,
)


def check_traits(subject: Subject) -> None:
    """Checks that an encoding declares exactly the traits that it has, such as ``translation_invariant``."""
    for name in subject.traits or ():
        if name not in TRAITS:
            raise EncodingError(f"declares {name!r}, which is not a trait; available: {', '.join(TRAITS)}")
    wrong = []
    for name, found in observed_traits(subject):
        declared = name in (subject.traits or ())
        if declared and found:
            wrong.append(f"declared {name!r} ({TRAITS[name]}), but {found}")
        if not declared and not found:
            wrong.append(f"{TRAITS[name]}: declare {name!r}")
    if wrong:
        raise EncodingError("; ".join(wrong))


def observed_traits(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yields (trait, counterexample) for each trait of an encoding; the counterexample is empty if the trait holds.

    A trait is for example ``permutation_invariant``, its counterexample "shuffled tokens change logits: …".
    """
    model, x, pos = (
        subject.model(),
        subject.tokens(),
        uncached(Positions.from_grid(GRID)),
    )  # caches are checked elsewhere
    out = forward(model, x, pos)
    yield (
        "permutation_invariant",
        _seen(difference(out, forward(model, x[:, order()], pos)), "shuffled tokens change logits"),
    )
    other = difference(out, forward(model, x, Positions.from_grid(OTHER)))
    yield "grid_shape_invariant", _seen(other, f"tokens on a {OTHER} grid in place of {GRID} change logits")
    yield (
        "translation_invariant",
        _seen(_crop_difference(subject), "logits of pairs change when both tokens move by the same offset"),
    )
    yield "learnable", "" if list(model.encoding.parameters()) else "it has no parameters"
    before, after = table_shapes(model.encoding, (2, 8))
    yield "resizable", "" if before != after else "resized((2, 8)) changes no table"
    bias = full_bias(model, pos)
    acts = bool(bias[..., :2, :].any() or bias[..., :2].any())
    yield "biases_prefix", "" if acts else "its bias is zero for all pairs with a prefix token"
    finer = subject.images((6, 8))
    by_cell = difference(model(finer), model(finer, Positions.from_grid((6, 8))))
    if difference(out, forward(model, x[:, order()], pos)):  # without any position every encoding goes by cells
        yield (
            "index_only",
            _seen(by_cell, "interpolated coordinates (scaled to the range of the training grid) change logits"),
        )
    kept = torch.tensor([0, 3, 4, 9, 11])
    whole = pair_logits(model, x, pos)[:, :, kept][..., kept]
    few = difference(pair_logits(model, x[:, kept], pos.select(kept)), whole)
    yield "context_dependent", "" if few else "logits of a pair are the same among all tokens and among five"


def _crop_difference(subject: Subject) -> str:
    """Compares the attention logits of the same token pairs in crops at different offsets of one canvas of tokens.

    Returns the largest difference as text; an empty text if the logits are equal, as for a translation-invariant encoding.
    """
    model = subject.model(pool="mean", registers=0)  # an unrotated prefix token acts as one at the origin
    rows, columns = 5, 6
    canvas = subject.tokens((rows + 2) * (columns + 3)).unflatten(1, (rows + 2, columns + 3))
    logits = []
    for down, right in ((0, 0), (0, 3), (2, 0)):
        crop = canvas[:, down : down + rows, right : right + columns].flatten(1, 2)
        pairs = pair_logits(model, crop, Positions.from_grid((rows, columns))).expand(3, -1, -1, -1)
        cell = (
            torch.arange(rows * columns)
            .view(rows, columns)[2 - down : rows - down, 3 - right : columns - right]
            .flatten()
        )
        logits.append(pairs[:, :, cell][..., cell])  # pairs inside rows 2 to 4 and columns 3 to 5 of the canvas
    tolerance = 1e-5  # functions of the float32 coordinates are rounded differently after a shift
    return difference(logits[0], logits[1], tolerance) or difference(logits[0], logits[2], tolerance)


def _seen(found: str, what: str) -> str:
    return f"{what}: {found}" if found else ""
