"""The tables of the leaderboard that commands print on standard output."""

from __future__ import annotations

import math

from rich.table import Table as Grid
from rich.text import Text

from vitpos.cli.tables import output
from vitpos.leaderboard.board import Board, ColumnMean, format_measure
from vitpos.leaderboard.entry import Entry
from vitpos.leaderboard.protocol import Measure, Protocol

NAMES = 50  # characters of the columns rank, encoding, group and seeds
WIDEST = 15  # characters of a column of numbers


def show_board(board: Board) -> None:
    """Prints a leaderboard: a table of all entries in order of rank, and below it the best encodings of each column.

    The last lines list the seeds that an entry lacks, if its encoding was not trained with all seeds that are required.
    """
    columns = board.protocol.columns
    grid = Grid(
        title=Text(f"{board.protocol.name}: {board.protocol.question}", "bold"), title_justify="left", pad_edge=False
    )
    grid.add_column("rank", justify="right")
    grid.add_column("encoding", overflow="fold", min_width=20)
    grid.add_column("group")
    grid.add_column("seeds", justify="right")
    fitting = list(columns)[: max(1, (output.width - NAMES) // WIDEST)]
    for key in fitting:
        grid.add_column(_short(key), justify="right", no_wrap=True)
    for entry in board.entries:
        name = entry.encoding + (" (quick)" if entry.quick else "")
        cells = (_cell(board.number(entry, key), columns[key]) for key in fitting)
        rank = board.rank(entry)
        grid.add_row(str(rank or "–"), Text(name), board.group(entry), str(len(entry.seeds)), *cells)
    output.print(grid)
    legend = "; ".join(f"{_short(key)}: {columns[key].label}" for key in fitting)
    rest = ", ".join(_short(key) for key in columns if key not in fitting)
    left_out = f" Left out, because the terminal is narrow: {rest}; see --out FILE.html." if rest else ""
    output.print(f"{legend}.{left_out}", style="dim", highlight=False)
    if board.rankings:
        text = (
            "± half the width of the 95 % interval. Encodings that share a letter do not differ significantly in "
            f"{columns[board.main].title}."
        )
        output.print(text, style="dim")
    if board.recommendations and (text := board.compared_text()):
        output.print(text, style="dim")
    for found in board.recommendations:
        output.print(f"{columns[found.column].title}: {found.text()}", style="dim")
    lacking: dict[str, list[str]] = {}
    for encoding, seeds in board.missing_seeds.items():
        lacking.setdefault(", ".join(map(str, seeds)), []).append(encoding)
    for missing, encodings in lacking.items():
        output.print(f"Without seeds {missing}: {', '.join(encodings)}.", style="dim")
    _show_instructions(board)


def _show_instructions(board: Board) -> None:
    """Prints with which vector instructions the entries were trained, if they differ."""
    if len(board.instructions) > 1:
        counts = ", ".join(f"{name} ({count})" for name, count in board.instructions.items())
        text = f"Trained with different vector instructions, which changes results as another seed would: {counts}."
        output.print(text, style="dim")


def show_entry(board: Board, entry: Entry) -> None:
    """Prints the numbers of one leaderboard entry, its rank, and its differences from other entries.

    The others are the baseline encodings of the leaderboard and its best entry.
    """
    columns = board.protocol.columns
    grid = Grid(
        title=Text(f"{entry.encoding} under {board.protocol.name}", "bold"), title_justify="left", pad_edge=False
    )
    grid.add_column("")
    grid.add_column(f"{len(entry.seeds)} seeds" if len(entry.seeds) > 1 else "1 seed", justify="right")
    for key, column in columns.items():
        grid.add_row(Text(column.label), _cell(board.number(entry, key), column))
    output.print(grid)
    if len(entry.seeds) > 1:
        output.print("± half the width of the 95 % interval.", style="dim")
    for key, reason in entry.reasons.items():
        output.print(f"No number in {columns[key].title}: {reason}.", style="dim")
    rank = board.rank(entry)
    if rank:
        output.print(f"Rank {rank} of {len(board.ranks)} by {columns[board.main].title}, group {board.group(entry)}.")
    else:
        output.print(f"Not ranked: {board.reason_without_rank(entry)}.")
    for name, (gap, half) in board.differences(entry).items():
        interval = f"± {100 * half:.2f} percentage points" if math.isfinite(half) else "percentage points (one seed)"
        output.print(f"Difference from {name}: {100 * gap:+.2f} {interval}.")
    _show_instructions(board)


def show_repeat(entry: Entry, published: Entry, protocol: Protocol) -> None:
    """Prints by how much an entry differs from the published entry of the same encoding, for each seed that both have.

    Times and memory are left out: they depend on the machine.
    """
    keys = [key for key, column in protocol.columns.items() if column.unit != "ratio" and key in entry.numbers]
    for seed in (seed for seed in entry.seeds if seed in published.seeds):
        gaps = {k: entry.numbers[k][seed] - published.numbers[k][seed] for k in keys if k in published.numbers}
        shown = [
            f"{_short(key)} {100 * gap:+.2f}" if protocol.columns[key].percent else f"{_short(key)} {gap:+g}"
            for key, gap in gaps.items()
            if gap
        ]
        text = f"differences in percentage points: {', '.join(shown)}" if shown else "all numbers are identical"
        here, there = (one.machine.get("instructions", "unknown") for one in (entry, published))
        output.print(f"Seed {seed} is published too ({here} here, {there} there); {text}.")


def _short(key: str) -> str:
    """Returns the short heading of a leaderboard column: its key with spaces, as ``other side`` for ``other_side``."""
    return key.replace("_", " ")


def _cell(number: ColumnMean | None, column: Measure) -> Text:
    if number is None:
        return Text("–")
    text = Text(format_measure(number.mean, column))
    if number.seeds > 1 and column.unit != "count":
        text += Text(f" ± {format_measure(number.half_width, column)}", "dim")
    return text
