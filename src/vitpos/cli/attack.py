"""``vitpos attack``: attacks every model of a run, writes numbers and images, prints a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vitpos.attacks.pictures import own
from vitpos.attacks.recovery import following
from vitpos.catalog import Term
from vitpos.cli.progress import AttackBar, progress_bar
from vitpos.cli.tables import show_attacks
from vitpos.data.base import load
from vitpos.errors import UserError
from vitpos.files import require_folder
from vitpos.lab.cell_models import evaluate_spec, load_models
from vitpos.lab.console import Console, describe
from vitpos.lab.downloads import download, missing_data
from vitpos.lab.events import AttackProgress, Observer
from vitpos.questions import QUESTIONS
from vitpos.report.attack import write_attacks


def attack_all(source: Path, attacks: Sequence[Term], out: Path, files: Sequence[Path] = ()) -> None:
    """Attacks all models of a run, a cell or a weights file; the images in ``files`` replace the test images."""
    require_folder(out)
    if (out / "results.csv").exists():
        raise UserError(f"--out {out} holds the results of another command; give a new folder")
    for term in attacks if files else ():
        term.options["images"] = len(files)
    models, wanted = load_models(source), [str(term) for term in attacks]
    with Console() as console:
        download(missing_data([cell for cell, _ in models]), console)
    results = []
    with progress_bar(len(models) * len(wanted)) as (bar, task):
        observer = AttackBar(bar, task)
        for cell, make in models:
            model, data = make(), load(cell.data)
            data = own(model, data, files) if files else data
            for spec in wanted:
                bar.update(task, description=f"{describe(cell)}: {spec}")
                with following(_forwarding(observer, _images(spec))):
                    results.append((cell, spec, evaluate_spec(spec, model, data)))
                observer.finished = len(results)
                bar.update(task, completed=observer.finished)
                written = write_attacks(out, results, files)
    show_attacks(results)
    print(f"results: {written}, and images beside it", file=sys.stderr)


def _forwarding(observer: Observer, images: int) -> Callable[[float], None]:
    """A callback that adds up the fractions of images that are done and sends the fraction of the attack."""
    done = 0.0

    def forward(fraction: float) -> None:
        nonlocal done
        done += fraction / images
        observer.on_event(AttackProgress(done))

    return forward


def _images(spec: str) -> int:
    """The number of images that an attack reconstructs."""
    (term,) = QUESTIONS.parse(spec)
    return term.options.get("images", QUESTIONS.describe(term.name).options["images"].default)
