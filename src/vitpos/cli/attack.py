"""``vitpos attack``: attacks every model of a run, writes numbers and images, prints a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vitpos.cli.progress import AttackBar, progress_bar
from vitpos.cli.tables import show_attacks
from vitpos.data.dataset import load
from vitpos.data.image_files import read_images
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.files import require_folder
from vitpos.lab.cell_models import evaluate_spec, load_models
from vitpos.lab.console import Console, describe
from vitpos.lab.downloads import download, missing_data
from vitpos.lab.events import AttackProgress
from vitpos.registry import Term
from vitpos.report.attack_figures import write_attacks


def attack_all(source: Path, attacks: Sequence[Term], out: Path, files: Sequence[Path] = ()) -> None:
    """Attacks all models of a run, a cell or a weights file, writes the results to ``out`` and prints a table.

    Args:
        files: image files that replace the test images.
    """
    require_folder(out)
    if (out / "results.csv").exists():
        raise InputError(f"--out {out} already holds results; give a new folder")
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
            data = data.with_test_images(read_images(files, data.shape), model) if files else data
            for spec in wanted:
                bar.update(task, description=f"{describe(cell)}: {spec}")
                ctx = EvalContext(model, data, cell.train, lambda fraction: observer.on_event(AttackProgress(fraction)))
                results.append((cell, spec, evaluate_spec(spec, ctx)))
                observer.finished = len(results)
                bar.update(task, completed=observer.finished)
                written = write_attacks(out, results, files)
    show_attacks(results)
    print(f"results: {written} (images are in the same folder)", file=sys.stderr)
