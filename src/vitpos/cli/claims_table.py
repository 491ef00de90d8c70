"""The table of verdicts that ``vitpos claims`` prints on standard output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table as Grid
from rich.text import Text

from vitpos.claims.ledger import documents
from vitpos.claims.verdicts import Verdict
from vitpos.cli.tables import output

COLORS = {
    "holds": "green",
    "does not hold": "red",
    "holds only if": "yellow",
    "inconclusive": "yellow",
    "measured": "cyan",
}


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Prints a table per document: the claims, their verdicts and the numbers; below them, how many there are of each."""
    for document in documents():
        found = [verdict for verdict in verdicts if verdict.claim.document == document.name]
        if not found:
            continue
        grid = Grid(title=Text(document.title, "bold"), title_justify="left", pad_edge=False, show_lines=True)
        grid.add_column("id")
        grid.add_column("claim", ratio=3, overflow="fold")
        grid.add_column("verdict", ratio=1, overflow="fold")
        grid.add_column("numbers", ratio=4, overflow="fold")
        for verdict in found:
            status = Text(verdict.status, COLORS.get(verdict.status, "dim"))
            if verdict.condition:
                status.append(f": {verdict.condition}")
            published = f"\npublished: {verdict.claim.published}" if verdict.claim.published else ""
            grid.add_row(verdict.claim.id, Text(verdict.claim.statement + published), status, Text(_numbers(verdict)))
        output.print(grid)
    counts = Counter(verdict.status for verdict in verdicts)
    output.print("; ".join(f"{count} {status}" for status, count in counts.most_common()) + ".", style="dim")


def _numbers(verdict: Verdict) -> str:
    """Returns the numbers of each test in a line of its own, or the reason why there are none."""
    lines = [
        f"{label}: {outcome.answer}; {outcome.numbers}" if label else outcome.numbers
        for label, outcome in (verdict.outcomes or {}).items()
    ]
    return "\n".join(lines) or verdict.reason
