"""Draws maps on a grid of positions, projected positions, rotary frequencies, maps beside images, and rows of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection

from vitpos.plotting.charts import COLORS, GRAY, SOFT, without_formulas


def map_rows(rows: Mapping[str, np.ndarray], *, label: str, numbered: bool = True, signed: bool = False) -> Figure:
    """Returns a figure of small maps in rows, on one color scale; values that are not finite are gray.

    Args:
        rows: label of the row → its n maps (n, R, C).
        label: label of the color bar.
        numbered: write 1, 2, … above the columns.
        signed: use a diverging color map that is white at 0 and symmetric.
    """
    stacks = {name: np.where(np.isfinite(stack), stack, np.nan) for name, stack in rows.items()}
    low, high = _color_limits(stacks, signed)
    count = max(map(len, stacks.values()))
    sides = np.array([stack.shape[1:] for stack in stacks.values()]).max(0)
    each = 1.1 if count <= 8 else 0.7  # inches per map
    width, height = each * count, each * float(np.clip(sides[0] / sides[1], 0.3, 2)) * len(stacks)
    full = width + 2.3
    figure = Figure(figsize=(full, height + 0.5))
    cells = figure.add_gridspec(
        len(stacks), 1, left=1.2 / full, right=(1.2 + width) / full, bottom=0.1 / (height + 0.5), hspace=0.1
    )
    for number, (name, stack) in enumerate(stacks.items()):
        axes = figure.add_subplot(cells[number])
        _clear_frame(axes)
        image = axes.imshow(_strip(stack, count), cmap="RdBu_r" if signed else "viridis", vmin=low, vmax=high)
        axes.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
        step = stack.shape[2] + 1
        for column in range(1, count):  # white between the maps, and where a row has fewer maps
            end = column * step - 0.5 if column < len(stack) else count * step
            axes.axvspan(column * step - 1.5, end, color="white", lw=0)
        axes.set_xlim(-0.5, count * step - 1.5)
        for column in range(count if numbered and not number else 0):
            axes.text((column + 0.5) * step - 1, -1, str(column + 1), ha="center", va="bottom", fontsize=8)
    bar = figure.colorbar(image, cax=figure.add_axes(((1.3 + width) / full, 0.25, 0.1 / full, 0.5)))
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _color_limits(stacks: Mapping[str, np.ndarray], signed: bool) -> tuple[float, float]:
    """Returns the limits (low, high) of a color scale: the range of all finite values in the arrays of ``stacks``.

    The range is widened if the values differ by rounding alone, and made symmetric about 0 if ``signed``.
    """
    values = np.concatenate([stack[np.isfinite(stack)] for stack in stacks.values()])
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        low, high = low - 0.5 * abs(low) - 0.5, high + 0.5 * abs(high) + 0.5
    if signed:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    return low, high


def _strip(stack: np.ndarray, count: int) -> np.ma.MaskedArray:
    """Returns one 2-D array: maps (n, R, C) side by side, masked columns between them, padded to ``count`` maps."""
    padded = np.pad(stack, ((0, count - len(stack)), (0, 0), (0, 1)), constant_values=np.nan)
    return np.ma.masked_invalid(np.concatenate(list(padded), 1)[:, :-1])


def _clear_frame(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_facecolor(GRAY)
    axes.spines[:].set_visible(False)


def tiled_maps(
    maps: np.ndarray,
    grid: tuple[int, int],
    *,
    title: str,
    label: str = "cosine similarity",
    low: float | None = None,
    high: float | None = 1.0,
) -> Figure:
    """Returns a figure of an (N, N) matrix over the N = R·C positions of a grid, as R×C tiles.

    Tile i shows row i of the matrix as an R×C map, with a dot at position i.

    Args:
        maps: (N, N), such as the cosine similarity of every two positions.
        label: label of the color bar.
        low, high: range of the color bar; None for that of the values.
    """
    rows, columns = grid
    side = min(0.5, 4.5 / max(grid))  # inches per map, so that two figures fit side by side
    figure = Figure(figsize=(side * columns + 0.5, side * rows))
    axes = figure.subplots()
    image = axes.imshow(tile(maps, grid), cmap="viridis", vmin=low, vmax=high)
    row, column = np.divmod(np.arange(rows * columns), columns)
    axes.plot(column * (columns + 2), row * (rows + 2), ".", color="white", ms=2)
    axes.axis("off")
    axes.set_title(title, fontsize=8)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def tile(maps: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Arranges the rows of an (N, N) matrix as R×C tiles, each an R×C map, separated by NaN; returns one 2-D array."""
    rows, columns = grid
    padding = ((0, 0), (0, 0), (0, 1), (0, 1))  # a blank row and column after each map
    tiles = np.pad(maps.reshape(rows, columns, rows, columns), padding, constant_values=np.nan)
    return tiles.transpose(0, 2, 1, 3).reshape(rows * (rows + 1), -1)[:-1, :-1]


def point_grid(points: np.ndarray, *, title: str, labels: Sequence[str] = ()) -> Figure:
    """Returns a figure of grid positions as points in 2-D or 3-D.

    Neighbors in a row are joined in blue, neighbors in a column in red; the position in row 0, column 0 is black.

    Args:
        points: (R, C, 2) or (R, C, 3), coordinates of each grid position, such as principal components.
        labels: labels of the axes.
    """
    flat, listed = points.shape[2] == 2, points.reshape(-1, points.shape[2])
    figure = Figure(figsize=(4, 4))
    axes = figure.add_subplot() if flat else figure.add_subplot(projection="3d")
    for polylines, color in ((points, COLORS[0]), (points.swapaxes(0, 1), COLORS[1])):
        if polylines.shape[1] > 1:
            collection = LineCollection if flat else Line3DCollection
            axes.add_collection(collection(list(polylines), colors=color, linewidths=0.8))
    axes.plot(*listed.T, ".", ms=3, color=SOFT)
    axes.plot(*listed[:1].T, "o", ms=6, color="black")
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=7)
    for axis, label in zip("xyz"[: points.shape[2]], labels, strict=False):
        getattr(axes, f"set_{axis}label")(label, fontsize=8)
    if flat:
        axes.set_aspect("equal", adjustable="datalim")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def frequency_planes(frequencies: np.ndarray) -> Figure:
    """Returns a scatter plot of rotary frequencies (depth, H, pairs, 2), radians per row and column (last axis).

    There is a panel per layer, a color per head and a point per pair of channels: x is radians per column, y per row.
    """
    columns = min(4, len(frequencies))
    rows = -(-len(frequencies) // columns)
    figure = Figure(figsize=(2.2 * columns + 0.4, 2.2 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for axes in panels.flat[len(frequencies) :]:
        axes.axis("off")
    for layer, (axes, heads) in enumerate(zip(panels.flat, frequencies, strict=False), 1):
        for head, pairs in enumerate(heads):
            axes.plot(pairs[:, 1], pairs[:, 0], ".", ms=4, color=COLORS[head % len(COLORS)])
        axes.axhline(0, lw=0.5, color=GRAY)
        axes.axvline(0, lw=0.5, color=GRAY)
        axes.set_title(f"layer {layer}", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.supxlabel("radians per column", fontsize=8)
    figure.supylabel("radians per row", fontsize=8)
    return figure


def image_maps(
    images: np.ndarray,
    maps: np.ndarray,
    titles: Sequence[str],
    *,
    limits: tuple[float, float],
    label: str,
) -> Figure:
    """Returns a figure with a row per image: the image, then its n maps, all maps on one color scale.

    Args:
        images: (B, height, width, channels), uint8.
        maps: (B, n, R, C), such as attention by head.
        titles: titles of the n maps.
        limits, label: range and label of the color bar.
    """
    count = maps.shape[1]
    each = 1.15 if count <= 8 else 0.75  # inches per map
    figure = Figure(figsize=(each * (count + 1) + 0.6, each * len(images) + 0.3), layout="constrained")
    panels = figure.subplots(len(images), count + 1, squeeze=False)
    for row, (line, image, stack) in enumerate(zip(panels, images, maps, strict=True)):
        for axes in line:
            _clear_frame(axes)
        line[0].imshow(image.squeeze(), cmap="gray", vmin=0, vmax=255)
        for axes, one, title in zip(line[1:], stack, titles, strict=True):
            drawn = axes.imshow(one, cmap="viridis", vmin=limits[0], vmax=limits[1])
            if not row:
                axes.set_title(title, fontsize=8)
    bar = figure.colorbar(drawn, ax=panels, fraction=0.03, pad=0.01)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def image_strips(rows: Mapping[str, np.ndarray]) -> Figure:
    """Returns a figure of rows of images; ``rows`` is title → its n images (n, height, width, channels), uint8."""
    count = max(8, *(len(images) for images in rows.values()))  # so that a few images are not enlarged
    figure = Figure(figsize=(0.85 * count + 0.1, 1.12 * len(rows)))
    for axes, (name, images) in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows.items(), strict=True):
        gap = np.full((images.shape[1], 2, images.shape[3]), 255, np.uint8)
        strip = np.concatenate([part for image in images for part in (image, gap)][:-1], 1)
        axes.imshow(strip.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(name, loc="left", fontsize=9)
        axes.set(xlim=(-0.5, count * (images.shape[2] + 2) - 2.5))
        axes.axis("off")
    without_formulas(figure).tight_layout()
    return figure
