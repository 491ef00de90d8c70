"""Figures, from plain numbers: nothing here trains, reads a file or knows a model."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888")  # Tol's, for all eyes


def svg(figure: Figure) -> bytes:
    """The figure as SVG text, the same bytes for the same figure."""
    with matplotlib.rc_context({"svg.hashsalt": "vitpos", "svg.fonttype": "path"}):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def bars(groups: Mapping[str, Mapping[str, tuple[float, float, float | None]]], *, label: str) -> Figure:
    """Groups of horizontal bars, a colour per series: (mean, deviation, reference) each; a diamond is a reference."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    figure = Figure(figsize=(9, 0.5 + len(groups) * (0.16 + 0.19 * len(names))))
    axes = figure.subplots()
    thick = 0.8 / len(names)
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
            color=COLOURS[number % len(COLOURS)],
            label=name,
            error_kw={"lw": 1},
        )
        for y, (mean, deviation, reference) in at.items():
            axes.annotate(
                f"{mean:.1f}", (mean + deviation, y), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
            if reference is not None:
                axes.plot(reference, y, "D", ms=4, mfc="white", mec="black", zorder=3)
    if any(reference is not None for group in groups.values() for _, _, reference in group.values()):
        axes.plot([], [], "D", ms=4, mfc="white", mec="black", label="source document")
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.set(xlabel=label, xlim=(0, 108))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.55 / figure.get_figheight()), ncol=4, frameon=False)
    return figure


def curves(lines: Mapping[str, Sequence[Mapping[str, float]]]) -> Figure:
    """Training loss and training accuracy by epoch, a line for each log."""
    figure = Figure(figsize=(9, 3.2))
    for axes, (key, scale, label) in zip(
        figure.subplots(1, 2), (("loss", 1, "training loss"), ("accuracy", 100, "training accuracy, %")), strict=True
    ):
        for number, (name, log) in enumerate(lines.items()):
            values = [scale * record[key] for record in log]
            axes.plot([r["epoch"] for r in log], values, marker=".", label=name, **_line(number))
        axes.set(xlabel="epoch", ylabel=label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return _with_legend_below(figure)


def sweeps(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, float]]]], *, x: str, y: str) -> Figure:
    """A panel for each name, and in it a line for each series of (x, mean, deviation)."""
    figure = Figure(figsize=(4.5 * len(panels), 3.2))
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    for axes, (title, series) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for number, name in enumerate(names):
            at, means, deviations = zip(*series.get(name, [(math.nan,) * 3]), strict=True)
            axes.errorbar(at, means, deviations, marker=".", capsize=2, label=name, **_line(number))
        axes.set_title(title, fontsize=8)
        axes.set(xlabel=x, ylabel=y)
        axes.spines[["top", "right"]].set_visible(False)
    return _with_legend_below(figure)


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


def _line(number: int) -> dict[str, str]:
    """Colour and dashes of the line of this number, different for the first 28."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": ("-", "--", ":", "-.")[number // len(COLOURS) % 4]}


def _with_legend_below(figure: Figure) -> Figure:
    """The figure with one legend for its panels, which have the same lines."""
    handles, names = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncol=2, frameon=False, fontsize=8)
    figure.tight_layout()
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


def tiles(maps: np.ndarray, grid: tuple[int, int]) -> Figure:
    """An R×C tile of R×C maps (N, N), one for each place; a dot marks the place itself."""
    rows, columns = grid
    figure = Figure(figsize=(0.75 * columns + 0.8, 0.75 * rows))
    axes = np.atleast_2d(figure.subplots(rows, columns, squeeze=False))
    for (row, column), panel in np.ndenumerate(axes):
        picture = panel.imshow(maps[row * columns + column].reshape(grid), cmap="viridis", vmin=maps.min(), vmax=1)
        panel.plot(column, row, ".", color="white", ms=3)
        panel.set_xticks([])
        panel.set_yticks([])
    figure.subplots_adjust(wspace=0.08, hspace=0.08)
    figure.colorbar(picture, ax=axes, fraction=0.03, pad=0.02, label="cosine similarity")
    return figure


def strips(rows: Mapping[str, np.ndarray]) -> Figure:
    """Pictures (n, height, width, channels) in a row for each name."""
    count = max(len(pictures) for pictures in rows.values())
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
