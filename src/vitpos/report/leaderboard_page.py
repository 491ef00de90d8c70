"""Writes the leaderboard as HTML pages (a sortable table with plots, one page per encoding) or as a Markdown table."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.files import write_text
from vitpos.leaderboard.board import Board, format_measure
from vitpos.leaderboard.entry import Entry
from vitpos.leaderboard.protocol import Measure
from vitpos.plotting import map_rows, scatter, svg, svg_with_tooltips
from vitpos.registry.specs import split_terms
from vitpos.report.page import prose, template


def write_leaderboard(board: Board, out: Path) -> Path:
    """Writes the leaderboard as the HTML page ``out``, such as ``a.html``, and a page per entry into folder ``a``.

    If ``out`` ends in ``.md``, one Markdown page without plots is written. Returns ``out``.
    """
    if out.suffix.lower() == ".md":
        return write_text(out, markdown(board, out.parent))
    folder = out.with_suffix("")
    pages = [f"{folder.name}/{Path(entry.file_name).stem}.html" for entry in board.entries]
    shared = _shared(board)
    text = template("leaderboard.html").render(**shared, pages=pages, plots=_plots(board))
    for path, entry in zip(pages, board.entries, strict=True):
        page = template("leaderboard_entry.html").render(
            **shared, entry=entry, definition=_definition(entry), figures=_maps(entry), home=f"../{out.name}"
        )
        write_text(out.parent / path, page)
    return write_text(out, text)


def markdown(board: Board, folder: Path | None = None) -> str:
    """Returns the leaderboard as Markdown: recommendations, a table of all entries, and what is missing.

    ``folder`` is the folder of the page; encodings whose entry is in it are links to that file.
    """
    name = board.protocol.name
    there = {path.name for path in folder.glob("*.json")} if folder else set()
    links = [
        f"[`{entry.encoding}`]({entry.file_name})" if entry.file_name in there else f"`{entry.encoding}`"
        for entry in board.entries
    ]
    command = f"vitpos leaderboard --protocol {name} --out results/leaderboard/{name}/README.md"
    text = template("leaderboard.md").render(**_shared(board), command=command, links=links)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _shared(board: Board) -> dict[str, Any]:
    """Returns the values that all templates of the leaderboard use."""
    return {
        "board": board,
        "columns": board.protocol.columns,
        "format_measure": format_measure,
        "significant": _significant(board),
        "model_check": _model_check(board),
        "missing_seeds": board.missing_seeds,
        "definitions": _definitions(board),
        "unranked": _unranked(board),
        "instructions": _instructions(board),
        "reasons": _reasons(board),
    }


def _definitions(board: Board) -> list[tuple[str, str, str, str]]:
    """Returns (short name, title, spec of the evaluation and of the data, definition of the metric) of each column."""
    return [
        (
            key.replace("_", " "),
            one.title,
            " on ".join(filter(None, (one.evaluation, one.data))),
            _first_sentence_on(one),
        )
        for key, one in board.protocol.columns.items()
    ]


def _first_sentence_on(column: Measure) -> str:
    """Returns the definition of a column's metric in the docstring of its evaluation, ``metric: definition``."""
    text = " ".join(EVALUATIONS.describe_all(column.evaluation)[0].prose.split())
    found = re.search(rf"\b{column.metric}: (.*?)\.(?: |$)", text)
    return f"{found[1]}." if found else ""


def _unranked(board: Board) -> list[tuple[str, list[str]]]:
    """Returns (why some entries have no rank, their encodings)."""
    found: dict[str, list[str]] = {}
    for entry in board.entries:
        if reason := board.reason_without_rank(entry):
            found.setdefault(reason, []).append(entry.encoding)
    return list(found.items())


def _instructions(board: Board) -> str:
    """Returns a sentence on the vector instructions with which entries were computed; empty if they are the same."""
    if len(board.instructions) < 2:
        return ""
    counts = ", ".join(f"{name} ({count})" for name, count in board.instructions.items())
    return f" Trained with different vector instructions, which changes results as another seed would: {counts}."


def _reasons(board: Board) -> list[tuple[str, str, list[str]]]:
    """Returns (title of a column, why some entries have no number there, these encodings)."""
    found: dict[tuple[str, str], list[str]] = {}
    for entry in board.entries:
        for key, reason in entry.reasons.items():
            if key not in entry.numbers:
                found.setdefault((board.protocol.columns[key].title, reason), []).append(entry.encoding)
    return [(*column_and_reason, names) for column_and_reason, names in found.items()]


def _plots(board: Board) -> list[tuple[str, Markup]]:
    """Returns pairs (title, SVG element): scatter plots of the main column against each other column.

    The main column is the first one of the protocol, such as the accuracy. The plot against the time of a training step is
    the first in the list. Baselines and Pareto-optimal encodings are labeled.
    """
    columns, main = board.protocol.columns, board.main
    keys = [key for key, column in columns.items() if column.unit != "count" and key != main]
    families = {entry.encoding: entry.family for entry in board.entries}
    found = []
    for key in sorted(keys, key=lambda key: key != "time"):
        points: dict[str, tuple[float, float]] = {}
        for entry in board.entries:
            x, y = board.number(entry, key), board.number(entry, main)
            if x and y and not entry.quick:
                points[entry.encoding] = (_shown(x.mean, columns[key]), _shown(y.mean, columns[main]))
        if len(points) > 1:
            optimal = _pareto_optimal(points, columns[key].better == "lower") if columns[key].better else ()
            labeled = {*board.protocol.baselines, *optimal}
            figure = scatter(points, x=columns[key].label, y=columns[main].label, groups=families, labeled=labeled)
            found.append(
                (f"{columns[main].title} against {columns[key].title}", Markup(svg_with_tooltips(figure, points)))
            )
    return found


def _pareto_optimal(points: Mapping[str, tuple[float, float]], low_x: bool) -> list[str]:
    """Returns the names of the Pareto-optimal points (x, y): no other point is better in one and not worse in the other.

    Higher values of y are better, and lower values of x if ``low_x``, otherwise higher ones.
    """
    signed = {name: (-x if low_x else x, y) for name, (x, y) in points.items()}
    return [n for n, p in signed.items() if not any(o != p and o[0] >= p[0] and o[1] >= p[1] for o in signed.values())]


def _shown(value: float, column: Measure) -> float:
    return 100 * value if column.percent else value


def _significant(board: Board) -> str:
    """Returns how many pairs of encodings differ significantly in the main column, as ``30 of 45 pairs (67 %)``.

    The main column is the first one of the protocol. The text is empty if it has no ranking.
    """
    ranking = board.rankings.get(board.main)
    if not ranking:
        return ""
    pairs = len(ranking.means) * (len(ranking.means) - 1) // 2
    return f"{len(ranking.significant_pairs)} of {pairs} pairs ({100 * ranking.fraction_significant:.0f} %)"


def _definition(entry: Entry) -> str:
    """Returns the docstrings of the encodings in an entry as HTML; the stored summary if one is not installed here.

    A file or module that the entry names is not imported.
    """
    try:
        if all(name in ENCODINGS for name, _ in split_terms(entry.encoding)):
            return "".join(prose(described.prose) for described in ENCODINGS.describe_all(entry.encoding))
    except InputError:
        pass
    return prose(entry.summary)


def _model_check(board: Board) -> str:
    """Returns how many values lie in the prediction interval of all others, as ``57 of 60``; empty without a ranking."""
    ranking = board.rankings.get(board.main)
    if not ranking or not ranking.predictions:
        return ""
    return f"{ranking.well_predicted} of {len(ranking.predictions)}"


def _maps(entry: Entry) -> list[tuple[str, str]]:
    """Returns pairs (title, data URL of an SVG) of the maps of the patch grid that an entry stores, one SVG per title."""
    stacks = {name: np.array(grids, dtype=float) for name, grids in entry.maps.items()}
    return [(name, _data_url(map_rows({"": stack}, label="", signed=True))) for name, stack in stacks.items()]


def _data_url(figure: Figure) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg(figure)).decode()}"
