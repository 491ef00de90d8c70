"""What ``vitpos attack`` does: attack each model, write what is found, show all of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vitpos import lab
from vitpos.attacks.pictures import own
from vitpos.catalog import Term
from vitpos.data.dataset import load
from vitpos.errors import UserError
from vitpos.fetching import fetch_for
from vitpos.progress import attacking, show_attacks
from vitpos.report.attack import write_attacks


def attack_all(source: Path, attacks: Sequence[Term], out: Path, pictures: Sequence[Path] = ()) -> None:
    """Attacks all models of a run, a cell or a file of weights; ``pictures`` of one's own in place of the test's."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; give a folder")
    if (out / "results.csv").exists():
        raise UserError(f"--out {out} holds the results of another command; give a new folder")
    for term in attacks if pictures else ():
        term.options["images"] = len(pictures)
    models, wanted = lab.trained(source), [str(term) for term in attacks]
    fetch_for([cell for cell, _ in models])
    answers = []
    with attacking(len(models) * len(wanted)) as now:
        for cell, make in models:
            model, data = make(), load(cell.data)
            data = own(model, data, pictures) if pictures else data
            for spec in wanted:
                with now(cell, spec):
                    answers.append((cell, spec, lab.ask(spec, model, data)))
                written = write_attacks(out, answers, pictures)
    show_attacks(answers)
    print(f"results: {written}, and pictures beside it", file=sys.stderr)
