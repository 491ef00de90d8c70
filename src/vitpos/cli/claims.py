"""The command ``vitpos claims``: the claims of the source documents, their verdicts, and the runs that decide them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from vitpos.cli.reproducible import Reproducible

if TYPE_CHECKING:
    from vitpos.claims.verdicts import Verdict

STORED = Path("results/claims")


def claims(
    sources: Annotated[
        list[Path] | None, Argument(metavar="DIR…", help="folders of runs; default: the stored runs in results/claims")
    ] = None,
    ids: Annotated[list[str] | None, Option("--id", metavar="ID", help="a claim, such as M5; repeatable")] = None,
    document: Annotated[
        str | None, Option("--doc", metavar="NAME", help="mnist-jigsaw, learned-positions, sape2 or mjp")
    ] = None,
    run: Annotated[bool, Option("--run", help="run the experiments of the claims first, or continue them")] = False,
    out: Annotated[Path | None, Option(metavar="DIR", help="folder of these runs")] = None,
    seeds: Annotated[str | None, Option(help="with --run: only some of the seeds, such as 100,101")] = None,
    save: Annotated[
        Path | None, Option(metavar="DIR", help="also write CSV and JSON files of the runs into DIR")
    ] = None,
    page: Annotated[
        Path | None, Option(metavar="FILE.html", help="also write the verdicts as a page; FILE.md for Markdown")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="print JSON")] = False,
    workers: Annotated[int | None, Option(min=1, help="parallel processes; default: one per core (GPU: one)")] = None,
    reproducible: Reproducible = False,
) -> None:
    """Judge the claims of the source documents by stored runs, and print each verdict with its numbers."""
    from vitpos.claims.ledger import find_claims
    from vitpos.claims.run import run_claims
    from vitpos.claims.stored_runs import load_runs
    from vitpos.claims.verdicts import judge
    from vitpos.cli.run import parse_seeds
    from vitpos.errors import InputError

    wanted = find_claims(ids or (), document)
    if page is not None:
        from vitpos.report.claims_page import require_page_path

        require_page_path(page)
    given = {"--out": out, "--seeds": seeds, "--workers": workers}
    if not run and (without := [name for name, value in given.items() if value is not None]):
        raise InputError(f"{without[0]} goes with --run, which runs the experiments of the claims")
    if not sources and not run and not STORED.is_dir():
        print(
            f"{STORED} is not here: only claims decided by calculation have a verdict; give a folder", file=sys.stderr
        )
    folders = list(sources or ([STORED] if STORED.is_dir() else []))
    if run:
        from vitpos.lab.console import Console

        if out is None:
            raise InputError("--run needs --out DIR, the folder of the runs")
        hours = {claim.experiment: claim.core_hours for claim in wanted if claim.experiment}
        for experiment, time in hours.items():
            text = f"{experiment}: about {time:g} core-hours, in {out / experiment}; the same command continues it"
            print(text, file=sys.stderr)
        with Console() as console:
            chosen = parse_seeds(seeds)
            folders += run_claims(wanted, out, seeds=chosen, workers=workers, observer=console)
    runs = load_runs(folders)
    verdicts = [judge(claim, runs) for claim in wanted]
    if save is not None:
        for experiment in dict.fromkeys(claim.experiment for claim in wanted):
            if experiment in runs:
                print(f"stored: {runs[experiment].save(save)}", file=sys.stderr)
    if as_json:
        print(json.dumps([_record(verdict) for verdict in verdicts], indent=2, ensure_ascii=False))
    else:
        from vitpos.cli.claims_table import show_verdicts

        show_verdicts(verdicts)
    if page is not None:
        from vitpos.report.claims_page import write_claims

        print(f"page: {write_claims(verdicts, runs, page)}", file=sys.stderr)


def _record(verdict: Verdict) -> dict[str, object]:
    """Returns a verdict as a dictionary for JSON."""
    claim = verdict.claim
    return {
        "id": claim.id,
        "document": claim.document,
        "statement": claim.statement,
        "published": claim.published,
        "verdict": verdict.status,
        "condition": verdict.condition,
        "tests": [
            {"label": label, "answer": outcome.answer, "numbers": outcome.numbers}
            for label, outcome in (verdict.outcomes or {}).items()
        ],
        "reason": verdict.reason,
        "experiment": claim.experiment,
        "core_hours": claim.core_hours,
    }
