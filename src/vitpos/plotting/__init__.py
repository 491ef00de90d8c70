"""Draws figures from plain arrays and numbers with matplotlib; trains nothing and reads no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from vitpos.plotting.charts import (
    COLORS,
    INK,
    Points,
    bars,
    confusion_matrices,
    heatmap,
    line_chart,
    lines,
    png,
    spread_labels,
    svg,
)
from vitpos.plotting.maps import frequency_planes, image_maps, image_strips, map_rows, point_grid, tiled_maps
from vitpos.plotting.scatter import scatter, svg_with_tooltips

__all__ = [
    "COLORS",
    "INK",
    "KINDS",
    "Points",
    "bars",
    "confusion_matrices",
    "draw",
    "frequency_planes",
    "heatmap",
    "image_maps",
    "image_strips",
    "line_chart",
    "lines",
    "map_rows",
    "png",
    "point_grid",
    "scatter",
    "spread_labels",
    "svg",
    "svg_with_tooltips",
    "tiled_maps",
]

KINDS: dict[str, Callable[..., Figure]] = {
    "lines": line_chart,
    "tiles": tiled_maps,
    "maps": map_rows,
    "points": point_grid,
    "frequencies": frequency_planes,
    "image_maps": image_maps,
}


def draw(kind: str, data: Mapping[str, Any]) -> Figure:
    """Returns a matplotlib figure of the given kind.

    Args:
        kind: ``"lines"``, ``"tiles"``, ``"maps"``, ``"points"``, ``"frequencies"`` or ``"image_maps"``; ``KINDS`` maps
            each to the function that draws it.
        data: keyword arguments of that function.
    """
    return KINDS[kind](**data)
