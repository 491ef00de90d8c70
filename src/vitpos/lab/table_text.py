"""The texts of result tables: formatted numbers, the sentences below a table, and all tables as plain text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from vitpos.lab.results import Results
from vitpos.lab.summary import Estimate, Row, labels, seeds_of, summarize
from vitpos.lab.tables import Table


def format_number(value: float, *, percent: bool, short: bool = False) -> str:
    """Formats a number as text, such as ``0.4821`` or ``1,234``; with ``percent``, the fraction 0.9402 is ``94.02``.

    Percentages have two decimals, other numbers four significant digits, and integers all digits. With ``short``,
    percentages have one decimal and other numbers three significant digits.
    """
    if percent:
        return f"{100 * value:.1f}" if short else f"{100 * value:.2f}"
    if short:
        return f"{value:.3g}"
    return f"{value:,.0f}" if float(value).is_integer() and math.isfinite(value) else f"{value:,.4g}"


def format_estimate(estimate: Estimate, *, mark: bool = False) -> str:
    """Formats a table entry as text: mean ± standard deviation over seeds, such as ``94.02 ± 0.11``; ``–`` if missing.

    One seed gives the mean alone. If the column shows the ratio to the row of the table's baseline encoding, the ratio is
    appended: ``48.1 (1.25×)``.

    Args:
        mark: whether to append ▲ or ▼ if the entry is significantly higher or lower than that of the baseline row.
    """
    if not estimate.values:
        return "–"
    percent, std = estimate.percent, estimate.std
    text = format_number(estimate.mean, percent=percent)
    digits = len(text.partition(".")[2]) if "e" not in text else 0  # the std has as many decimals as the mean
    if digits and not percent and 0 < std < 0.5 / 10**digits:
        text = f"{estimate.mean:#,.4g}"  # 0.48 as 0.4800: otherwise the std would seem to be 0
        digits = len(text.partition(".")[2])
    if len(estimate.values) > 1 and not estimate.constant:
        text += f" ± {std:,.{digits}f}" if digits and not percent else f" ± {format_number(std, percent=percent)}"
    if estimate.ratio is not None:
        text += f" ({estimate.ratio:.2f}×)"
    return text + (" ▲" if mark and estimate.direction > 0 else " ▼" if mark and estimate.direction < 0 else "")


def as_text(results: Results) -> str:
    """Returns all tables of an experiment as plain text, below a line with the number of finished trainings."""
    cells = results.experiment.cells
    lines = [
        f"{results.experiment.name}: {len(cells) - len(results.pending)} of {len(cells)} cells done, {results.path}"
    ]
    for table in results.experiment.tables:
        rows = summarize(results, table)
        headings = [*labels(rows), *(f"{c.label}, %" if c.percent else c.label for c in table.columns)]
        grid = [headings, *([*map(row.label, labels(rows)), *map(format_estimate, row.estimates)] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        lines += ["", table.title, *("  ".join(map(str.ljust, line, widths)).rstrip() for line in grid)]
        lines += filter(None, [seeds_text(rows), instructions_text([results], evaluations_of(table))])
    return "\n".join(lines)


def shared(rows: Sequence[Row]) -> str:
    """Returns a sentence with the model and data that all rows have in common; empty if they share neither."""
    models, data = {row.cell.model for row in rows}, {row.cell.data for row in rows}
    same = [*models] if len(models) == 1 else []
    verb = "trained on" if any(row.cell.train.epochs for row in rows) else "on"
    same += [f"{verb} {', '.join(data)}"] if len(data) == 1 else []
    return f"All rows: {', '.join(same)}." if same else ""


def seeds_text(rows: Sequence[Row]) -> str:
    """Returns a sentence on the number of seeds in table rows: ``One seed.``, ``Mean ± standard deviation over 3 seeds.``

    If entries have different numbers of seeds, the smallest and the largest are given; it is empty if there are no values.
    """
    counts = {len(estimate.values) for row in rows for estimate in row.estimates} - {0}
    if not counts:
        return ""
    if max(counts) == 1:
        return "One seed."
    seeds = f"{max(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"Mean ± standard deviation over {seeds} seeds."


def significance_legend(table: Table, rows: Sequence[Row]) -> str:
    """Returns the explanation of the marks ▲ and ▼ of a table: significantly higher or lower than the baseline encoding.

    It is empty if the table has no baseline encoding or only one seed.
    """
    if not table.baseline or seeds_of(rows) < 2:
        return ""
    return (
        f" ▲ ▼: significantly higher or lower than with {table.baseline}: the 95 % interval of the paired difference over "
        "seeds excludes 0. About one in twenty comparisons without a true difference is marked by chance."
    )


def instructions_text(runs: Sequence[Results], evaluations: Collection[str]) -> str:
    """Returns a sentence on the vector instructions of numbers that are compared; empty if all have the same.

    Args:
        runs: the results in which the numbers are.
        evaluations: the evaluations that are compared, as texts such as ``jigsaw(per='image')``.
    """
    folders = [folder for results in runs for _, folder in results.trained]
    trained = {folder.machine.get("instructions", "unknown") for folder in folders}
    evaluated = {used for folder in folders for name, used in folder.instructions.items() if name in evaluations}
    texts = []
    if len(trained) > 1:
        texts.append(_different("Trained", trained, "changes results as another seed would"))
    if len(evaluated) > 1 and evaluated != trained:
        texts.append(_different("Evaluated", evaluated, "changes last digits"))
    return " ".join(texts)


def _different(done: str, instructions: Collection[str], effect: str) -> str:
    return f"{done} with different vector instructions ({', '.join(sorted(instructions))}), which {effect}."


def evaluations_of(table: Table) -> set[str]:
    """Returns the evaluations whose numbers a table shows."""
    return {column.evaluation for column in table.columns}
