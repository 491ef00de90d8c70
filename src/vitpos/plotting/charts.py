"""Draws bars, lines, heatmaps and confusion matrices from plain numbers."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888")  # Paul Tol's, color-blind safe
INK, SOFT, GRAY = "#1c2430", "#5b6675", "#c3c8cf"

Points = Sequence[tuple[float, float, float]]  # x, mean and standard deviation


def without_formulas(figure: Figure) -> Figure:
    """Makes a figure print names with dollar signs as they are, which matplotlib takes for formulas; returns the figure."""
    for text in figure.findobj(Text):
        if "$" in text.get_text() and "mathdefault" not in text.get_text():
            text.set_parse_math(False)
    return figure


def svg(figure: Figure) -> bytes:
    """Returns a matplotlib figure as the bytes of an SVG file; equal figures give identical bytes."""
    without_formulas(figure)
    with matplotlib.rc_context({"svg.hashsalt": "vitpos", "svg.fonttype": "path"}):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def png(figure: Figure) -> bytes:
    """Returns a matplotlib figure as the bytes of a PNG file, at 150 dpi."""
    buffer = io.BytesIO()
    without_formulas(figure)
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=150)
    return buffer.getvalue()


def bars(groups: Mapping[str, Mapping[str, tuple[float, float, float | None]]], *, label: str) -> Figure:
    """Returns a figure of groups of horizontal bars, one color per series.

    With more series than the 7 colors, all bars have one color and each is labeled.

    Args:
        groups: group → series → (mean, standard deviation, published value or None); a diamond marks a published value.
        label: label of the x axis, which ends at 108 (percent).
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    figure = Figure(figsize=(9, 0.5 + len(groups) * (0.16 + 0.19 * len(names))))
    axes = figure.subplots()
    thickness = 0.8 / len(names)
    many = len(names) > len(COLORS)
    tick_labels: dict[float, str] = {}
    for number, name in enumerate(names):
        at = {
            row + number * thickness - 0.4 + thickness / 2: group[name]
            for row, group in enumerate(groups.values())
            if name in group
        }
        axes.barh(
            list(at),
            [mean for mean, _, _ in at.values()],
            0.92 * thickness,
            xerr=[std for _, std, _ in at.values()],
            color=COLORS[0 if many else number],
            label=None if many else name,
            error_kw={"lw": 1},
        )
        tick_labels |= dict.fromkeys(at, name)
        for y, (mean, std, published) in at.items():
            axes.annotate(f"{mean:.1f}", (mean + std, y), (4, 0), textcoords="offset points", va="center", fontsize=8)
            if published is not None:
                axes.plot(published, y, "D", ms=4, mfc="white", mec="black", zorder=3)
    if any(published is not None for group in groups.values() for _, _, published in group.values()):
        axes.plot([], [], "D", ms=4, mfc="white", mec="black", label="source document")
    if many:
        axes.set_yticks(list(tick_labels), list(tick_labels.values()), fontsize=7)
        for row, group in enumerate(groups):
            axes.text(
                0, row - 0.41, group, va="bottom", fontsize=8, weight="bold", transform=axes.get_yaxis_transform()
            )
    else:
        axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set(xlabel=label, xlim=(0, 108))
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.55 / figure.get_figheight()), ncol=4, frameon=False)
    return figure


def lines(
    panels: Mapping[str, Mapping[str, Points]],
    *,
    x: str,
    y: str,
    colors: Mapping[str, str],
    dashed: str = "",
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> list[Figure]:
    """Returns one figure per panel: line charts with a common y range and lines labeled at their right end.

    Args:
        panels: title → series → points (x, mean, standard deviation).
        x, y: axis labels.
        colors: series → color; series without a color are gray and lie below. Colored lines have a band of ± one
            standard deviation.
        dashed: name of the series drawn dashed.
        log: use a logarithmic x axis.
        limits: lower and upper end of the y axis; by default the range of all panels.
    """
    height = max(2.1, 0.117 * max(len(series) for series in panels.values()))  # inches, enough for the labels
    figures = []
    for title, series in panels.items():
        figure = Figure(figsize=(3, height + 1))
        axes = figure.add_axes((0.15, 0.5 / (height + 1), 0.7, height / (height + 1)))
        for name in sorted(series, key=lambda name: name in colors):
            _draw_line(axes, series[name], colors.get(name), "--" if name == dashed else "-")
        axes.set_title(title, fontsize=8)
        axes.set_xlabel(x, fontsize=8)
        axes.set_ylabel(y, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.spines[["top", "right"]].set_visible(False)
        ticks = sorted({point[0] for points in series.values() for point in points})
        if log:
            axes.set_xscale("log")
        if len(ticks) <= 12:
            axes.set_xticks(ticks, [f"{number:g}" for number in ticks])
            axes.set_xticks([], minor=True)
        figures.append(figure)
    ranges = [limits] if limits else [figure.axes[0].get_ylim() for figure in figures]
    for figure, series in zip(figures, panels.values(), strict=True):
        figure.axes[0].set_ylim(min(low for low, _ in ranges), max(high for _, high in ranges))
        label_line_ends(figure.axes[0], series, colors, gap=0.117 / height)
    return figures


def line_chart(
    series: Mapping[str, Points],
    *,
    title: str,
    x: str,
    y: str,
    highlighted: Sequence[str],
    dashed: str = "",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Returns a figure with one line chart; lines are labeled at their right end.

    Args:
        series: name → points (x, mean, standard deviation).
        x, y: axis labels.
        highlighted: series drawn in color (at most 7), with a band of ± one standard deviation; the others are gray.
        dashed: name of the series drawn dashed.
        limits: lower and upper end of the y axis; by default the range of the data.
    """
    colors = dict(zip(highlighted, COLORS, strict=False))
    return lines({title: series}, x=x, y=y, colors=colors, dashed=dashed, limits=limits)[0]


def _draw_line(axes: Axes, points: Points, color: str | None, style: str) -> None:
    at, means, stds = np.array(points, dtype=float).reshape(-1, 3).T
    axes.plot(at, means, marker=".", ms=4, lw=1.4 if color else 0.7, ls=style, color=color or GRAY)
    if color and np.any(stds > 0):
        axes.fill_between(at, means - stds, means + stds, color=color, alpha=0.18, lw=0)


def label_line_ends(axes: Axes, series: Mapping[str, Points], colors: Mapping[str, str], *, gap: float) -> None:
    """Writes the name of each series to the right of the axes, at the height of its last point if there is room.

    Args:
        series: name → points (x, mean, standard deviation).
        colors: name → color of the dotted line from point to label; gray for the others.
        gap: smallest distance of two labels, as a fraction of the height of the axes.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [(*to_axes.transform((x, y)), name) for name, points in series.items() for x, y, _ in points[-1:]]
    ends = sorted((end for end in ends if math.isfinite(end[1])), key=lambda end: end[1])
    for (x, y, name), height in zip(ends, spread_labels([y for _, y, _ in ends], gap), strict=True):
        color = colors.get(name)
        (leader,) = axes.plot((x, 1.07), (y, height), color=color or GRAY, transform=axes.transAxes, clip_on=False)
        leader.set(linewidth=0.9 if color else 0.4, linestyle=":")
        axes.text(1.08, height, name, va="center", fontsize=7.5, color=INK if color else SOFT, transform=axes.transAxes)


def spread_labels(heights: Sequence[float], gap: float) -> list[float]:
    """Returns heights at which labels do not overlap: the given ``heights``, moved as little as possible.

    The result is at least ``gap`` apart and, if there is room, between 0 and 1. Heights and ``gap`` are fractions of the
    height of the axes; ``heights`` must be ascending.
    """
    groups: list[list[float]] = []  # heights minus the gaps below them; groups that would overlap share their mean
    for number, height in enumerate(heights):
        groups.append([height - number * gap])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    levels = [fmean(group) for group in groups for _ in group]
    top = max(0.0, 1 - gap * (len(heights) - 1))
    return [min(max(level, 0.0), top) + number * gap for number, level in enumerate(levels)]


def heatmap(
    names: Sequence[str],
    headings: Sequence[str],
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    signs: Sequence[int],
) -> Figure:
    """Returns a figure of a table of numbers in which each column is colored from its worst to its best value.

    Args:
        names, headings: labels of the rows and of the columns.
        values: (rows, columns), NaN where missing.
        texts: the texts to write, by row and column.
        signs: per column, 1 if higher is better, −1 if lower is better, 0 for no color.
    """
    figure = Figure(figsize=(0.78 * len(headings) + 1.5, 0.27 * len(names) + 0.9))
    axes = figure.subplots()
    missing = np.isnan(values)
    low, high = np.where(missing, np.inf, values).min(0), np.where(missing, -np.inf, values).max(0)
    level = (values - low) / np.where(high > low, high - low, 1)
    shades = np.where(np.array(signs) == 0, np.nan, np.where(np.array(signs) < 0, 1 - level, level))
    axes.imshow(shades, cmap="Blues", vmin=-0.1, vmax=1.4, aspect="auto")
    axes.set_facecolor("#f0f0f0")
    for row, column in np.ndindex(values.shape):
        ink = "white" if shades[row, column] > 0.75 else "black"
        axes.text(column, row, texts[row][column], ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks(range(len(headings)), headings, rotation=30, ha="left", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def confusion_matrices(tables: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Returns a figure of confusion matrices, two per row, with a percentage in each entry of 0.5 % or more.

    Args:
        tables: title → matrix (true class, predicted class) of fractions, 0 to 1, of the true class.
        classes: names of the classes.
    """
    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(4.6 * columns, 4.5 * rows))
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in panels[len(tables) :]:
        axes.axis("off")
    for axes, (name, table) in zip(panels, tables.items(), strict=False):
        axes.imshow(table, cmap="Blues", vmin=0, vmax=1)
        for (row, column), value in np.ndenumerate(table):
            if value >= 0.005:
                color = "white" if value > 0.6 else "black"
                axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=color)
        axes.set_xticks(range(len(classes)), classes)
        axes.set_yticks(range(len(classes)), classes)
        axes.set(title=name, xlabel="predicted class", ylabel="true class")
    without_formulas(figure).tight_layout()
    return figure
