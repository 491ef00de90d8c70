"""`PositionEncoding`, the base class; `SumEncoding`, a sum of encodings; `Geometry`, the model's properties they use."""

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
    "context_dependent": "logits of two tokens depend on other tokens too",
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
    """The properties of a model that its position encoding is built from.

    Args:
        dim: Width D of the tokens.
        heads: Number of attention heads.
        depth: Number of blocks.
        grid: Rows and columns of patches in the training images.
        num_prefix: Number of prefix tokens (CLS and registers) in front of the patches.
    """

    dim: int
    heads: int
    depth: int
    grid: tuple[int, int]  # rows, columns of patches in the training images
    num_prefix: int = 0  # number of CLS and register tokens in front of the patches


class PositionEncoding(nn.Module):
    """Base class of position encodings; ``a + b`` is an encoding that uses both.

    A subclass overrides the methods (hooks) that it needs, usually one: for example ``vectors`` to add vectors to
    tokens, ``bias`` to add to attention logits, or ``rotate`` for rotary encodings. The others do nothing. Hooks get
    the patch tokens only, except that ``bias`` gets q and k of all T tokens, prefix tokens (CLS and registers) first.

    Positions may be hidden (`Positions.known` is False): an encoding must not use them, as for masked patches in
    training with masked jigsaw puzzles (`mjp`). The model handles this: a token with a hidden position gets no vector,
    and a pair of patches with one gets the plain logit q·k/√d, without bias or rotation. Three hooks must ignore hidden
    positions themselves: ``update``; a bias of shape (…, T, T), for pairs with a prefix token; and a bias or weights of
    a pair that depend on other patches, as in `cope`, whose bias depends on counts of patches.

    Shapes: B batch, N patch tokens, T all tokens, D model width, H heads, d head width, R×C grid; B|1 is B, or 1 and then
    broadcasts. Less common hooks are in `vitpos.encodings.protocols`. ``traits`` lists properties from `TRAITS`, such as
    ``"translation_invariant"``; `vitpos.testing.check_encoding` tests that the listed ones hold and the others do not.
    """

    paper: ClassVar[str] = ""
    unsettled: ClassVar[str] = ""  # what the sources leave open; leaderboards show such an encoding without a rank
    traits: ClassVar[tuple[str, ...]] = ()
    weight_decay: bool = False  # whether weight decay applies to its own parameters; not to those of submodules
    unrotated_prefix: bool = False  # for `rotate`: pairs with a prefix token get the plain q·k
    _hooks: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, geometry: Geometry | None = None) -> None:
        """Ignores ``geometry``; models call ``Class(geometry, **options)``. Subclasses with parameters override this."""
        super().__init__()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        names = dict.fromkeys((*HOOKS, *ATTENTION_HOOKS, "fused_logits"))
        cls._hooks = frozenset(n for n in names if getattr(cls, n, None) is not getattr(PositionEncoding, n, None))

    # Once per forward pass

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Returns tokens x (B, N, D) and positions, possibly changed; called first in each forward pass.

        For example, `mjp` shuffles some tokens in training and hides their positions, so that no encoding uses them.
        """
        return x, pos

    def prefix_vectors(self) -> Tensor | None:
        """Returns vectors (P, D) to add to the P prefix tokens (CLS and registers), or None to add nothing."""
        return None

    def unknown_vector(self) -> Tensor | None:
        """Returns a vector (D,) to add to tokens with a hidden (masked) position, as in MJP, or None to add nothing."""
        return None

    # Before block ``layer``

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns vectors (B|1, N, D) to add to the patch tokens before block number ``layer``, or None.

        They depend on positions only. Most encodings return them for layer 0 and None for the others.
        """
        return None

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the patch tokens x (B, N, D) before block number ``layer``, changed depending on their content.

        For example, `cpe` adds a convolution of them. Returns ``x`` itself if it is unchanged.
        """
        return x

    # Inside the attention of block ``layer``

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns a bias for the attention logits: (B|1, H|1, N, N) for patches, (B|1, H|1, T, T) for all tokens, or None.

        q and k are (B, H, T, d), before rotation; the logits are q·k/√d plus the bias.
        """
        return None

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Returns q and k of the patch tokens (B, H, N, d) after a rotation (or another map) that depends on positions.

        The width may change to e for both, (B, H, N, e); the logits are still q·k/√d with the original d.
        """
        return q, k

    # Training

    def penalty(self, pos: Positions, others: Sequence[PositionEncoding] = ()) -> Tensor | float:
        """Returns an extra loss for this batch, a scalar, which training adds to the cross-entropy.

        ``others`` are the other encodings, if this one is part of a sum such as ``learned + mjp``.
        """
        return 0.0

    # Provided

    @property
    def parts(self) -> list[PositionEncoding]:
        """Returns the list of encodings of a sum such as ``learned + mjp``; a list with one entry if it is no sum."""
        return [self]

    @property
    def hooks(self) -> frozenset[str]:
        """Returns the names of the methods through which the encoding acts, such as ``{"bias"}`` or ``{"rotate"}``."""
        return self._hooks

    def cached(self, pos: Positions, name: str, make: Callable[[], T], dtype: torch.dtype | None = None) -> T:
        """Returns ``make()``, computed once per grid and shared by all encodings of the same class and options.

        The result must depend only on positions, geometry and options, never on a parameter or a random number. It is
        computed at every call if it may depend on other state: if the encoding has buffers, an attribute that is not a
        number, text, tuple or geometry, or a module of a class outside ``torch.nn``.

        Args:
            name: Name of the result, different for each use within a class.
            make: Computes the result.
            dtype: Data type of the result, if it depends on that of the model.
        """
        options = tuple((key, value) for key, value in vars(self).items() if key not in _MODULE_STATE)
        modules = (module for child in self.children() for module in child.modules())
        if (
            not all(_is_plain(value) for _, value in options)
            or next(self.buffers(), None) is not None
            or not all(type(module).__module__.startswith("torch.nn.") for module in modules)
        ):
            return pos.without_autocast(make)
        owner = self if self in pos.augmented else None  # tables of its own random coordinates are not shared
        return pos.cached((type(self), options, name, dtype, owner), make)

    def extra_repr(self) -> str:
        """Returns the options that ``repr`` shows, as ``base=5.0``: numbers, texts and tuples of them."""
        options = {key: value for key, value in vars(self).items() if key not in _MODULE_STATE and key[0] != "_"}
        shown = {key: value for key, value in options.items() if _is_plain(value) and not isinstance(value, Geometry)}
        return ", ".join(f"{key}={value!r}" for key, value in shown.items())

    def __add__(self, other: PositionEncoding) -> SumEncoding:
        return SumEncoding([self, other])


_MODULE_STATE = frozenset(vars(nn.Module()))  # attributes of every module: parameters, buffers, `training`, …


def _is_plain(value: object) -> bool:
    """Returns whether a value is a number, text, None, a geometry, or a tuple of such values: what an option can be."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str | Geometry | None)


class SumEncoding(PositionEncoding):
    """The sum of several encodings, such as ``learned + mjp``.

    Vectors, biases and penalties are summed; ``augment``, ``update`` and ``rotate`` are applied one after the other.
    """

    def __init__(self, parts: Iterable[PositionEncoding]):
        super().__init__()
        self.encodings = nn.ModuleList(one for part in parts for one in part.parts)  # a sum of sums is flat

    @property
    def parts(self) -> list[PositionEncoding]:
        """Returns the list of encodings of the sum."""
        return cast(list[PositionEncoding], list(self.encodings))

    @property
    def hooks(self) -> frozenset[str]:
        """Returns the names of the methods through which any encoding of the sum acts."""
        return frozenset(hook for part in self.parts for hook in part.hooks)

    @property
    def unrotated_prefix(self) -> bool:  # type: ignore[override]
        """Returns whether any encoding of the sum gives pairs with a prefix token the plain q·k, without rotation."""
        return any(part.unrotated_prefix for part in self.parts)

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Applies the ``augment`` of each encoding of the sum in order; returns tokens (B, N, D) and positions."""
        for part in self.parts:
            x, pos = part.augment(x, pos)
        return x, pos

    def prefix_vectors(self) -> Tensor | None:
        """Returns the sum of the encodings' vectors (P, D) for the P prefix tokens; None if no encoding has any."""
        return total(part.prefix_vectors() for part in self.parts)

    def unknown_vector(self) -> Tensor | None:
        """Returns the sum of the encodings' vectors (D,) for tokens with a masked position; None if no encoding has one."""
        return total(part.unknown_vector() for part in self.parts)

    def vectors(self, pos: Positions, layer: int, dtype: torch.dtype) -> Tensor | None:
        """Returns the sum of the encodings' vectors (B|1, N, D) of patches before block ``layer``; None if all are None."""
        return total(part.vectors(pos, layer, dtype) for part in self.parts)

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Applies the ``update`` of each encoding of the sum in order; returns patch tokens (B, N, D)."""
        for part in self.parts:
            x = part.update(x, pos, layer)
        return x

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the sum of the encodings' biases of logits, (B|1, H|1, N, N) or (B|1, H|1, T, T); None if all are None.

        If any bias is for all T tokens, prefix tokens included, the biases for the N patches are padded with zeros.
        """
        biases = [bias for part in self.parts if (bias := part.bias(q, k, pos, layer)) is not None]
        widest = max((bias.shape[-1] for bias in biases), default=0)
        return total(pad_prefix(bias, widest) for bias in biases)

    def rotate(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
        """Applies the ``rotate`` of each encoding in order; returns q and k (B, H, N, e), e the width after rotation."""
        for part in self.parts:
            q, k = part.rotate(q, k, pos, layer)
        return q, k

    def penalty(self, pos: Positions, others: Sequence[PositionEncoding] = ()) -> Tensor | float:
        """Returns the sum of the encodings' extra losses; each encoding gets the remaining ones as ``others``."""
        return sum(part.penalty(pos, [o for o in self.parts if o is not part]) for part in self.parts)


def total(terms: Iterable[Tensor | None]) -> Tensor | None:
    """Returns the sum of the terms that are not None; None if all terms are None."""
    found = [term for term in terms if term is not None]
    return sum(found[1:], found[0]) if found else None


def pad_prefix(bias: Tensor, tokens: int) -> Tensor:
    """Pads a bias for patches (…, N, N) with zeros to (…, T, T), T = ``tokens``; the prefix tokens come first."""
    prefix = tokens - bias.shape[-1]
    return F.pad(bias, (prefix, 0, prefix, 0)) if prefix else bias


def check_positive(name: str, **values: float) -> None:
    """Raises InputError if an option, such as ``hidden_dim=0``, of the encoding called ``name`` is not above zero."""
    for option, value in values.items():
        if not value > 0:
            raise InputError(f"encoding {name!r} got {option}={value}; choose a number above 0")


def check_has_prefix(name: str, option: str, geometry: Geometry) -> None:
    """Raises InputError if a model without prefix tokens (CLS or registers) is given an option that needs them.

    ``name`` is the name of the encoding and ``option`` a text such as ``"prefix_mode='learned'"``, for the message.
    """
    if not geometry.num_prefix:
        raise InputError(f"encoding {name!r} got {option} in a model without CLS or registers; leave it out")
