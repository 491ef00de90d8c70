"""``vitpos attack``: attacks every model of a run, writes numbers and images, prints a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from vitpos.cli.checkpoint_options import Architecture, Classes, Data, Trust
from vitpos.cli.device import Device
from vitpos.cli.plugins import Plugins
from vitpos.errors import InputError

if TYPE_CHECKING:
    from vitpos.evaluations.result import Result
    from vitpos.lab.cells import Cell


def attack(
    source: Annotated[
        Path,
        Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="folder of an experiment or a cell, a weights.safetensors of vitpos, or, with --data, a checkpoint of "
            "timm or Hugging Face, timm:NAME or hf:NAME",
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
    architecture: Architecture = None,
    classes: Classes = None,
    device: Device = None,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Reconstruct images from the gradients of trained models; writes results.csv and a PNG per model and attack."""
    from vitpos.evaluations import ATTACKS

    terms = [term for spec in (*specs, *(more or ())) for term in ATTACKS.parse(spec)]
    from vitpos.cli.tables import show_attacks
    from vitpos.data.image_files import read_images
    from vitpos.files import require_folder
    from vitpos.lab.console import Console
    from vitpos.lab.downloads import data_terms_of, download, missing_downloads
    from vitpos.lab.evaluate import evaluate_with_events
    from vitpos.lab.events import CellDone
    from vitpos.lab.open_models import open_models
    from vitpos.lab.trust import is_trusted
    from vitpos.report.attack_figures import write_attacks

    require_folder(out)
    if (out / "results.csv").exists():
        raise InputError(f"--out {out} already holds results; give a new folder")
    for term in terms if image_files else ():
        term.options["images"] = len(image_files or ())
    results: list[tuple[Cell, str, Result]] = []
    with Console() as console:
        if data is not None:
            download(missing_downloads(data_terms_of([data], [])), console)
        models = open_models(source, data, architecture=architecture, classes=classes)
        if data is None and is_trusted(source):
            download(missing_downloads(data_terms_of([cell.data for cell, _ in models], [])), console)
        for cell, open_model in models:
            opened = open_model()
            model, images = opened.model, opened.data
            for note in opened.notes:
                print(note, file=sys.stderr)
            images = images.with_test_images(read_images(image_files, images.shape), model) if image_files else images
            for spec, result in evaluate_with_events(cell, model, images, list(map(str, terms)), console):
                results.append((cell, spec, result))
                written = write_attacks(out, results, image_files or ())
            console.on_event(CellDone(cell))
    show_attacks(results)
    print(f"results: {written} (images are in the same folder)", file=sys.stderr)
