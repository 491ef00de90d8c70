"""Scatter plots with a name per point: labels beside the axes, colors by group, and tooltips in pages."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vitpos.plotting.charts import COLORS, label_line_ends, svg

POINT = "point:"  # prefix of the ids of points in an SVG


def scatter(
    points: Mapping[str, tuple[float, float]],
    *,
    x: str,
    y: str,
    groups: Mapping[str, str] | None = None,
    labeled: Collection[str] | None = None,
) -> Figure:
    """Returns a scatter plot with names to the right of the axes.

    Args:
        points: name → (x, y).
        x, y: labels of the axes.
        groups: name → group; points of a group share a color, which a legend explains. Figures with the same groups
            have the same colors, whichever groups have points. By default each point has a color.
        labeled: the names that are written; all by default.
    """
    names = [name for name in points if labeled is None or name in labeled]
    height = max(3.5, 0.15 * len(names))  # inches, enough for the labels
    figure = Figure(figsize=(6, height))
    axes = figure.subplots()
    kinds = sorted(set(groups.values())) if groups else list(points)  # groups without a point keep their color free
    palette = {kind: COLORS[number % len(COLORS)] for number, kind in enumerate(kinds)}
    colors = {name: palette[groups[name] if groups else name] for name in points}
    for number, (name, (horizontal, vertical)) in enumerate(points.items()):
        axes.plot(horizontal, vertical, "o", ms=5, color=colors[name], gid=f"{POINT}{number}")
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(0.08)
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # fixed before the labels are laid out
    label_line_ends(axes, {name: [(*points[name], 0.0)] for name in names}, colors, gap=0.15 / height)
    if groups:
        used = [kind for kind in kinds if kind in {groups[name] for name in points}]
        handles = [Line2D([], [], marker="o", ls="", ms=5, color=palette[kind], label=kind) for kind in used]
        axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=7.5)
    return figure


def svg_with_tooltips(figure: Figure, names: Iterable[str]) -> str:
    """Returns a scatter plot as an ``<svg>`` element for an HTML page, in which a browser shows the name of each point.

    Args:
        figure: A figure of :func:`scatter`.
        names: The names of its points, in their order.
    """
    text = svg(figure).decode()
    text = text[text.index("<svg") :]
    for number, name in enumerate(names):
        text = text.replace(f'<g id="{POINT}{number}">', f"<g><title>{html.escape(name)}</title>")
    return text
