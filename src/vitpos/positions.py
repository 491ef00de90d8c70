"""Where tokens sit, as data: grid, coordinates, cells, and which places may be used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError

T = TypeVar("T")


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
    _tables: dict[Hashable, object] = field(default_factory=dict, init=False, repr=False)

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

    def table(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives for these places, made once: per grid for whole images, once a pass for shuffled ones.

        Only for what depends on places alone, never on a parameter; ``key`` begins with the name of whoever makes it and
        holds every option that matters. Made outside inference mode, so that a table first
        used in an evaluation can be trained with later.
        """
        if torch.compiler.is_compiling():
            return make()
        if key not in self._tables:
            with torch.inference_mode(False), torch.no_grad():
                self._tables[key] = make()
        return self._tables[key]  # type: ignore[return-value]


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
        return Positions(
            grid, coords, cells, torch.ones_like(cells, dtype=torch.bool), raster=grid == fit, hiding=False
        )


_cached_raster = lru_cache(maxsize=64)(_raster)

torch.export.register_dataclass(Positions, serialized_type_name="vitpos.Positions")
