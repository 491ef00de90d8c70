"""What a look inside gives: numbers, and figures of them with their captions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """A figure, and what it shows."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class Look:
    """Numbers, nested as in ``inspect.json``, and figures by the name of their file."""

    numbers: dict[str, Any]
    figures: dict[str, Drawn] = field(default_factory=dict)
