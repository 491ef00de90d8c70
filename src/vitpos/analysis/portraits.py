"""Figures of what is inside a model, from plain arrays: maps on a grid, places in a plane or in space, frequencies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection

from vitpos.analysis.figures import COLOURS, GREY, SOFT

MOST = 12  # maps in a row, and rows


def maps(rows: Mapping[str, np.ndarray], *, label: str, heads: bool = True, signed: bool = False) -> Figure:
    """Small maps (n, R, C), a row of them for each name, all on one scale; what is not finite is left grey.

    ``heads``: each is headed by its number. ``signed``: zero is white, and the scale goes as far to either side as the
    values go.
    """
    shown = {name: stack[:MOST] for name, stack in list(rows.items())[:MOST]}
    count = max(map(len, shown.values()))
    sides = np.array([stack.shape[1:] for stack in shown.values()]).max(0)
    high = float(np.clip(1.1 * sides[0] / sides[1], 0.4, 2))
    figure = Figure(figsize=(1.1 * count + 1.6, (high + 0.12) * len(shown) + 0.4), layout="constrained")
    grid = figure.subplots(len(shown), count, squeeze=False)
    values = np.concatenate([stack[np.isfinite(stack)] for stack in shown.values()] or [np.zeros(1)])
    low, top = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    reach = max(abs(low), abs(top)) or 1.0
    norm = TwoSlopeNorm(0, -reach, reach) if signed else None
    for first, (line, (name, stack)) in enumerate(zip(grid, shown.items(), strict=True)):
        for number, axes in enumerate(line):
            _frame(axes)
            if number < len(stack):
                picture = np.where(np.isfinite(stack[number]), stack[number], np.nan)
                scale = {"norm": norm} if signed else {"vmin": low, "vmax": top}
                image = axes.imshow(picture, cmap="RdBu_r" if signed else "viridis", **scale)
            if heads and not first:
                axes.set_title(str(number), fontsize=8)
        line[0].set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
    bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.01)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _frame(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_facecolor(GREY)
    axes.spines[:].set_visible(False)


def places(points: np.ndarray, grid: tuple[int, int], *, title: str) -> Figure:
    """Places (N, 2) or (N, 3) of a grid, neighbours joined: along rows in blue, along columns in red; the corner marked."""
    flat = points.shape[1] == 2
    figure = Figure(figsize=(4, 4))
    axes = figure.add_subplot() if flat else figure.add_subplot(projection="3d")
    laid = points.reshape(*grid, -1)
    for along, colour in ((laid, COLOURS[0]), (laid.swapaxes(0, 1), COLOURS[1])):
        if along.shape[1] > 1:
            lines = LineCollection if flat else Line3DCollection
            axes.add_collection(lines(list(along), colors=colour, linewidths=0.8))
    axes.plot(*points.T, ".", ms=3, color=SOFT)
    axes.plot(*points[:1].T, "o", ms=6, color="black")
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    if flat:
        axes.set_aspect("equal", adjustable="datalim")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def frequencies(waves: np.ndarray) -> Figure:
    """The frequency plane (depth, H, pairs, 2) of rotations: a panel for each layer, a colour for each head."""
    shown = waves[:MOST]
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(2.2 * columns + 0.4, 2.2 * lines + 0.3), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[len(shown) :]:
        axes.axis("off")
    for layer, (axes, heads) in enumerate(zip(panels.flat, shown, strict=False)):
        for head, pairs in enumerate(heads):
            axes.plot(pairs[:, 1], pairs[:, 0], ".", ms=4, color=COLOURS[head % len(COLOURS)])
        axes.axhline(0, lw=0.5, color=GREY)
        axes.axvline(0, lw=0.5, color=GREY)
        axes.set_title(f"layer {layer}", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.supxlabel("radians per column", fontsize=8)
    figure.supylabel("radians per row", fontsize=8)
    return figure
