"""Helpers of the checks of an encoding: small models that use it, calls of its hooks, comparisons of outputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.protocols import resized
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.models.attention import attention_logits
from vitpos.models.token_embedding import embed, input_vectors
from vitpos.models.vit import ViT
from vitpos.positions import Positions
from vitpos.registry import plugins

GRID, OTHER, PATCH = (3, 4), (2, 6), (2, 3)  # same number of positions; nothing is square
N = GRID[0] * GRID[1]
LAYER = 1
T = TypeVar("T")


class EncodingError(AssertionError):
    """Raised if an encoding breaks its contract; the message gives what was required and what was observed."""


@dataclass
class Subject:
    """The encoding under test: its factory, the geometry to build it with, its declared traits, and variants of it.

    Traits are properties such as ``translation_invariant``; variants are factories with other options.
    """

    name: str
    make: Callable[[Geometry], PositionEncoding]
    geometry: Geometry
    traits: tuple[str, ...] | None  # what it declares; None where traits are not checked
    files: list[str]  # Python files of its classes, in which errors are located; those of base classes come last
    variants: list[Callable[[Geometry], PositionEncoding]] = field(default_factory=list)  # with other options
    copied: bool = False  # whether ``make`` copies one instance, which fits only ``geometry``

    def model(
        self,
        dtype: torch.dtype = torch.float64,
        *,
        seed: int = 0,
        pool: Any = "cls",
        registers: int = 1,
        make: Any = None,
        randomize: bool = True,
    ) -> ViT:
        """Builds a ViT with the encoding and large random weights, in evaluation mode.

        It has two blocks, or as many as an instance is made for.

        Args:
            pool: how tokens are pooled: ``"cls"`` (adds a CLS token) or ``"mean"``.
            registers: number of register tokens.
            make: factory of another encoding, in place of the one under test.
            randomize: False keeps the initial weights.
        """
        torch.manual_seed(seed)
        g = self.geometry
        if self.copied:
            pool = pool if g.num_prefix else "mean"
            registers = g.num_prefix - (pool == "cls")
        made = ViT(
            (2, GRID[0] * PATCH[0], GRID[1] * PATCH[1]),
            5,
            make or self.make,
            patch=PATCH,
            dim=g.dim,
            depth=g.depth if self.copied else 2,
            heads=g.heads,
            registers=registers,
            pool=pool,
        )
        with torch.no_grad():
            for parameter in made.parameters() if randomize else ():
                size = min(0.5, 1.5 * parameter.shape[1] ** -0.5) if parameter.ndim == 2 else 0.5
                parameter.copy_(torch.randn_like(parameter) * size)
        return made.to(dtype).eval()

    def images(self, grid: tuple[int, int] = GRID) -> Tensor:
        """Returns three fixed random images (3, 2, height, width) with ``grid`` = (rows, columns) patches each."""
        generator = torch.Generator().manual_seed(1)
        return torch.randn(3, 2, grid[0] * PATCH[0], grid[1] * PATCH[1], generator=generator, dtype=torch.float64)

    def tokens(self, count: int = N) -> Tensor:
        """Returns fixed random patch tokens (3, ``count``, D) of three images; D is the width of the model."""
        generator = torch.Generator().manual_seed(2)
        return torch.randn(3, count, self.geometry.dim, generator=generator, dtype=torch.float64)


# The only functions that call hooks of an encoding.


def forward(model: ViT, x: Tensor, pos: Positions) -> Tensor:
    """Returns the logits (B, classes) of a model for given patch tokens x (B, N, D) and their positions."""
    x, pos = hooks.augment(model.encoding, x, pos)
    return model.head(model.pool_tokens(model.forward_blocks(embed(model.encoding, x, pos, 0), pos)))


def pair_logits(model: ViT, x: Tensor, pos: Positions) -> Tensor:
    """Returns attention logits (B, H, N, N) with the position encoding in the second block, for H heads.

    The patch tokens x (B, N, D), split into heads, are the queries and, with reversed channels, the keys.
    """
    for layer in range(LAYER + 1):
        x = embed(model.encoding, x, pos, layer)
    q = x.unflatten(2, (model.geometry.heads, -1)).transpose(1, 2)
    return attention_logits(q, q.flip(-1), model.encoding, pos, LAYER, x)


def added(model: ViT, x: Tensor, pos: Positions) -> Tensor:
    """Returns the vectors (B or 1, N, D) that the encoding adds to patch tokens x (B, N, D) before the first block."""
    return input_vectors(model.encoding, pos, x)[0]


def patch_logits(model: ViT, pos: Positions) -> Tensor:
    """Returns attention logits (3, H, N, N) of N patches at positions ``pos`` in the first block, for H heads.

    Queries and keys are fixed random vectors of three images.
    """
    q, k = _queries_and_keys(model)
    tokens = q.transpose(1, 2).flatten(2)
    prefix = model.geometry.num_prefix
    return attention_logits(q, k, model.encoding, pos, 0, tokens)[..., prefix:, prefix:]


def full_bias(model: ViT, pos: Positions) -> Tensor:
    """Returns the encoding's bias (B or 1, heads or 1, T, T) of attention logits, for T prefix and patch tokens.

    Returns zeros if the encoding has no bias.
    """
    q, k = _queries_and_keys(model)
    count = q.shape[2]
    bias = hooks.bias(model.encoding, q, k, pos, 0, q.transpose(1, 2).flatten(2))
    return q.new_zeros(1, 1, count, count) if bias is None else bias


def _queries_and_keys(model: ViT) -> Tensor:
    heads, width = model.geometry.heads, model.geometry.dim // model.geometry.heads
    count = model.geometry.num_prefix + N
    return torch.randn(2, 3, heads, count, width, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def table_shapes(encoding: PositionEncoding, grid: tuple[int, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns two dictionaries tensor name → shape of an encoding's ``state_dict``, before and after it is resized.

    Args:
        grid: (rows, columns) of patches that the encoding is resized to.
    """
    before, after = ({k: t.shape for k, t in e.state_dict().items()} for e in (encoding, resized(encoding, grid)))
    return before, after


# Comparison


def difference(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> str:
    """Returns a text with the largest absolute difference of two tensors and its index; their shapes if these differ.

    The text is empty if the tensors are equal up to ``tolerance``, which is both relative and absolute.
    """
    a, b = a.detach(), b.detach()
    if a.shape != b.shape:
        return f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
    gap = (a - b).abs()
    if torch.allclose(a, b, rtol=tolerance, atol=tolerance):
        return ""
    gap = gap.nan_to_num(torch.inf)
    at = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape))
    return f"largest difference {float(gap.max()):.3g} at {at}"


def equal(a: Tensor, b: Tensor, broken: str) -> None:
    """Raises an EncodingError that begins with ``broken`` if two tensors differ by more than rounding."""
    if found := difference(a, b):
        raise EncodingError(f"{broken}: {found}")


def order(count: int = N) -> Tensor:
    """Returns a fixed random permutation (``count``,) of ``count`` tokens."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(3))


def orders() -> Tensor:
    """Returns fixed permutations (3, N) of N patch tokens, one for each of three images; the last is the identity."""
    return torch.stack([order(), order().flip(0), torch.arange(N)])


class UncachedPositions(Positions):
    """Positions without a cache, on which encodings compute tables such as sines and cosines anew at each call.

    Checks compare outputs with these positions to outputs with cached tables.
    """

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns ``make()``, computed at every call; ``key``, the key of the cache in the base class, is ignored."""
        return make()


def uncached(pos: Positions) -> Positions:
    """Returns a copy of positions without a cache: tables such as sines and cosines are computed at every call."""
    return UncachedPositions(pos.grid, pos.coords, pos.index, pos.known, pos.is_full_grid, pos.has_hidden)


def subject_of(name: str, make: Callable[[Geometry], PositionEncoding], geometry: Geometry, *, traits: bool) -> Subject:
    """Returns the `Subject`, the encoding under test, for a factory.

    Args:
        name: name of the encoding in messages.
        make: builds the encoding for a Geometry (width, heads, depth, grid and number of prefix tokens).
        geometry: the Geometry to test with.
        traits: whether the declared traits are checked; those of a sum of encodings never are.
    """
    factory = plugins.identity(getattr(make, "func", make))[0]  # ``func``: of a partial
    try:
        made = make(geometry)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"encoding {name!r} cannot be built: {error_line(error, [factory])}") from error
    if not isinstance(made, PositionEncoding):
        raise InputError(f"encoding {name!r} makes a {type(made).__name__}; derive it from vitpos.PositionEncoding")
    if not isinstance(made.traits, tuple | list):
        raise InputError(f"encoding {name!r} has traits = {made.traits!r}; give a tuple such as ('learnable',)")
    declared = tuple(made.traits) if traits and len(made.parts) == 1 else None
    bases = (cls for part in made.parts for cls in type(part).__mro__ if issubclass(cls, PositionEncoding))
    files = [plugins.identity(cls)[0] for cls in bases if cls is not PositionEncoding]
    return Subject(name, make, geometry, declared, [*files, factory])


def error_line(error: Exception, files: Sequence[str]) -> str:
    """Returns an exception in one line: type, message, and location, as ``ValueError: bad value (mine.py, line 3)``.

    The location is the innermost line of the traceback in the first of ``files`` that occurs in the traceback. If none
    of them occurs, it is the first file without a line.
    """
    where = next(filter(None, (plugins.location(error, {file}) for file in files)), files[0])
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})"
