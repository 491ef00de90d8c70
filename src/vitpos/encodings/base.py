"""What a position encoding is: hooks in the order of data flow, each of which does nothing unless it is overridden."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.errors import UserError
from vitpos.positions import Positions


@dataclass(frozen=True)
class Geometry:
    """All that an encoding may know of its model."""

    dim: int
    heads: int
    depth: int
    grid: tuple[int, int]  # rows, columns of patches that the model is built for
    prefix: int = 0  # CLS and registers in front of the patches


TRAITS = {
    "permutation-blind": "shuffled patches change nothing",
    "grid-blind": "the same number of tokens on another grid changes nothing",
    "relative": "logits of two patches are the same in every crop of a larger image that has both",
    "trained": "it has parameters",
    "stored": "it stores a table for its grid, which can be resampled for another",
    "prefix": "its bias acts on pairs with prefix tokens too",
    "by-cell": "it depends on the grid cells of the tokens alone, not on their coordinates",
    "contextual": "logits of two tokens depend on other tokens too",
}


class PositionEncoding(nn.Module):
    """One way to use places; ``encoding + other`` uses both.

    Encodings see patch tokens only, except that ``lead`` may add to prefix tokens and ``bias`` is given q and k of all T
    tokens (prefix first) and may answer for patch pairs (N, N) or for all (T, T). Hidden means per pair: where either
    place of a pair is unknown, the encoding says nothing. ``traits`` declares which of ``TRAITS`` are true of the class;
    ``vitpos.testing.check_encoding`` tests each both ways.
    """

    source: ClassVar[str] = ""  # who proposed it, where and when
    traits: ClassVar[tuple[str, ...]] = ()
    turns: ClassVar[bool] = False  # its bias undoes its own rotation where a place is hidden
    decays: bool = False  # whether weight decay may pull at its parameters

    def lead(self, tokens: Tensor) -> Tensor:
        """Once: adds to the prefix tokens (P, D), for tables that have rows for them."""
        return tokens

    def arrange(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Once, first: moves or hides tokens; x (B, N, D)."""
        return x, pos

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Once: adds to the tokens x (B, N, D)."""
        return x

    def refresh(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Before each block: adds to the tokens x (B, N, D)."""
        return x

    def prepare(self, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """The q and k (B, H, T, d) of all tokens, prefix too, that everything after this sees: cosine attention."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """(B|1, H, N, N) or (B|1, H, T, T) to add to the logits, from q and k (B, H, T, d) before rotation."""
        return None

    def score(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """All logits (B, H, T, T), for a bias that shares its work with q kᵀ; None: the usual way by ``bias``."""
        return None

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """The q and k (B, H, N, d) whose product gives the logits."""
        return q, k

    def penalty(self, pos: Positions, whole: PositionEncoding) -> Tensor | float:
        """An extra loss for this batch's places; ``whole`` is all of the model's encoding, of which this is a part."""
        return 0.0

    def advance(self, progress: float) -> None:
        """Told by training before each step how far it is, from 0 to 1."""

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> PositionEncoding:
        """The encoding with its stored tables resampled for another grid; itself where there are none."""
        return self

    def slowed(self, factor: float) -> PositionEncoding:
        """The encoding with its rotations stretched for a grid so many times as large (NTK); itself without any."""
        return self

    @property
    def can_be_told(self) -> bool:
        """Whether it has a vector for places that are not known."""
        return False

    def acts(self, hook: str) -> bool:
        """Whether it does anything at the hook of this name: by default, whether its class overrides it."""
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def __add__(self, other: PositionEncoding) -> Composed:
        return Composed([*parts(self), *parts(other)])


class Composed(PositionEncoding):
    """Several encodings at once: hooks chain in order, biases and penalties add up."""

    def __init__(self, parts: Iterable[PositionEncoding]):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def lead(self, tokens: Tensor) -> Tensor:
        """Each part adds its own."""
        for part in parts(self):
            tokens = part.lead(tokens)
        return tokens

    def arrange(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Each part arranges what the one before it left."""
        for part in parts(self):
            x, pos = part.arrange(x, pos)
        return x, pos

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Each part adds its own."""
        for part in parts(self):
            x = part.embed(x, pos)
        return x

    def refresh(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Each part adds its own."""
        for part in parts(self):
            x = part.refresh(x, pos, layer)
        return x

    def prepare(self, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Each part prepares what the one before it left."""
        for part in parts(self):
            q, k = part.prepare(q, k, layer)
        return q, k

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """The sum of what the parts say; None when none of them speaks.

        Rotations follow each other, so each one has to undo its own on what those before it have turned.
        """
        prefix = q.shape[2] - pos.cells.shape[1]
        turning = [part for part in parts(self) if part.turns]
        biases = [part.bias(q, k, pos, layer) for part in parts(self) if not part.turns]
        for part in turning:
            biases.append(part.bias(q, k, pos, layer))
            if part is not turning[-1]:
                pair = part.rotate(q[:, :, prefix:], k[:, :, prefix:], pos, layer)
                q, k = (torch.cat([x[:, :, :prefix], y], 2) for x, y in zip((q, k), pair, strict=True))
        spoken = [bias for bias in biases if bias is not None]
        widest = max((bias.shape[-1] for bias in spoken), default=0)
        return sum(widen(bias, widest) for bias in spoken) if spoken else None  # type: ignore[return-value]

    def score(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """The word of the one part that speaks of logits; None where several do."""
        hooks = PositionEncoding.bias, PositionEncoding.rotate
        speaking = [part for part in parts(self) if (type(part).bias, type(part).rotate) != hooks]
        return speaking[0].score(q, k, pos, layer) if len(speaking) == 1 else None

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Each part rotates what the one before it left."""
        for part in parts(self):
            q, k = part.rotate(q, k, pos, layer)
        return q, k

    def penalty(self, pos: Positions, whole: PositionEncoding) -> Tensor | float:
        """The sum of the parts' penalties."""
        return sum(part.penalty(pos, whole) for part in parts(self))

    def advance(self, progress: float) -> None:
        """Tells every part."""
        for part in parts(self):
            part.advance(progress)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> PositionEncoding:
        """Every part resized."""
        return Composed(part.resized(grid, how=how) for part in parts(self))

    def slowed(self, factor: float) -> PositionEncoding:
        """Every part slowed."""
        return Composed(part.slowed(factor) for part in parts(self))

    @property
    def can_be_told(self) -> bool:
        """Whether any part can."""
        return any(part.can_be_told for part in parts(self))

    def acts(self, hook: str) -> bool:
        """Whether any part does."""
        return any(part.acts(hook) for part in parts(self))


def parts(encoding: PositionEncoding) -> list[PositionEncoding]:
    """What an encoding is made of: itself, or what was added up."""
    return cast(list[PositionEncoding], list(encoding.parts)) if isinstance(encoding, Composed) else [encoding]


def positive(name: str, **values: float) -> None:
    """Refuses an option of an encoding that is not above zero."""
    for option, value in values.items():
        if not value > 0:
            raise UserError(f"encoding {name!r} got {option}={value}; choose a number above 0")


def needs_prefix(name: str, option: str, geometry: Geometry) -> None:
    """Refuses an option that speaks of CLS or registers in a model that has none."""
    if not geometry.prefix:
        raise UserError(f"encoding {name!r} got {option} in a model without CLS or registers; leave it out")


def widen(bias: Tensor, tokens: int) -> Tensor:
    """A bias for patch pairs (…, N, N) as one for all ``tokens``: zero for every pair with a prefix token."""
    prefix = tokens - bias.shape[-1]
    return F.pad(bias, (prefix, 0, prefix, 0)) if prefix else bias


def where_known(values: Tensor, pos: Positions) -> Tensor:
    """Per-token values (B|1, N, D), zero where the place is hidden."""
    return values.where(pos.known[..., None], 0) if pos.hiding else values


def where_pairs(bias: Tensor, pos: Positions) -> Tensor:
    """A bias for patch pairs (B|1, H, N, N), zero where either place of a pair is hidden."""
    return torch.where(pos.pairs(), bias, 0) if pos.hiding else bias
