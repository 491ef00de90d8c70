"""The budget of an inspection: what is too large for it is subsampled or left out, and the inspection says so.

The limits are far above the sizes of published models, so that only damaged or hostile files reach them. Within them, an
inspection takes less than 2 GB and, on one core of 2020, less than 20 seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from vitpos.inspection.table_stats import subsample

Value = TypeVar("Value")


@dataclass(frozen=True)
class Budget:
    """Limits of an inspection; ``Budget()`` has the defaults.

    Args:
        numbers: numbers in a position table, or in all bias tables or rotary frequencies together.
        work: positions × width × the smaller of both, to which the time for the spectrum of a position table is
            proportional.
        layers: layers of bias tables, or of row and column vectors.
        panels: layers of rotary frequencies, each of which is drawn in a panel of its own.
        positions: positions of a table.
        subsampled: positions that are left of a table that exceeds one of the limits.
        offsets: row or column offsets whose vectors are compared with each other.
    """

    numbers: int = 1 << 24
    work: float = 8e9
    layers: int = 64
    panels: int = 32
    positions: int = 1 << 14
    subsampled: int = 400
    offsets: int = 1024

    def table(self, table: Tensor | None, notes: list[str]) -> Tensor | None:
        """Returns a position table (R, C, D), subsampled if it is too large; adds a note about that to ``notes``."""
        if table is None:
            return None
        count, dim = table.shape[0] * table.shape[1], table.shape[2]
        limit = min(count, self.positions, self.numbers // dim)
        while limit * dim * min(limit, dim) > self.work:
            limit = int(0.9 * limit)
        if limit >= count:
            return table
        limit = min(limit, self.subsampled)  # so that all tests of a subsampled table together take seconds
        while limit * dim * min(limit, dim) > self.work / 16:
            limit = int(0.9 * limit)
        if limit < 1:
            notes.append(f"table: left out, vectors of {dim:,} numbers are too long")
            return None
        used, steps = subsample(table, max_positions=limit)
        notes.append(
            f"table: every {steps[0]}. row and {steps[1]}. column of {table.shape[0]}×{table.shape[1]} positions"
        )
        return used.contiguous()

    def biases(self, biases: Mapping[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
        """Returns the bias tables that fit, layer → (H, 2R − 1, 2C − 1); adds a note on those left out to ``notes``."""
        kept: dict[str, Tensor] = {}
        left = self.numbers // 4  # a bias table is copied several times in double precision
        for name, table in self._layers(biases).items():
            if table.numel() <= left:
                kept[name] = table
                left -= table.numel()
        if len(kept) < len(biases):
            notes.append(f"biases: {len(kept)} of {len(biases)} layers, the others are too many or too large")
        return kept

    def decomposed(
        self, tables: Mapping[str, tuple[Tensor, Tensor]], notes: list[str]
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Returns layer → vectors of row and of column offsets, every k-th of them if there are too many, with a note."""
        kept = self._layers(tables)
        longest = max((len(part) for pair in kept.values() for part in pair), default=0)
        limit = max(1, int(self.offsets / len(kept) ** 0.5)) if kept else 1  # similarities are offsets² for each layer
        step = -(-longest // limit) if longest > max(limit, 255) else 1
        if len(kept) < len(tables):
            notes.append(f"decomposed: {len(kept)} of {len(tables)} layers")
        if step > 1:
            notes.append(f"decomposed: every {step}. of up to {longest:,} offsets")
        return {name: (rows[::step], columns[::step]) for name, (rows, columns) in kept.items()}

    def frequencies(self, frequencies: Tensor | None, notes: list[str]) -> Tensor | None:
        """Returns rotary frequencies (depth, H, pairs, 2) of the first layers that fit, with a note on the others."""
        if frequencies is None:
            return None
        each = max(1, frequencies[0].numel())
        depth = min(len(frequencies), self.panels, self.numbers // 64 // each)  # each is a point of a figure
        if depth < len(frequencies):
            notes.append(f"frequencies: {depth} of {len(frequencies)} layers")
        return frequencies[:depth] if depth else None

    def _layers(self, by_layer: Mapping[str, Value]) -> dict[str, Value]:
        """Returns the entries of evenly spaced layers, at most ``layers``."""
        names = list(by_layer)
        chosen = torch.linspace(0, len(names) - 1, min(self.layers, len(names))).round().long().unique().tolist()
        return {names[number]: by_layer[names[number]] for number in chosen}
