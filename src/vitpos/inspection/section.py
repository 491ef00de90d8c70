"""Result types of an inspection: ``Section``, numbers with figures, and ``Figure``, a figure described as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure as data, drawn by ``vitpos.plotting.draw(figure.kind, figure.data)``.

    Args:
        name: file name without suffix, unique within an inspection.
        kind: a key of ``vitpos.plotting.KINDS``.
        data: keyword arguments of the drawing function, with numpy arrays and plain numbers.
        caption: one or two sentences that say what is shown.
    """

    name: str
    kind: str
    data: dict[str, Any]
    caption: str


@dataclass(frozen=True)
class Section:
    """The results of one part of an inspection, such as all numbers and figures of the position table.

    Args:
        name: the key of the section in ``inspect.json``: ``table``, ``offsets`` or ``model``.
        numbers: nested dictionaries and lists of numbers and strings; NaN where a number is undefined.
        figures: descriptions of the figures of these numbers.
    """

    name: str
    numbers: dict[str, Any]
    figures: tuple[Figure, ...] = ()
