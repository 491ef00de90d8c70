"""Figures, from plain numbers: nothing here trains, reads a file or knows a model."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888")  # Tol's, for all eyes
INK, SOFT, GREY = "#1c2430", "#5b6675", "#c3c8cf"


def svg(figure: Figure) -> bytes:
    """The figure as SVG text, the same bytes for the same figure."""
    with matplotlib.rc_context({"svg.hashsalt": "vitpos", "svg.fonttype": "path"}):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def png(figure: Figure) -> bytes:
    """The figure as a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=150)
    return buffer.getvalue()


def bars(groups: Mapping[str, Mapping[str, tuple[float, float, float | None]]], *, label: str) -> Figure:
    """Groups of horizontal bars, a colour per series: (mean, deviation, reference) each; a diamond is a reference.

    Of more series than colours, each bar has its name beside it instead.
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    figure = Figure(figsize=(9, 0.5 + len(groups) * (0.16 + 0.19 * len(names))))
    axes = figure.subplots()
    thick = 0.8 / len(names)
    many = len(names) > len(COLOURS)
    beside: dict[float, str] = {}
    for number, name in enumerate(names):
        at = {
            place + number * thick - 0.4 + thick / 2: group[name]
            for place, group in enumerate(groups.values())
            if name in group
        }
        axes.barh(
            list(at),
            [mean for mean, _, _ in at.values()],
            0.92 * thick,
            xerr=[deviation for _, deviation, _ in at.values()],
            color=COLOURS[0 if many else number],
            label=None if many else name,
            error_kw={"lw": 1},
        )
        beside |= dict.fromkeys(at, name)
        for y, (mean, deviation, reference) in at.items():
            axes.annotate(
                f"{mean:.1f}", (mean + deviation, y), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
            if reference is not None:
                axes.plot(reference, y, "D", ms=4, mfc="white", mec="black", zorder=3)
    if any(reference is not None for group in groups.values() for _, _, reference in group.values()):
        axes.plot([], [], "D", ms=4, mfc="white", mec="black", label="source document")
    if many:
        axes.set_yticks(list(beside), list(beside.values()), fontsize=7)
        for place, group in enumerate(groups):
            axes.text(
                0, place - 0.41, group, va="bottom", fontsize=8, weight="bold", transform=axes.get_yaxis_transform()
            )
    else:
        axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set(xlabel=label, xlim=(0, 108))
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.55 / figure.get_figheight()), ncol=4, frameon=False)
    return figure


Points = Sequence[tuple[float, float, float]]  # x, mean and deviation


def lines(
    panels: Mapping[str, Mapping[str, Points]],
    *,
    x: str,
    y: str,
    colours: Mapping[str, str],
    dashed: str = "",
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> list[Figure]:
    """A figure for each panel, all of the same height in y: a line for each series, whose name stands where it ends.

    Lines without a colour are grey and lie below; those with one have a band of a deviation on either side.
    """
    high = max(2.1, 0.117 * max(len(series) for series in panels.values()))  # room for the names, in inches
    figures = []
    for title, series in panels.items():
        figure = Figure(figsize=(3, high + 1))
        axes = figure.add_axes((0.15, 0.5 / (high + 1), 0.7, high / (high + 1)))
        for name in sorted(series, key=lambda name: name in colours):
            _draw_line(axes, series[name], colours.get(name), "--" if name == dashed else "-")
        axes.set_title(title, fontsize=8)
        axes.set_xlabel(x, fontsize=8)
        axes.set_ylabel(y, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.spines[["top", "right"]].set_visible(False)
        at = sorted({point[0] for points in series.values() for point in points})
        if log:
            axes.set_xscale("log")
        if len(at) <= 12:
            axes.set_xticks(at, [f"{number:g}" for number in at])
            axes.set_xticks([], minor=True)
        figures.append(figure)
    seen = [limits] if limits else [figure.axes[0].get_ylim() for figure in figures]
    for figure, series in zip(figures, panels.values(), strict=True):
        figure.axes[0].set_ylim(min(low for low, _ in seen), max(top for _, top in seen))
        _name_lines(figure.axes[0], series, colours, gap=0.117 / high)
    return figures


def _draw_line(axes: Axes, points: Points, colour: str | None, style: str) -> None:
    at, means, deviations = np.array(points, dtype=float).reshape(-1, 3).T
    axes.plot(at, means, marker=".", ms=4, lw=1.4 if colour else 0.7, ls=style, color=colour or GREY)
    if colour and np.any(deviations > 0):
        axes.fill_between(at, means - deviations, means + deviations, color=colour, alpha=0.18, lw=0)


def _name_lines(axes: Axes, series: Mapping[str, Points], colours: Mapping[str, str], *, gap: float) -> None:
    """Writes the names to the right of the lines' ends, at least ``gap`` of the axes' height apart."""
    whole = axes.transData + axes.transAxes.inverted()  # from numbers to shares of the axes
    ends = [(*whole.transform((x, y)), name) for name, points in series.items() for x, y, _ in points[-1:]]
    ends = sorted((end for end in ends if math.isfinite(end[1])), key=lambda end: end[1])
    for (x, y, name), place in zip(ends, _spread([y for _, y, _ in ends], gap), strict=True):
        colour = colours.get(name)
        axes.plot(
            (x, 1.07),
            (y, place),
            color=colour or GREY,
            lw=0.9 if colour else 0.4,
            ls=":",
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(1.08, place, name, va="center", fontsize=7.5, color=INK if colour else SOFT, transform=axes.transAxes)


def _spread(places: Sequence[float], gap: float) -> list[float]:
    """Rising places, moved as little as keeps them ``gap`` apart and, if there is room, between 0 and 1."""
    groups: list[list[float]] = []  # places less the gaps below them; what would fall has its mean
    for number, place in enumerate(places):
        groups.append([place - number * gap])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    level = [fmean(group) for group in groups for _ in group]
    top = max(0.0, 1 - gap * (len(places) - 1))
    return [min(max(place, 0.0), top) + number * gap for number, place in enumerate(level)]


def heat(
    names: Sequence[str],
    headings: Sequence[str],
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    signs: Sequence[int],
) -> Figure:
    """A map of numbers (rows, columns): each column coloured from its worst to its best, by the sign of what is better."""
    figure = Figure(figsize=(0.78 * len(headings) + 1.5, 0.27 * len(names) + 0.9))
    axes = figure.subplots()
    missing = np.isnan(values)
    low, high = np.where(missing, np.inf, values).min(0), np.where(missing, -np.inf, values).max(0)
    level = (values - low) / np.where(high > low, high - low, 1)
    colours = np.where(np.array(signs) == 0, np.nan, np.where(np.array(signs) < 0, 1 - level, level))
    axes.imshow(colours, cmap="Blues", vmin=-0.1, vmax=1.4, aspect="auto")
    axes.set_facecolor("#f0f0f0")
    for row, column in np.ndindex(values.shape):
        ink = "white" if colours[row, column] > 0.75 else "black"
        axes.text(column, row, texts[row][column], ha="center", va="center", fontsize=8, color=ink)
    axes.set_xticks(range(len(headings)), headings, rotation=30, ha="left", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def confusion(tables: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Confusion matrices side by side: rows are what it is, columns what it is taken for, in percent of the row."""
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
                colour = "white" if value > 0.6 else "black"
                axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_xticks(range(len(classes)), classes)
        axes.set_yticks(range(len(classes)), classes)
        axes.set(title=name, xlabel="taken for", ylabel="is")
    figure.tight_layout()
    return figure


def tiles(
    maps: np.ndarray,
    grid: tuple[int, int],
    *,
    title: str,
    label: str = "cosine similarity",
    low: float | None = None,
    top: float | None = 1.0,
) -> Figure:
    """An R×C tile of R×C maps (N, N), one for each place; a dot marks the place itself."""
    rows, columns = grid
    side = min(0.5, 4.5 / max(grid))  # of a map, in inches, so that two tiles find room beside each other
    figure = Figure(figsize=(side * columns + 0.5, side * rows))
    axes = figure.subplots()
    apart = ((0, 0), (0, 0), (0, 1), (0, 1))  # a blank row and column after each map
    whole = np.pad(maps.reshape(rows, columns, rows, columns), apart, constant_values=np.nan)
    whole = whole.transpose(0, 2, 1, 3).reshape(rows * (rows + 1), -1)[:-1, :-1]
    picture = axes.imshow(whole, cmap="viridis", vmin=low, vmax=top)
    row, column = np.divmod(np.arange(rows * columns), columns)
    axes.plot(column * (columns + 2), row * (rows + 2), ".", color="white", ms=2)
    axes.axis("off")
    axes.set_title(title, fontsize=8)
    bar = figure.colorbar(picture, ax=axes, fraction=0.04, pad=0.02)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def plane(points: Mapping[str, tuple[float, float]], *, x: str, y: str) -> Figure:
    """A point for each name, which stands to the right of all."""
    high = max(3.5, 0.15 * len(points))  # room for the names, in inches
    figure = Figure(figsize=(6, high))
    axes = figure.subplots()
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(points)}
    for name, (across, up) in points.items():
        axes.plot(across, up, "o", ms=5, color=colours[name])
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(0.08)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # where names go depends on them
    _name_lines(axes, {name: [(*point, 0.0)] for name, point in points.items()}, colours, gap=0.15 / high)
    return figure


def strips(rows: Mapping[str, np.ndarray]) -> Figure:
    """Pictures (n, height, width, channels) in a row for each name."""
    count = max(8, *(len(pictures) for pictures in rows.values()))  # a few are not drawn larger
    figure = Figure(figsize=(0.85 * count + 0.1, 1.12 * len(rows)))
    for axes, (name, pictures) in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows.items(), strict=True):
        gap = np.full((pictures.shape[1], 2, pictures.shape[3]), 255, np.uint8)
        strip = np.concatenate([part for picture in pictures for part in (picture, gap)][:-1], 1)
        axes.imshow(strip.squeeze(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(name, loc="left", fontsize=9)
        axes.set(xlim=(-0.5, count * (pictures.shape[2] + 2) - 2.5))
        axes.axis("off")
    figure.tight_layout()
    return figure
