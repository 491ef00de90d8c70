"""Writes the ledger of claims as an HTML or Markdown page: verdicts by document, each with its numbers and its run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from vitpos.claims.ledger import documents
from vitpos.claims.stored_runs import StoredRun
from vitpos.claims.verdicts import Verdict
from vitpos.errors import InputError
from vitpos.files import write_text
from vitpos.report.page import template


def write_claims(verdicts: Sequence[Verdict], runs: Mapping[str, StoredRun], out: Path) -> Path:
    """Writes the page of verdicts to ``out`` and returns that path.

    Args:
        verdicts: Verdicts in the order of the ledger.
        runs: Experiment → its stored run, for machine, commit, date and seeds.
        out: Path of the page; Markdown if it ends in ``.md``, otherwise HTML.
    """
    if out.is_dir() or not out.name:
        raise InputError(f"--page {out} is a folder; give the path of a file, such as {out / 'claims.html'}")
    groups = [
        (document, found)
        for document in documents()
        if (found := [verdict for verdict in verdicts if verdict.claim.document == document.name])
    ]
    counts = Counter(verdict.status for verdict in verdicts)
    used = {verdict.claim.experiment for verdict in verdicts}
    shown = {name: run for name, run in runs.items() if name in used}
    values = {"groups": groups, "counts": counts.most_common(), "runs": shown, "total": len(verdicts)}
    name = "claims.md" if out.suffix == ".md" else "claims.html"
    return write_text(out, template(name).render(values).rstrip() + "\n")
