"""Evaluates any classifier (``vitpos.evaluate``), or the trained models of a run, whose folder then stores the results.

One evaluation of one model is `EvalContext.evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torch import nn

from vitpos.data.dataset import Dataset, load
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.files import exclusive
from vitpos.interop.wrapped_models import as_classifier
from vitpos.lab import events
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cell_models import load_model, load_models
from vitpos.lab.cells import Cell
from vitpos.lab.device import chosen_device, using_device
from vitpos.lab.downloads import download, missing_data
from vitpos.lab.dry_run import dry_run
from vitpos.lab.events import Observer
from vitpos.lab.experiment_folder import ExperimentFolder
from vitpos.lab.initial_weights import check_weights_origin, without_initial_weights
from vitpos.lab.open_models import is_checkpoint, open_checkpoint
from vitpos.lab.results import Results
from vitpos.lab.trust import trusting
from vitpos.models.base import Classifier
from vitpos.training.recipe import Recipe

Evaluation = str | Callable[..., Result]  # a spec such as ``jigsaw(per='image')``, or a function ``ctx -> Result``


def evaluate(
    model: nn.Module | Path | str,
    data: Dataset | str | None = None,
    evaluations: Evaluation | Sequence[Evaluation] = "accuracy",
    *,
    recipe: Recipe | None = None,
    architecture: str | None = None,
    classes: Path | str | None = None,
    device: str | None = None,
    trust: bool = False,
) -> dict[str, Result]:
    """Evaluates a model and returns a dictionary evaluation → Result; nothing is stored.

    Keys are specs in canonical form, such as ``jigsaw(per='image')``, or the names of functions.

    If ``model.pretrained_cfg`` has mean and std, as in timm, images are normalized with these, not with those of ``data``.
    Set ``model.pretrained_cfg = {}`` for a model that was trained with the normalization of ``data``.

    Args:
        model: A classifier: one of vitpos, timm or Hugging Face (with or without an attached encoding), or any module that
            maps images to logits; or the path of a trained one: the folder of a cell (one training), its weights file, a
            folder of timm or Hugging Face, ``timm:NAME`` or ``hf:NAME``.
        data: A data set or its spec; its test split is used. By default the data that the model of a path was trained on.
            A checkpoint of timm or Hugging Face needs a spec; its images and classes become those of the checkpoint.
        evaluations: One or several specs, such as ``jigsaw(per='image')``, or functions that take an `EvalContext` (model,
            data and recipe) and return a `Result`.
        recipe: How the model was trained, which some attacks depend on; by default that of a path's model, or `Recipe()`.
        architecture: Name of the timm model of a weights file that does not state it.
        classes: File with the names of the outputs of a checkpoint of timm or Hugging Face, one per line, or JSON.
        device: ``cpu``, ``cuda``, ``cuda:0``, ``mps`` or ``auto``, where the model is during the evaluation; by default
            where it is, or for a path a GPU if PyTorch finds one (CUDA), otherwise the CPU.
        trust: Whether files of vitpos from somebody else (a training, a weights file, a folder of `save_pretrained`) may
            name any plug-ins, data and sizes.
    """
    if not isinstance(model, nn.Module | Path | str):
        remedy = "give a torch module, or the folder of a cell or its weights file"
        raise InputError(f"evaluate cannot take a model of type {type(model).__name__}; {remedy}")
    if device is not None:
        with using_device(device), _moved(model):
            return evaluate(
                model, data, evaluations, recipe=recipe, architecture=architecture, classes=classes, trust=trust
            )
    if trust:
        with trusting(True):
            return evaluate(model, data, evaluations, recipe=recipe, architecture=architecture, classes=classes)
    log: Sequence[Mapping[str, float]] = ()
    if not isinstance(model, nn.Module) and is_checkpoint(model):
        if isinstance(data, Dataset):
            raise InputError(
                f"{model} is a checkpoint, whose images depend on it; give data as a spec, such as 'cifar10'"
            )
        file = None if classes is None else Path(classes)
        opened = open_checkpoint(model, data, architecture=architecture, classes=file)
        model, data = opened.model, opened.data
    elif architecture or classes:
        option = "architecture" if architecture else "classes"
        raise InputError(f"evaluate got {option}, which is for checkpoints of timm and Hugging Face; leave it out")
    if not isinstance(model, nn.Module):
        log = CellFolder(Path(model)).log
        model, cell = _load_one(Path(model))
        data, recipe = cell.data if data is None else data, recipe or cell.train
    if not data:
        raise InputError("evaluate got no data; give a Dataset or a spec such as 'mnist'")
    wanted = [evaluations] if isinstance(evaluations, str) or callable(evaluations) else list(evaluations)
    named: dict[str, Evaluation] = {}
    for one in wanted:
        one = EVALUATIONS.canonical(one) if isinstance(one, str) else one
        name = one if isinstance(one, str) else getattr(one, "__name__", repr(one))
        if named.setdefault(name, one) != one:
            raise InputError(f"two evaluations are called {name!r}; give one of them another name")
    loaded, training = load(data) if isinstance(data, str) else data, model.training
    try:
        with as_classifier(model, loaded) as classifier:
            ctx = EvalContext(classifier, loaded, recipe or Recipe(), log=log)
            return {name: ctx.evaluate(one) for name, one in named.items()}
    finally:
        model.train(training)


@contextmanager
def _moved(model: nn.Module | Path | str) -> Iterator[None]:
    """Context manager in which a model, unless it is a path, is on the chosen device; afterwards it is where it was."""
    before = next((one.device for one in model.parameters()), None) if isinstance(model, nn.Module) else None
    if not isinstance(model, nn.Module) or before is None:
        yield
        return
    try:
        model.to(chosen_device())
        yield
    finally:
        model.to(before)


def evaluate_with_events(
    cell: Cell,
    model: Classifier,
    data: Dataset,
    specs: Sequence[str],
    observer: Observer,
    log: Sequence[Mapping[str, float]] = (),
) -> Iterator[tuple[str, Result]]:
    """Yields (spec, result) of each evaluation of a trained model; sends EvalStart and EvalProgress events.

    Args:
        cell: settings with which the model was trained.
        data: data set whose test split is used.
        specs: evaluations or attacks, as texts such as ``jigsaw(per='image')``.
        observer: receives the events.
        log: log of the training, a dictionary per epoch.
    """
    spec = ""
    ctx = EvalContext(
        model, data, cell.train, lambda fraction: observer.on_event(events.EvalProgress(cell, spec, fraction)), log
    )
    for done, spec in enumerate(specs):
        observer.on_event(events.EvalStart(cell, spec, done, len(specs)))
        yield spec, ctx.evaluate(spec)


def evaluate_cell(folder: CellFolder, specs: Sequence[str], observer: Observer) -> None:
    """Evaluates a trained model and stores the results in its folder.

    Args:
        folder: folder of a cell whose training is finished.
        specs: evaluations, as texts such as ``jigsaw(per='image')``.
        observer: receives the EvalStart and EvalProgress events.
    """
    if specs:
        cell = folder.cell
        model, data = load_model(folder), load(cell.data)
        for spec, result in evaluate_with_events(cell, model, data, specs, observer, folder.log):
            folder.save_result(spec, result)


def evaluate_run(path: Path, specs: Sequence[str], observer: Observer) -> tuple[Results, list[str]]:
    """Evaluates the trained models of an experiment, or one of them, and stores the results in their folders.

    Returns (results of the experiment, the evaluations as the results name them). If results of the same evaluation are
    stored under another text, which differs only in default options that are written out, that text is used again.

    Args:
        path: folder of an experiment, or of one of its cells (trainings).
        specs: evaluations, as texts such as ``jigsaw(per='image')``.
        observer: receives the events of downloads, dry run and evaluations.
    """
    path = path.resolve()
    if (path / "experiment.json").exists():
        folder = ExperimentFolder.open(path)
        cells = folder.trained
    elif (path / "cell.json").exists():
        folder = ExperimentFolder.open(path.parent.parent)
        cells = [CellFolder(path)] if CellFolder(path).trained else []
    else:
        raise InputError(
            f"{path} is neither the folder of an experiment nor of a cell; give the --out of a 'vitpos run'"
        )
    if not cells:
        raise InputError(f"{path} has no trained cell yet; finish it with 'vitpos run'")
    known = list(dict.fromkeys(spec for one in cells for spec in one.results))
    wanted = list(dict.fromkeys(EVALUATIONS.stored_spelling(EVALUATIONS.canonical(spec), known) for spec in specs))
    for one in cells:
        if one.trusted:
            check_weights_origin(one.cell, one, refuse_change=False)
        else:
            load_model(one)  # within the limits for what an untrusted folder may name
    planned = [replace(without_initial_weights(one.cell), evaluations=tuple(wanted)) for one in cells]
    download(missing_data(planned), observer)
    dry_run(planned, observer=observer)
    results = Results(folder)
    with exclusive(folder.path):
        for one in cells:
            evaluate_cell(one, wanted, observer)
            results.refresh(one.cell)
            observer.on_event(events.CellDone(one.cell))
        results.write_csv()
    return results, wanted


def _load_one(path: Path) -> tuple[Classifier, Cell]:
    """Returns (model, its training settings) from a cell folder or a weights file.

    Raises an InputError if ``path`` does not exist or holds several models.
    """
    if not path.exists():
        raise InputError(
            f"there is no model {str(path)!r}; give a classifier, the folder of a cell or its weights file"
        )
    found = load_models(path)
    if len(found) > 1:
        raise InputError(f"{path} has {len(found)} models; give the folder of one cell, as {path}/cells/…")
    (cell, load_model), *_ = found
    return load_model(), cell
