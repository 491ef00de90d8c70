"""The commands ``vitpos score``, which measures one encoding, and ``vitpos leaderboard``, which ranks all entries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from vitpos.cli.dry_run import DryRunOption, OutOption, require_out
from vitpos.cli.dry_run import dry_run as show_dry_run
from vitpos.cli.plugins import Plugins
from vitpos.cli.reproducible import Reproducible
from vitpos.cli.run import parse_seeds

PROTOCOL = Annotated[str, Option(help="name of the protocol: vitpos-1, vitpos-1-tasks or vitpos-1-gpu")]
ENTRIES = Path("results/leaderboard")  # one folder per protocol


def score(
    encoding: Annotated[
        str, Argument(metavar="ENCODING", help="a spec such as rope, 'learned + rope' or mine.py:Mine")
    ],
    out: OutOption = None,
    protocol: PROTOCOL = "vitpos-1",
    quick: Annotated[bool, Option("--quick", help="a shortened run, to try it; such entries have no rank")] = False,
    seeds: Annotated[str | None, Option(help="seeds that replace those of the protocol, such as 0,1,2,3")] = None,
    workers: Annotated[int | None, Option(min=1, help="parallel processes; default: one per core (GPU: one)")] = None,
    entries: Annotated[
        Path | None,
        Option(metavar="DIR", help="folder of the entries to compare with; default: results/leaderboard/PROTOCOL"),
    ] = None,
    data: Annotated[
        str | None, Option(metavar="SPEC", help="data set spec, for vitpos-1-gpu: image_folder(path='…')")
    ] = None,
    dry_run: DryRunOption = False,
    reproducible: Reproducible = False,
    plugins: Plugins = None,
) -> None:
    """Train and measure one encoding under a leaderboard protocol, print its row and rank, and write its entry."""
    from vitpos.lab.experiment_folder import load_run_plugins

    if out is not None:
        load_run_plugins(out)
    from vitpos.cli.leaderboard_tables import show_entry, show_repeat
    from vitpos.errors import InputError
    from vitpos.lab.console import Console
    from vitpos.leaderboard.board import Board
    from vitpos.leaderboard.entry import ENTRY_FOLDER
    from vitpos.leaderboard.protocol import Protocol
    from vitpos.leaderboard.score import plan
    from vitpos.leaderboard.score import score as score_encoding

    chosen = Protocol.load(protocol)
    if chosen.needs_data and data is None and not dry_run:
        raise InputError(f"protocol {protocol!r} has no data of its own; give --data \"image_folder(path='…')\"")
    options: dict[str, Any] = {"seeds": parse_seeds(seeds), "quick": quick, "data": data, "plugins": plugins or ()}
    if dry_run:
        return show_dry_run(plan(encoding, chosen, **options))
    out = require_out(out)
    folder = entries or ENTRIES / protocol
    known = Board.load([folder], chosen).entries if entries or folder.is_dir() else []
    if not known and not quick:
        print(
            f"{folder} is not here: there are no entries to compare with; --entries gives their folder", file=sys.stderr
        )
    with Console() as console:
        entry = score_encoding(encoding, out, protocol=chosen, workers=workers, observer=console, **options)
    others = [other for other in known if other.encoding != entry.encoding]
    show_entry(Board(chosen, [*others, entry]), entry)
    for published in known:
        if (published.encoding, published.quick) == (entry.encoding, entry.quick):
            show_repeat(entry, published, chosen)
    print(f"entry: {out / ENTRY_FOLDER / entry.file_name}", file=sys.stderr)


def leaderboard(
    sources: Annotated[list[Path] | None, Argument(metavar="DIR…", help="entries, or folders of them")] = None,
    out: Annotated[
        Path | None, Option(metavar="FILE.html", help="path of the page; FILE.md for a Markdown table")
    ] = None,
    protocol: PROTOCOL = "vitpos-1",
    plugins: Plugins = None,
) -> None:
    """Check all entries of a leaderboard, rank them, print the table, and write it as pages and as a CSV file."""
    from vitpos.cli.leaderboard_tables import show_board
    from vitpos.errors import InputError
    from vitpos.files import write_csv
    from vitpos.leaderboard.board import Board
    from vitpos.leaderboard.protocol import Protocol

    if out is not None and (out.suffix.lower() not in (".html", ".md") or out.is_dir()):
        raise InputError(f"--out {out} is no name of a page; give a file such as leaderboard.html or leaderboard.md")
    chosen, published = Protocol.load(protocol), ENTRIES / protocol
    if not sources and not published.is_dir():
        raise InputError(
            f"{published} is not here, where the published entries of {protocol!r} would be; give a folder"
        )
    board = Board.load(sources or [published], chosen)
    show_board(board)
    if out is not None:
        from vitpos.report.leaderboard_page import write_leaderboard

        print(f"page:  {write_leaderboard(board, out)}", file=sys.stderr)
        if out.suffix.lower() != ".md":
            rows = board.rows()
            table = write_csv(out.with_suffix(".csv"), list(rows[0]), [list(row.values()) for row in rows])
            print(f"table: {table}", file=sys.stderr)
