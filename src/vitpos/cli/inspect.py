"""``vitpos inspect`` and ``compare``: load models or checkpoints, inspect them and write the results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from vitpos.cli.checkpoint_options import Architecture, Data, Trust
from vitpos.cli.device import Device
from vitpos.cli.plugins import Plugins
from vitpos.cli.sizes import parse_grid
from vitpos.errors import InputError, RunError

if TYPE_CHECKING:
    from vitpos.inspection.inspect import Inspection
    from vitpos.interop.grids import Grid
    from vitpos.lab.inspection_targets import LoadTarget

Out = Annotated[Path, Option(help="output folder for numbers, figures and an HTML page")]
Images = Annotated[int, Option(min=5, help="number of test images on which models are run")]
ImageFiles = Annotated[
    list[Path] | None, Option("--image", metavar="FILE", help="image on which attention maps are drawn; repeatable")
]
Extra = Annotated[bool, Option("--extra", help="also run UMAP, SVM and MLP (needs scikit-learn and umap-learn)")]


def inspect(
    source: Annotated[
        Path,
        Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="folder of a run or a cell, or a ViT checkpoint from any library, which is also run if --data is given",
        ),
    ],
    out: Out,
    grid: Annotated[
        str | None, Option(help="rows and columns of patches, such as 14x14, for checkpoints that do not store them")
    ] = None,
    images: Images = 256,
    image_files: ImageFiles = None,
    extra: Extra = False,
    data: Data = None,
    architecture: Architecture = None,
    device: Device = None,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Identify and analyze the position encoding of a model or checkpoint; writes numbers, figures and a page."""
    sources = [(source, parse_grid("--grid", grid) if grid is not None else None)]
    _inspect_all(sources, out, "inspect", images, image_files or (), extra, data, architecture)


def compare(
    first: Annotated[Path, Argument(metavar="A", help="folder of a cell, or a checkpoint")],
    second: Annotated[Path, Argument(metavar="B", help="another one")],
    out: Out,
    grids: Annotated[
        list[str] | None,
        Option("--grid", help="rows and columns of patches, such as 14x14, as for inspect; give it twice for A and B"),
    ] = None,
    images: Images = 256,
    image_files: ImageFiles = None,
    extra: Extra = False,
    data: Data = None,
    architecture: Architecture = None,
    device: Device = None,
    trust: Trust = False,
    plugins: Plugins = None,
) -> None:
    """Inspect two models or checkpoints and show the results side by side."""
    given = [parse_grid("--grid", text) for text in grids or ()]
    if len(given) > 2:
        raise InputError(f"compare takes at most two --grid, not {len(given)}; give one for both, or one for each")
    one, other = (given[0], given[-1]) if given else (None, None)
    _inspect_all([(first, one), (second, other)], out, "compare", images, image_files or (), extra, data, architecture)


def _inspect_all(
    sources: Sequence[tuple[Path, Grid | None]],
    out: Path,
    command: str,
    images: int,
    files: Sequence[Path],
    extra: bool,
    data: str | None,
    architecture: str | None,
) -> None:
    """Inspects every model in the sources, writes numbers, figures and a page to ``out``, and prints the summary table.

    A model of a run that cannot be inspected is listed with the reason; it is an error only if no model can be. Of two
    models that are compared, each has to be inspected.

    Args:
        sources: paths of runs or checkpoints, each with its grid of patches (rows, columns) if the user gave one.
        command: ``inspect`` or ``compare``; the name of the page.
        images: number of test images on which models are inspected.
        files: image files for attention maps.
        extra: whether to run UMAP, SVM and MLP too.
        data: spec of the data set on which models are run; None for that of the training of a model of vitpos.
        architecture: name of the timm model of a file that does not state it.
    """
    from vitpos.cli.progress import progress_bar
    from vitpos.cli.tables import show_columns
    from vitpos.files import require_folder
    from vitpos.lab.cell_models import is_vitpos_output
    from vitpos.lab.experiment_folder import ExperimentFolder
    from vitpos.lab.inspection_targets import find_targets
    from vitpos.report.inspection_page import folder_name, write_all_numbers, write_inspection, write_page
    from vitpos.report.inspection_table import comparison_table

    require_folder(out)
    stored = [path for path, grid in sources if grid and is_vitpos_output(path)]
    if stored and (len(stored) == len(sources) or len({grid for _, grid in sources}) > 1):
        raise InputError(f"--grid is for checkpoints that do not store their grid, and {stored[0]} does; leave it out")
    targets: list[tuple[str, LoadTarget]] = []
    for path, grid in sources:
        found = find_targets(path, grid, data, architecture)
        if command == "compare" and len(found) > 1:
            raise InputError(f"{path} holds {len(found)} models; give one of them, such as {path / 'cells'}/…")
        targets += found
    drawn: list[tuple[Inspection, dict[str, bytes]]] = []
    with progress_bar(len(targets)) as (bar, task):
        for number, (name, load_target) in enumerate(targets):
            bar.update(task, description=name)
            last_chance = number == len(targets) - 1 and all(one.reason for one, _ in drawn)
            may_fail = command == "inspect" and not last_chance
            inspection = _inspect_one(name, load_target, images, files, extra, may_fail=may_fail)
            folder = out / folder_name(number, inspection) if len(targets) > 1 else out
            drawn.append((inspection, write_inspection(folder, inspection)))
            bar.advance(task)
    inspections = [inspection for inspection, _ in drawn]
    page = write_page(out / f"{command}.html", drawn)
    if len(inspections) > 1:
        write_all_numbers(out / f"{command}.json", inspections)
    rows = [(heading, texts) for heading, _, texts in comparison_table(inspections)]
    show_columns([one.target.name for one in inspections], rows)
    for path, _ in sources:
        run = ExperimentFolder.open(path) if (path / "experiment.json").exists() else None
        if run and (left := len(run.experiment.cells) - len(run.trained)):
            total = len(run.experiment.cells)
            print(f"note: {left} of {total} cells of {path} are not trained yet and are omitted", file=sys.stderr)
    print(f"numbers: {out / command}.json\npage:    {page}", file=sys.stderr)


def _inspect_one(
    name: str, load_target: LoadTarget, images: int, files: Sequence[Path], extra: bool, *, may_fail: bool
) -> Inspection:
    """Loads one model or checkpoint, inspects it and returns the Inspection.

    Args:
        name: name of the model in an inspection that failed.
        load_target: function that loads the model or checkpoint.
        images: number of test images on which a model is inspected.
        files: image files for attention maps.
        extra: whether to run UMAP, SVM and MLP too.
        may_fail: whether an error is returned as the ``reason`` of an empty inspection instead of raised.
    """
    from vitpos.data.image_files import read_images
    from vitpos.inspection import inspect as inspection

    try:
        target = load_target()
        if files and (target.model is None or target.data is None):
            raise InputError(f"{target.name} cannot be run on images such as {files[0]}; leave out --image")
        shown = None
        if files and target.model and target.data:
            shown = target.data.with_test_images(read_images(files, target.data.shape, crop=True), target.model)
        sections = inspection.inspect(target, images=images, shown=shown, extra=extra)
        return inspection.Inspection(target, sections)
    except (InputError, RunError) as error:
        if not may_fail:
            raise
        return inspection.Inspection(inspection.Target(name, {}), [], str(error))
