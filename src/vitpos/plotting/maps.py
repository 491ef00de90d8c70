"""Figures of what is inside a model, from plain arrays: maps on a grid, places in a plane or in space, frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection

from vitpos.plotting.charts import COLOURS, GREY, SOFT


def maps(rows: Mapping[str, np.ndarray], *, label: str, numbered: bool = True, signed: bool = False) -> Figure:
    """Small maps (n, R, C), a row of them for each name, all on one scale; what is not finite is left grey.

    ``numbered``: the first row is headed by numbers from 1. ``signed``: zero is white, and the scale goes as far to
    either side as the values go.
    """
    shown = {name: np.where(np.isfinite(stack), stack, np.nan) for name, stack in rows.items()}
    values = np.concatenate([stack[np.isfinite(stack)] for stack in shown.values()])
    low, top = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    if top - low <= 1e-6 * max(abs(low), abs(top)):  # what differs by rounding alone is all the same
        low, top = low - 0.5 * abs(low) - 0.5, top + 0.5 * abs(top) + 0.5
    if signed:
        top = max(abs(low), abs(top)) or 1.0
        low = -top
    count = max(map(len, shown.values()))
    sides = np.array([stack.shape[1:] for stack in shown.values()]).max(0)
    each = 1.1 if count <= 8 else 0.7
    wide, high = each * count, each * float(np.clip(sides[0] / sides[1], 0.3, 2)) * len(shown)
    figure = Figure(figsize=(wide + 2.3, high + 0.5))
    whole = figure.add_gridspec(
        len(shown), 1, left=1.2 / (wide + 2.3), right=(1.2 + wide) / (wide + 2.3), bottom=0.1 / (high + 0.5), hspace=0.1
    )
    for number, (name, stack) in enumerate(shown.items()):
        axes = figure.add_subplot(whole[number])
        _frame(axes)
        image = axes.imshow(_strip(stack, count), cmap="RdBu_r" if signed else "viridis", vmin=low, vmax=top)
        axes.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
        step = stack.shape[2] + 1
        for place in range(1, count):  # between maps, and where a row has fewer, the paper is seen
            axes.axvspan(
                place * step - 1.5, place * step - 0.5 if place < len(stack) else count * step, color="white", lw=0
            )
        axes.set_xlim(-0.5, count * step - 1.5)
        for place in range(count if numbered and not number else 0):
            axes.text((place + 0.5) * step - 1, -1, str(place + 1), ha="center", va="bottom", fontsize=8)
    bar = figure.colorbar(image, cax=figure.add_axes(((1.3 + wide) / (wide + 2.3), 0.25, 0.1 / (wide + 2.3), 0.5)))
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _strip(stack: np.ndarray, count: int) -> np.ma.MaskedArray:
    """Maps (n, R, C) in a row with blank columns between them, as wide as ``count`` of them."""
    gaps = np.pad(stack, ((0, count - len(stack)), (0, 0), (0, 1)), constant_values=np.nan)
    return np.ma.masked_invalid(np.concatenate(list(gaps), 1)[:, :-1])


def _frame(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_facecolor(GREY)
    axes.spines[:].set_visible(False)


def places(laid: np.ndarray, *, title: str, labels: Sequence[str] = ()) -> Figure:
    """Places (R, C, 2) or (R, C, 3), neighbours joined: along rows in blue, along columns in red; the first is black."""
    flat, points = laid.shape[2] == 2, laid.reshape(-1, laid.shape[2])
    figure = Figure(figsize=(4, 4))
    axes = figure.add_subplot() if flat else figure.add_subplot(projection="3d")
    for along, colour in ((laid, COLOURS[0]), (laid.swapaxes(0, 1), COLOURS[1])):
        if along.shape[1] > 1:
            lines = LineCollection if flat else Line3DCollection
            axes.add_collection(lines(list(along), colors=colour, linewidths=0.8))
    axes.plot(*points.T, ".", ms=3, color=SOFT)
    axes.plot(*points[:1].T, "o", ms=6, color="black")
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    for axis, label in zip("xyz"[: laid.shape[2]], labels, strict=False):
        getattr(axes, f"set_{axis}label")(label, fontsize=8)
    if flat:
        axes.set_aspect("equal", adjustable="datalim")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def frequencies(waves: np.ndarray) -> Figure:
    """The frequency plane (depth, H, pairs, 2) of rotations: a panel for each layer, a colour for each head."""
    columns = min(4, len(waves))
    lines = -(-len(waves) // columns)
    figure = Figure(figsize=(2.2 * columns + 0.4, 2.2 * lines + 0.3), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[len(waves) :]:
        axes.axis("off")
    for layer, (axes, heads) in enumerate(zip(panels.flat, waves, strict=False), 1):
        for head, pairs in enumerate(heads):
            axes.plot(pairs[:, 1], pairs[:, 0], ".", ms=4, color=COLOURS[head % len(COLOURS)])
        axes.axhline(0, lw=0.5, color=GREY)
        axes.axvline(0, lw=0.5, color=GREY)
        axes.set_title(f"layer {layer}", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.supxlabel("radians per column", fontsize=8)
    figure.supylabel("radians per row", fontsize=8)
    return figure


def beside(
    pictures: np.ndarray,
    stacks: np.ndarray,
    names: Sequence[str],
    *,
    limits: tuple[float, float],
    label: str,
) -> Figure:
    """Pictures (B, height, width, channels), each in a row with its maps (B, n, R, C), all on one scale."""
    count = stacks.shape[1]
    each = 1.15 if count <= 8 else 0.75
    figure = Figure(figsize=(each * (count + 1) + 0.6, each * len(pictures) + 0.3), layout="constrained")
    grid = figure.subplots(len(pictures), count + 1, squeeze=False)
    for first, (line, picture, stack) in enumerate(zip(grid, pictures, stacks, strict=True)):
        for axes in line:
            _frame(axes)
        line[0].imshow(picture.squeeze(), cmap="gray", vmin=0, vmax=255)
        for axes, one, name in zip(line[1:], stack, names, strict=True):
            image = axes.imshow(one, cmap="viridis", vmin=limits[0], vmax=limits[1])
            if not first:
                axes.set_title(name, fontsize=8)
    bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.01)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
