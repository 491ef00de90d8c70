"""Writes the ledger of claims as an HTML or Markdown page: verdicts by document, each with its numbers and its run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from vitpos.claims.ledger import documents
from vitpos.claims.stored_runs import StoredRun
from vitpos.claims.verdicts import Status, Verdict
from vitpos.errors import InputError
from vitpos.files import write_text
from vitpos.report.page import template

STATUSES = get_args(Status)


def write_claims(verdicts: Sequence[Verdict], runs: Mapping[str, StoredRun], out: Path) -> Path:
    """Writes the page of verdicts to ``out`` and returns that path.

    Args:
        verdicts: Verdicts in the order of the ledger.
        runs: Experiment → its stored run, for machine, commit, date and seeds.
        out: Path of the page; Markdown if it ends in ``.md``, otherwise HTML.
    """
    require_page_path(out)
    return write_text(out, claims_page(verdicts, runs, f"claims{out.suffix.lower()}"))


def require_page_path(out: Path) -> None:
    """Raises an InputError if ``out`` is not the path of an HTML or Markdown file."""
    if out.is_dir() or out.suffix.lower() not in (".html", ".md"):
        raise InputError(f"--page {out} is no name of a page; give a file such as claims.html or claims.md")


def claims_page(verdicts: Sequence[Verdict], runs: Mapping[str, StoredRun], name: str) -> str:
    """Returns the page of verdicts as text, by the template ``claims.md`` or ``claims.html``."""
    groups = [
        (document, found)
        for document in documents()
        if (found := [verdict for verdict in verdicts if verdict.claim.document == document.name])
    ]
    counts = [
        (document.title, Counter(verdict.status for verdict in found if not verdict.claim.own_check))
        for document, found in groups
    ]
    own = Counter(verdict.status for verdict in verdicts if verdict.claim.own_check)
    counts += [("our own checks beside them", own)] if own else []
    total = Counter(verdict.status for verdict in verdicts)
    used = {verdict.claim.experiment for verdict in verdicts}
    values = {
        "groups": groups,
        "counts": counts,
        "total": total,
        "statuses": [status for status in STATUSES if total[status]],
        "runs": {name: run for name, run in runs.items() if name in used},
    }
    return template(name).render(values).rstrip() + "\n"
