"""``vitpos inspect`` and ``vitpos compare``: loads models or checkpoints, inspects them and writes the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from vitpos.cli.progress import progress_bar
from vitpos.cli.tables import show_columns
from vitpos.data.dataset import load
from vitpos.data.image_files import read_images
from vitpos.errors import InputError, RunError
from vitpos.files import require_folder
from vitpos.inspection.inspect import Inspection, Target, inspect, target_from_checkpoint, target_from_model
from vitpos.interop.checkpoint import read_checkpoint
from vitpos.interop.formats import read_metadata
from vitpos.interop.grids import Grid
from vitpos.lab.cell_models import load_models
from vitpos.lab.cells import Cell
from vitpos.lab.store import ExperimentFolder
from vitpos.models.base import Classifier
from vitpos.report.inspection_page import folder_name, write_all_numbers, write_inspection, write_page
from vitpos.report.inspection_table import comparison_table

Source = tuple[str, Callable[[], Target]]  # the name of a target, and the function that loads it


def inspect_command(
    sources: Sequence[tuple[Path, Grid | None]],
    out: Path,
    command: str,
    *,
    images: int,
    files: Sequence[Path],
    extra: bool,
    single: bool = False,
) -> None:
    """Inspects every model of the sources, writes numbers, figures and a page to ``out`` and prints the summary table.

    A target that cannot be inspected is listed with the reason; it is an error only if nothing else remains.

    Args:
        sources: paths of runs, cells, weights or checkpoints, each with the grid given for it.
        command: name of the page and of the JSON file of several models, without suffix.
        images: number of test images on which models are run.
        files: image files on which attention is drawn.
        extra: also run SVM and MLP regressions and UMAP.
        single: raise if a source holds more than one model.
    """
    require_folder(out)
    ours = [path for path, grid in sources if grid and is_ours(path)]
    if ours and (len(ours) == len(sources) or len({grid for _, grid in sources}) > 1):
        raise InputError(f"--grid is for checkpoints that do not store their grid, and {ours[0]} does; leave it out")
    targets: list[Source] = []
    for path, grid in sources:
        found = find_targets(path, grid)
        if single and len(found) > 1:
            raise InputError(f"{path} holds {len(found)} models; give one of them, such as {path / 'cells'}/…")
        targets += found
    drawn: list[tuple[Inspection, dict[str, bytes]]] = []
    with progress_bar(len(targets)) as (bar, task):
        for number, (name, load_target) in enumerate(targets):
            bar.update(task, description=name)
            last_chance = number == len(targets) - 1 and all(one.reason for one, _ in drawn)
            inspection = _inspect_one(name, load_target, images, files, extra, may_fail=not last_chance)
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
        if untrained := _untrained_cells(path):
            print(f"note: {untrained} of {path} are not trained yet and are omitted", file=sys.stderr)
    print(f"numbers: {out / command}.json\npage:    {page}", file=sys.stderr)


def _inspect_one(
    name: str,
    load_target: Callable[[], Target],
    images: int,
    files: Sequence[Path],
    extra: bool,
    *,
    may_fail: bool,
) -> Inspection:
    """The inspection of one target; if it ``may_fail``, an error becomes the reason of an empty inspection."""
    try:
        target = load_target()
        if files and (target.model is None or target.data is None):
            raise InputError(f"{target.name} cannot be run on images such as {files[0]}; leave out --image")
        shown = None
        if files and target.model and target.data:
            shown = target.data.with_test_images(read_images(files, target.data.shape, crop=True), target.model)
        return Inspection(target, inspect(target, images=images, shown=shown, extra=extra))
    except (InputError, RunError) as error:
        if not may_fail:
            raise
        return Inspection(Target(name, {}), [], str(error))


def find_targets(path: Path, grid: Grid | None = None) -> list[Source]:
    """Names and loaders of the inspection targets in a run, a cell, a weights file or a checkpoint.

    Args:
        grid: rows and columns of patches, for checkpoints that do not store them.
    """
    if is_ours(path):
        return [(_name(cell), partial(_load_cell, cell, make)) for cell, make in load_models(path)]
    return [(str(path), lambda: target_from_checkpoint(read_checkpoint(path, grid=grid)))]


def is_ours(path: Path) -> bool:
    """Whether the path is a run, a cell of a run, or a weights file written by vitpos."""
    return (path / "experiment.json").exists() or (path / "cell.json").exists() or "cell" in read_metadata(path)


def _name(cell: Cell) -> str:
    return f"{cell.label} · {cell.model} · {cell.data} · seed {cell.seed}"


def _load_cell(cell: Cell, make: Callable[[], Classifier]) -> Target:
    return target_from_model(_name(cell), make(), load(cell.data), encoding=cell.encoding)


def _untrained_cells(path: Path) -> str:
    """The number of cells of a run that are not trained yet, as "2 of 5 cells"; empty if all are."""
    if not (path / "experiment.json").exists():
        return ""
    folder = ExperimentFolder.open(path)
    total = len(folder.experiment.cells)
    left = total - len(folder.trained)
    return f"{left} of {total} cells" if left else ""


def read_grid(text: str) -> Grid:
    """Parses rows and columns from text such as 14x14."""
    rows, _, columns = text.lower().replace("×", "x").partition("x")
    if not (rows.isascii() and rows.isdecimal() and columns.isascii() and columns.isdecimal()):
        raise InputError(f"--grid {text!r} is not a grid; give rows and columns, such as 14x14")
    return int(rows), int(columns)
