"""Positions of patch tokens: grid, coordinates, grid cells, and which positions are known to the model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError

T = TypeVar("T")


class TableCache:
    """A cache of at most ``max_bytes`` of tensors, which drops the least recently used values first."""

    def __init__(self, max_bytes: int = 256 * 2**20):
        self.max_bytes, self.bytes = max_bytes, 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the cached value of ``key``, or ``make()``, which is then cached unless it exceeds ``max_bytes``."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return cast(T, self._entries[key][0])
        with torch.inference_mode(False), torch.no_grad():
            value = make()
        size = _tensor_bytes(value)
        if size <= self.max_bytes:
            self._entries[key] = value, size
            self.bytes += size
            while self.bytes > self.max_bytes:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.bytes -= dropped
        return value


def _tensor_bytes(value: object) -> int:
    if isinstance(value, Tensor):
        return value.untyped_storage().nbytes()
    return sum(map(_tensor_bytes, value)) if isinstance(value, tuple | list) else 0


GRID_TABLES = TableCache()
"""The cache of `Positions.cached` for full grids, such as RoPE's sines and cosines; one for the whole process."""


@dataclass(frozen=True, eq=False, repr=False)
class Positions:
    """The positions of the N patch tokens of a batch.

    In shapes, ``B|1`` is B if each image has its own positions, and 1 if all images share them.

    Args:
        grid: Rows and columns of the grid.
        coords: (B|1, N, 2), row and column of each token, in units of patches of the training grid; may be fractional.
        index: (B|1, N), row-major index of the grid cell of each token.
        known: (B|1, N), False where the position is hidden: encodings must not use it, as for masked patches in MJP
            training.
        is_full_grid: True if the tokens are all cells of the grid in row-major order, at integer coordinates. Encodings
            then use faster code; False is always correct, but slower.
        has_hidden: False if ``known`` is True everywhere. Encodings then use faster code; True is always correct, but
            slower.
        augmented: Encoding → coordinates (B|1, N, 2) that this encoding, such as `cape`, sampled at random for one
            forward pass; it uses them in place of ``coords``, other encodings ignore them.
        is_row_major: True if the tokens are all cells of the grid in row-major order, at any coordinates, as on a grid of
            another size than in training. Encodings that use ``index`` and not ``coords`` then use faster code.
    """

    grid: tuple[int, int]
    coords: Tensor
    index: Tensor
    known: Tensor
    is_full_grid: bool = False
    has_hidden: bool = True
    augmented: Mapping[Hashable, Tensor] = field(default_factory=dict)
    is_row_major: bool = False
    _tables: TableCache | None = field(default=None, init=False)  # made when first used: torch.compile cannot trace it
    _grid_key: Hashable = field(default=None, init=False)  # key of a full grid in GRID_TABLES

    def __post_init__(self) -> None:
        """A full grid is in row-major order."""
        object.__setattr__(self, "is_row_major", self.is_row_major or self.is_full_grid)

    def __repr__(self) -> str:
        hidden = int((~self.known).sum()) if self.has_hidden else 0
        images, tokens = max(map(len, (self.coords, self.index, self.known))), self.index.shape[1]
        return f"Positions(grid={self.grid}, images={images}, tokens={tokens}, hidden={hidden})"

    @staticmethod
    def from_grid(
        grid: tuple[int, int],
        *,
        train_grid: tuple[int, int] | None = None,
        device: torch.device | str | None = None,
    ) -> Positions:
        """Returns the positions of all cells of a grid in row-major order.

        Args:
            grid: Rows and columns.
            train_grid: Rows and columns of the training grid. Coordinates are scaled to its range: with 14 rows instead
                of 7, they are −0.25, 0.25, 0.75, … By default coordinates are 0, 1, 2, …, and a larger grid extends
                beyond the training grid.
            device: Device of the tensors; the CPU by default.
        """
        grid = _sides(grid)
        train_grid = grid if train_grid is None else _sides(train_grid)
        if torch.compiler.is_compiling():  # a traced tensor must not outlive its trace
            return _full_grid(grid, train_grid, torch.device(device or "cpu"))
        return _cached_full_grid(grid, train_grid, torch.device(device or "cpu"))

    def hide(self, mask: Tensor) -> Positions:
        """Returns a copy with the positions hidden (``known`` False) where ``mask`` (B|1, N) is True.

        Encodings do not use hidden positions.
        """
        if mask.shape[-1] != self.index.shape[1]:
            count = self.index.shape[1]
            raise InputError(
                f"a mask of shape {tuple(mask.shape)} does not fit {count} positions; give (batch, {count}) or (1, {count})"
            )
        if mask.dtype != torch.bool:
            raise InputError(f"a mask of type {mask.dtype} cannot hide positions; give mask.bool()")
        return replace(self, known=self.known & ~mask, has_hidden=True)

    def reveal(self) -> Positions:
        """Returns a copy in which all positions are known (``known`` is True everywhere)."""
        return replace(self, known=torch.ones_like(self.known), has_hidden=False) if self.has_hidden else self

    def permute(self, order: Tensor) -> Positions:
        """Returns the positions of permuted tokens: token i gets the position of token ``order[..., i]``.

        ``order`` is (N,) for all images, or (B|1, N).
        """
        count = self.index.shape[-1]
        if order.shape[-1] != count:
            raise InputError(f"an order of {order.shape[-1]} tokens does not permute {count}; name every token once")
        return self.select(order)

    def select(self, index: Tensor) -> Positions:
        """Returns the positions of K of the N tokens, such as those that patch dropout keeps.

        ``index`` (B|1, K) or (K,) gives the numbers of the selected tokens, 0 to N − 1.
        """
        index = index if index.ndim == 2 else index[None]
        cells, known = (tensor.take_along_dim(index, 1) for tensor in (self.index, self.known))  # (B|1, K)
        coords = self.coords.take_along_dim(index[..., None], 1)  # (B|1, K, 2)
        augmented = {owner: one.take_along_dim(index[..., None], 1) for owner, one in self.augmented.items()}
        moved = replace(self, coords=coords, index=cells, known=known, augmented=augmented)
        return replace(moved, is_full_grid=False, is_row_major=False)

    def to(self, device: torch.device | str) -> Positions:
        """Returns the positions with all tensors on a device; the same object if they are there already."""
        if self.index.device == torch.device(device):
            return self
        tensors = {name: getattr(self, name).to(device) for name in ("coords", "index", "known")}
        augmented = {owner: one.to(device) for owner, one in self.augmented.items()}
        return replace(self, **tensors, augmented=augmented)

    def with_coords(self, coords: Tensor) -> Positions:
        """Returns a copy with other coordinates (B|1, N, 2), in rows and columns, and an empty ``augmented``.

        ``augmented`` holds coordinates that encodings sampled at random from the old ones.
        """
        return replace(self, coords=coords, augmented={}, is_full_grid=False)

    def with_augmented(self, owner: Hashable, coords: Tensor) -> Positions:
        """Returns a copy in which ``augmented[owner]`` is set to ``coords``.

        Args:
            owner: the encoding that sampled the coordinates at random for this forward pass; only this encoding uses them.
            coords: (B|1, N, 2), two coordinates of each token, in the units of that encoding.
        """
        return replace(self, augmented={**self.augmented, owner: coords})

    def shift(self, offset: tuple[float, float]) -> Positions:
        """Returns a copy with ``offset`` (rows, columns) added to the coordinates of all tokens."""
        return self.with_coords(self.coords + self.coords.new_tensor(offset))

    def offsets(self) -> Tensor:
        """Returns the offsets (B|1, N, N, 2) in rows and columns: coordinates of queries minus coordinates of keys."""
        return self.coords[:, :, None] - self.coords[:, None]

    def known_pairs(self, prefix: int = 0, *, prefix_known: bool = True) -> Tensor:
        """Returns a mask (B|1, 1, T, T) for attention: True where the positions of query and key are both known.

        T is N, plus ``prefix`` tokens in front (CLS and registers), which count as known if ``prefix_known`` is True. A
        position is not known if it is hidden, as for masked patches in MJP training.
        """
        known = F.pad(self.known, (prefix, 0), value=prefix_known)
        return (known[:, :, None] & known[:, None])[:, None]

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns ``make()``, a table that depends only on these positions; computed once per ``key``.

        Tables of a full grid are shared by all `Positions` of that grid, in the cache `GRID_TABLES`, which drops the
        least recently used ones. A key is, for example, ``("rope", 10.0)``. ``make`` runs outside inference mode, so
        that training can use a table that an evaluation computed, and without autocast, in full precision.
        """
        if torch.compiler.is_compiling():
            return self.without_autocast(make)
        if self._grid_key is not None:
            return GRID_TABLES.get((self._grid_key, key), partial(self.without_autocast, make))
        if self._tables is None:
            object.__setattr__(self, "_tables", TableCache())
        return cast(TableCache, self._tables).get(key, partial(self.without_autocast, make))

    def without_autocast(self, make: Callable[[], T]) -> T:
        """Calls ``make`` with autocast disabled and returns its result.

        Autocast would round products of coordinates to bfloat16.
        """
        return without_autocast(self.coords.device, make)


def without_autocast(device: torch.device, make: Callable[[], T]) -> T:
    """Calls ``make`` with autocast disabled on a device and returns its result."""
    if not torch.amp.is_autocast_available(device.type) or not torch.is_autocast_enabled(device.type):
        return make()  # without a context, which exported graphs would contain
    with torch.autocast(device.type, enabled=False):
        return make()


def _sides(grid: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(grid, tuple | list | torch.Size) or len(grid) != 2 or any(s < 1 or s % 1 for s in grid):
        raise InputError(f"got a grid of {grid}; give (rows, columns), two whole numbers of 1 or more")
    # int() would fix a side that is free in an exported model
    rows, columns = (side if isinstance(side, torch.SymInt) else int(side) for side in grid)
    return rows, columns


def _known_equal(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Returns whether two grids are equal; False if a side is free in an exported model, so that it stays free."""
    return not any(isinstance(side, torch.SymInt) for side in (*a, *b)) and a == b


def _full_grid(grid: tuple[int, int], train_grid: tuple[int, int], device: torch.device) -> Positions:
    with torch.inference_mode(False):
        # cell i of n covers [i, i + 1) / n of the image; its center in units of patches of the training grid:
        rows, columns = (
            (torch.arange(n, device=device, dtype=torch.float32) + 0.5) * (span / n) - 0.5
            for n, span in zip(grid, train_grid, strict=True)
        )
        coords = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).flatten(0, 1)[None]  # (1, N, 2)
        cells = torch.arange(grid[0] * grid[1], device=device)[None]
        known = torch.ones_like(cells, dtype=torch.bool)
        full = _known_equal(grid, train_grid)
        return Positions(grid, coords, cells, known, is_full_grid=full, has_hidden=False, is_row_major=True)


@lru_cache(maxsize=64)
def _cached_full_grid(grid: tuple[int, int], train_grid: tuple[int, int], device: torch.device) -> Positions:
    pos = _full_grid(grid, train_grid, device)
    object.__setattr__(pos, "_grid_key", (grid, train_grid, device))
    return pos


torch.export.register_dataclass(Positions, serialized_type_name="vitpos.Positions")
