"""Where tokens sit, as data: grid, coordinates, cells, and which places may be used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError

T = TypeVar("T")


class TableCache:
    """Values by key, of at most ``max_bytes`` of tensors; the least recently used are dropped first."""

    def __init__(self, max_bytes: int = 256 * 2**20):
        self.max_bytes, self.bytes = max_bytes, 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of ``key``, made now if it is not there; a value larger than the cache is not kept."""
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
"""The tables of full grids, for the whole process."""


@dataclass(frozen=True, eq=False)
class Positions:
    """The places of the patch tokens of a batch; ``B|1`` means one set of places for all images, or one per image.

    ``raster`` and ``hiding`` are facts known without looking into a tensor: that the tokens are all cells of the grid
    in row-major order at whole coordinates, and that something may be hidden. They let an encoding take its short way;
    a Positions made by hand takes the long one.
    """

    grid: tuple[int, int]  # rows, columns of the slots
    coords: Tensor  # (B|1, N, 2) row, column of each token, in patches of the training grid
    cells: Tensor  # (B|1, N) slot of the grid that each token belongs to, row-major
    known: Tensor  # (B|1, N) False where the place must not be used
    raster: bool = False
    hiding: bool = True
    _tables: TableCache = field(default_factory=TableCache, init=False, repr=False)
    _grid_key: Hashable = field(default=None, init=False, repr=False)  # what identifies a full grid in GRID_TABLES

    @staticmethod
    def of(
        grid: tuple[int, int],
        *,
        fit: tuple[int, int] | None = None,
        device: torch.device | str | None = None,
    ) -> Positions:
        """All cells of a grid in row-major order.

        With ``fit`` the grid is laid over the span of that (training) grid, patch centres where they fall, so that a
        finer grid gets fractional coordinates; without it, coordinates are whole and a larger grid goes beyond.
        """
        grid = _sides(grid)
        fit = grid if fit is None else _sides(fit)
        if torch.compiler.is_compiling():  # a traced tensor must not outlive its trace
            return _raster(grid, fit, torch.device(device or "cpu"))
        return _cached_raster(grid, fit, torch.device(device or "cpu"))

    def known_pixels(self, size: Sequence[int]) -> Tensor:
        """(B|1, 1, height, width): whether the place of each pixel of pictures of a size is known, tokens row-major."""
        cells = self.known.unflatten(1, self.grid)[:, None]
        return F.interpolate(cells.float(), tuple(size), mode="nearest").bool()

    def hide(self, mask: Tensor) -> Positions:
        """The same places, not to be used where ``mask`` (B|1, N) is True."""
        if mask.shape[-1] != self.cells.shape[1]:
            raise UserError(f"a mask of {tuple(mask.shape)} does not say which of {self.cells.shape[1]} places to hide")
        if mask.dtype != torch.bool:
            raise UserError(f"a mask of {mask.dtype} does not say which places to hide; give mask.bool()")
        return replace(self, known=self.known & ~mask, hiding=True)

    def shown(self) -> Positions:
        """The same places, all of them to be used."""
        return replace(self, known=torch.ones_like(self.known), hiding=False) if self.hiding else self

    def permute(self, order: Tensor) -> Positions:
        """Positions that follow shuffled tokens: token i is the one that was token ``order[..., i]`` (B|1, N)."""
        count = self.cells.shape[-1]
        if order.shape[-1] != count:
            raise UserError(f"an order of {order.shape[-1]} tokens does not permute {count}; name every token once")
        return self.take(order)

    def take(self, index: Tensor) -> Positions:
        """The places of the tokens that patch dropout keeps: ``index`` (B|1, K)."""
        index = index if index.ndim == 2 else index[None]
        batch = max(len(index), len(self.cells))
        index = index.expand(batch, -1)
        cells = self.cells.expand(batch, -1).gather(1, index)  # (B|1, K)
        known = self.known.expand(batch, -1).gather(1, index)
        coords = self.coords.expand(batch, -1, -1).gather(1, index[..., None].expand(-1, -1, 2))
        return replace(self, coords=coords, cells=cells, known=known, raster=False)

    def to(self, device: torch.device | str) -> Positions:
        """The same places on another device."""
        if self.cells.device == torch.device(device):
            return self
        tensors = {name: getattr(self, name).to(device) for name in ("coords", "cells", "known")}
        return replace(self, **tensors)

    def placed(self, coords: Tensor) -> Positions:
        """The same tokens at other coordinates (B|1, N, 2)."""
        return replace(self, coords=coords, raster=False)

    def moved(self, offset: tuple[float, float]) -> Positions:
        """The same places seen from another origin: ``offset`` (rows, columns) added to every coordinate."""
        return self.placed(self.coords + self.coords.new_tensor(offset))

    def offsets(self) -> Tensor:
        """(B|1, N, N, 2): row and column of each query's place less those of each key's place."""
        return self.coords[:, :, None] - self.coords[:, None]

    def pairs(self) -> Tensor:
        """(B|1, 1, N, N): True where both places of a pair may be used; broadcasts over heads."""
        return (self.known[:, :, None] & self.known[:, None])[:, None]

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns ``make()``, computed once per key; for tables that depend on these positions alone.

        The tables of full grids are shared by all `Positions` of that grid, and the least recently used ones are dropped
        beyond `GRID_TABLES.max_bytes`. Computed outside inference mode, so that a table first used in an evaluation can
        be part of a training step later.
        """
        if torch.compiler.is_compiling():
            return make()
        tables = self._tables
        if self._grid_key is not None:
            tables, key = GRID_TABLES, (self._grid_key, key)
        return tables.get(key, make)


def _sides(grid: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(grid, tuple | list | torch.Size) or len(grid) != 2 or min(grid) < 1 or any(s % 1 for s in grid):
        raise UserError(f"a grid of {grid} cannot be; give (rows, columns)")
    return int(grid[0]), int(grid[1])


def _raster(grid: tuple[int, int], fit: tuple[int, int], device: torch.device) -> Positions:
    with torch.inference_mode(False):
        # cell i of n covers [i, i + 1) / n of the picture; its centre in patches of the training grid:
        rows, columns = (
            (torch.arange(n, device=device, dtype=torch.float32) + 0.5) * (span / n) - 0.5
            for n, span in zip(grid, fit, strict=True)
        )
        coords = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).flatten(0, 1)[None]  # (1, N, 2)
        cells = torch.arange(grid[0] * grid[1], device=device)[None]
        known = torch.ones_like(cells, dtype=torch.bool)
        return Positions(grid, coords, cells, known, raster=grid == fit, hiding=False)


@lru_cache(maxsize=64)
def _cached_raster(grid: tuple[int, int], fit: tuple[int, int], device: torch.device) -> Positions:
    pos = _raster(grid, fit, device)
    object.__setattr__(pos, "_grid_key", (grid, fit, device))
    return pos


torch.export.register_dataclass(Positions, serialized_type_name="vitpos.Positions")
