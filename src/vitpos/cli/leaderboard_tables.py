"""The tables of the leaderboard that commands print on standard output."""

from __future__ import annotations

from collections import Counter

from rich.table import Table as Grid
from rich.text import Text

from vitpos.cli.tables import output
from vitpos.leaderboard.board import Board, ColumnMean, format_measure
from vitpos.leaderboard.entry import Entry
from vitpos.leaderboard.protocol import Measure


def show_board(board: Board) -> None:
    """Prints a leaderboard: a table of all entries in order of rank, and below it the best encodings of each column.

    The last lines list the seeds that an entry lacks, if its encoding was not trained with all seeds that are required.
    """
    columns = board.protocol.columns
    grid = Grid(
        title=Text(f"{board.protocol.name}: {board.protocol.question}", "bold"), title_justify="left", pad_edge=False
    )
    grid.add_column("rank", justify="right")
    grid.add_column("encoding", overflow="fold")
    grid.add_column("group")
    grid.add_column("seeds", justify="right")
    for key in columns:
        grid.add_column(_short(key), justify="right", overflow="fold")
    for entry in board.entries:
        name = entry.encoding + (" (quick)" if entry.quick else "")
        cells = (_cell(board.number(entry, key), column) for key, column in columns.items())
        rank = board.rank(entry)
        grid.add_row(str(rank or "–"), Text(name), board.group(entry), str(len(entry.seeds)), *cells)
    output.print(grid)
    legend = "; ".join(f"{_short(key)}: {column.label}" for key, column in columns.items())
    output.print(f"{legend}.", style="dim", highlight=False)
    if board.rankings:
        text = (
            "± half the width of the 95 % interval. Encodings that share a letter do not differ significantly in "
            f"{columns[board.main].title}."
        )
        output.print(text, style="dim")
    for found in board.recommendations:
        if not found.any_significant:
            text = "no difference between encodings was found"
        else:
            rest = f"; not distinguished: {', '.join(found.best[1:])}" if len(found.best) > 1 else ""
            text = f"best {found.best[0]}{rest}"
        output.print(f"{columns[found.column].title}: {text}.", style="dim")
    for encoding, seeds in board.missing_seeds.items():
        output.print(f"{encoding} lacks seeds {', '.join(map(str, seeds))}.", style="dim")
    _show_instructions(board)


def _show_instructions(board: Board) -> None:
    """Prints with which vector instructions the entries were computed, if they differ: last digits differ too."""
    found = Counter(entry.machine.get("instructions", "unknown") for entry in board.entries)
    if len(found) > 1:
        counts = ", ".join(f"{name} ({count})" for name, count in sorted(found.items()))
        text = f"Entries were computed with different vector instructions, which changes numbers slightly: {counts}."
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
        text = _cell(board.number(entry, key), column)
        grid.add_row(Text(column.label), text if board.number(entry, key) else Text(entry.reasons.get(key, "–")))
    output.print(grid)
    rank = board.rank(entry)
    if rank:
        output.print(f"Rank {rank} of {len(board.ranks)} by {columns[board.main].title}, group {board.group(entry)}.")
    else:
        needed = "it needs two seeds or more, and seeds that other entries have too"
        output.print("A quick run, not ranked." if entry.quick else f"Not ranked: {needed}.")
    for name, (gap, half) in board.differences(entry).items():
        output.print(f"Difference from {name}: {100 * gap:+.2f} ± {100 * half:.2f} percentage points.")
    _show_instructions(board)


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
