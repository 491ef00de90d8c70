"""The base class of position encodings, the sum of several, and what an encoding may know about its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.positions import Positions

T = TypeVar("T")

TRAITS = {
    "permutation_invariant": "shuffled patches change nothing",
    "grid_shape_invariant": "the same number of tokens on another grid changes nothing",
    "translation_invariant": "logits of two patches are the same in every crop of a larger image that has both",
    "learnable": "it has parameters",
    "resizable": "it stores a table for its grid, which can be resampled for another",
    "biases_prefix": "its bias acts on pairs with prefix tokens too",
    "index_only": "it depends on the grid cells of the tokens alone, not on their coordinates",
    "content_dependent": "logits of two tokens depend on other tokens too",
}
HOOKS = ("augment", "prefix_vectors", "unknown_vector", "vectors", "update", "bias", "rotate", "penalty")
ATTENTION_HOOKS = (  # what acts inside attention
    "bias",
    "rotate",
    "rotate_prefix",
    "token_bias",
    "mix_weights",
    "added_values",
)


@dataclass(frozen=True)
class Geometry:
    """The facts about a model that an encoding is built from."""

    dim: int
    heads: int
    depth: int
    grid: tuple[int, int]  # rows, columns of patches in the training images
    num_prefix: int = 0  # number of CLS and register tokens in front of the patches


class PositionEncoding(nn.Module):
    """One way of using positions; ``a + b`` uses both.

    A subclass overrides the hooks that its method needs, most of them exactly one; the others do nothing. Hooks get the
    patch tokens only, except that ``bias`` gets q and k of all T tokens, prefix tokens first.

    Hidden positions are handled by the model: it sets vectors and the biases of patch pairs with a hidden position to zero
    and gives those pairs the plain q·k. Only ``update`` and a bias of shape (…, T, T) on pairs with a prefix token must
    ignore hidden positions themselves. Rare abilities are protocols (`vitpos.encodings.protocols`). ``traits`` declares
    properties from `TRAITS`; `vitpos.testing.check_encoding` tests each of them both ways.
    """

    paper: ClassVar[str] = ""
    traits: ClassVar[tuple[str, ...]] = ()
    weight_decay: bool = False  # whether the optimizer applies weight decay to its parameters
    unrotated_prefix: bool = False  # for `rotate`: pairs with a prefix token get the plain q·k
    _hooks: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        names = dict.fromkeys((*HOOKS, *ATTENTION_HOOKS, "fused_logits"))
        cls._hooks = frozenset(n for n in names if getattr(cls, n, None) is not getattr(PositionEncoding, n, None))

    # Once per forward pass

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Changes tokens (B, N, D) and positions before anything else, for example shuffles and hides in training."""
        return x, pos

    def prefix_vectors(self) -> Tensor | None:
        """Returns vectors (P, D) that are added to the prefix tokens."""
        return None

    def unknown_vector(self) -> Tensor | None:
        """Returns the vector (D,) that is added to tokens whose position is hidden."""
        return None

    # Before block ``layer``

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) that are added to the patch tokens; they depend on positions only.

        An encoding that acts at the input returns them for layer 0 and None for the others.
        """
        return None

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns patch tokens (B, N, D) changed in a way that depends on their content; ``x`` itself if unchanged."""
        return x

    # Inside the attention of block ``layer``

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns what is added to the logits: (B|1, H|1, N, N) for patches or (B|1, H|1, T, T) for all tokens.

        q and k are (B, H, T, d), before rotation; the logits are q·k/√d.
        """
        return None

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the q and k of the patch tokens (B, H, N, d) whose product gives the logits.

        The width may change, to (B, H, N, e) for both; the logits are divided by √d all the same.
        """
        return q, k

    # Training

    def penalty(self, pos: Positions, others: Sequence[PositionEncoding] = ()) -> Tensor | float:
        """Returns an extra loss for this batch; ``others`` are the other encodings of the sum."""
        return 0.0

    # Provided

    @property
    def parts(self) -> list[PositionEncoding]:
        """The encodings of a sum; otherwise the encoding itself."""
        return [self]

    @property
    def hooks(self) -> frozenset[str]:
        """The names of the hooks that the class overrides and of the attention protocols that it implements."""
        return self._hooks

    def cached(self, pos: Positions, name: str, make: Callable[[], T], dtype: torch.dtype | None = None) -> T:
        """Returns ``make()``, computed once per grid and shared by all encodings of the same class and options.

        Only for functions of positions, geometry and options; never for what depends on a parameter. Nothing is cached
        for an encoding that has buffers or tensor attributes, because the result may depend on them. Give ``dtype`` if
        the result has it.
        """
        state = vars(self)
        if self._buffers or any(isinstance(value, Tensor) for value in state.values()):
            return make()
        options = tuple((key, value) for key, value in state.items() if isinstance(value, _PLAIN) and key != "training")
        return pos.cached((type(self), options, name, dtype), make)

    def __add__(self, other: PositionEncoding) -> SumEncoding:
        return SumEncoding([*self.parts, *other.parts])


_PLAIN = (bool, int, float, str, tuple, Geometry, type(None))  # attributes that an option or the geometry can become


class SumEncoding(PositionEncoding):
    """Several encodings: vectors, biases and penalties are summed; augment, update and rotate are applied in order."""

    def __init__(self, parts: Iterable[PositionEncoding]):
        super().__init__()
        self.encodings = nn.ModuleList(parts)

    @property
    def parts(self) -> list[PositionEncoding]:
        """The encodings of the sum."""
        return cast(list[PositionEncoding], list(self.encodings))

    @property
    def hooks(self) -> frozenset[str]:
        """The hooks of all parts."""
        return frozenset[str]().union(*(part.hooks for part in self.parts))

    @property
    def unrotated_prefix(self) -> bool:  # type: ignore[override]
        """Whether any part gives pairs with a prefix token the plain q·k."""
        return any(part.unrotated_prefix for part in self.parts)

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Applies the parts in order."""
        for part in self.parts:
            x, pos = part.augment(x, pos)
        return x, pos

    def prefix_vectors(self) -> Tensor | None:
        """Returns the sum over the parts."""
        return total(part.prefix_vectors() for part in self.parts)

    def unknown_vector(self) -> Tensor | None:
        """Returns the sum over the parts."""
        return total(part.unknown_vector() for part in self.parts)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the sum over the parts."""
        return total(part.vectors(pos, layer, dtype) for part in self.parts)

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Applies the parts in order."""
        for part in self.parts:
            x = part.update(x, pos, layer)
        return x

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the sum over the parts; where one covers prefix tokens, all are padded to (…, T, T)."""
        biases = [bias for part in self.parts if (bias := part.bias(q, k, pos, layer)) is not None]
        widest = max((bias.shape[-1] for bias in biases), default=0)
        return total(pad_prefix(bias, widest) for bias in biases)

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Applies the parts in order."""
        for part in self.parts:
            q, k = part.rotate(q, k, pos, layer)
        return q, k

    def penalty(self, pos: Positions, others: Sequence[PositionEncoding] = ()) -> Tensor | float:
        """Returns the sum over the parts, each of which gets the rest as ``others``."""
        return sum(part.penalty(pos, [o for o in self.parts if o is not part]) for part in self.parts)


def total(terms: Iterable[Tensor | None]) -> Tensor | None:
    """Returns the sum of the terms that are not None; None if there are none."""
    found = [term for term in terms if term is not None]
    return sum(found[1:], found[0]) if found else None


def pad_prefix(bias: Tensor, tokens: int) -> Tensor:
    """Pads a bias for patch pairs (…, N, N) to all ``tokens``, with zeros for pairs with a prefix token."""
    prefix = tokens - bias.shape[-1]
    return F.pad(bias, (prefix, 0, prefix, 0)) if prefix else bias


def check_positive(name: str, **values: float) -> None:
    """Raises if an option of encoding ``name`` is not above zero."""
    for option, value in values.items():
        if not value > 0:
            raise InputError(f"encoding {name!r} got {option}={value}; choose a number above 0")


def check_has_prefix(name: str, option: str, geometry: Geometry) -> None:
    """Raises if an option that needs CLS or register tokens is used in a model without them."""
    if not geometry.num_prefix:
        raise InputError(f"encoding {name!r} got {option} in a model without CLS or registers; leave it out")
