"""``vitpos attack``: attacks every model of a run, writes numbers and images, prints a table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from vitpos.cli.plugins import Plugins
from vitpos.cli.trust import Data, Trust
from vitpos.errors import InputError

if TYPE_CHECKING:
    from vitpos.evaluations.result import Result
    from vitpos.lab.cells import Cell


def attack(
    source: Annotated[
        Path,
        Argument(
            metavar="RUN_OR_WEIGHTS", help="folder of an experiment or a cell, or a weights.safetensors of vitpos"
        ),
    ],
    specs: Annotated[
        list[str],
        Option("--with", metavar="SPEC", help="an attack, such as closed_form or gradient_matching(steps=500)"),
    ],
    out: Annotated[Path, Option(help="output folder for numbers and images")],
    image_files: Annotated[
        list[Path] | None,
        Option(
            "--image",
            metavar="FILE",
            help="image that replaces the test images, with the label that the model predicts; repeatable",
        ),
    ] = None,
    more: Annotated[list[str] | None, Argument(metavar="SPEC", help="further attacks")] = None,
    data: Data = None,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Reconstruct images from the gradients of trained models; writes results.csv and a PNG per model and attack."""
    from vitpos.evaluations import ATTACKS

    terms = [term for spec in (*specs, *(more or ())) for term in ATTACKS.parse(spec)]
    from vitpos.cli.tables import show_attacks
    from vitpos.data.dataset import load
    from vitpos.data.image_files import read_images
    from vitpos.files import require_folder
    from vitpos.lab.cell_models import load_models
    from vitpos.lab.console import Console
    from vitpos.lab.downloads import download, missing_data
    from vitpos.lab.evaluate import evaluate_with_events
    from vitpos.lab.events import CellDone
    from vitpos.lab.trust import is_trusted
    from vitpos.report.attack_figures import write_attacks

    require_folder(out)
    if (out / "results.csv").exists():
        raise InputError(f"--out {out} already holds results; give a new folder")
    for term in terms if image_files else ():
        term.options["images"] = len(image_files or ())
    models = load_models(source, data)
    results: list[tuple[Cell, str, Result]] = []
    with Console() as console:
        if data is not None or is_trusted(source):
            download(missing_data([replace(cell, evaluations=()) for cell, _ in models]), console)
        for cell, load_model in models:
            model, images = load_model(), load(cell.data)
            images = images.with_test_images(read_images(image_files, images.shape), model) if image_files else images
            for spec, result in evaluate_with_events(cell, model, images, list(map(str, terms)), console):
                results.append((cell, spec, result))
                written = write_attacks(out, results, image_files or ())
            console.on_event(CellDone(cell))
    show_attacks(results)
    print(f"results: {written} (images are in the same folder)", file=sys.stderr)
