"""Evaluates models: any classifier from Python (``vitpos.evaluate``), and the models of a run with progress events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vitpos.data.dataset import Dataset, load
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.lab import events
from vitpos.lab.cell_models import evaluate_spec, load_models
from vitpos.lab.cells import Cell
from vitpos.lab.events import Observer
from vitpos.models.base import Classifier
from vitpos.training.recipe import Recipe

Evaluation = str | Callable[..., Result]  # a spec such as ``jigsaw(per='image')``, or a function ``ctx -> Result``


def evaluate(
    model: Classifier | Path | str,
    data: Dataset | str | None = None,
    evaluations: Evaluation | Sequence[Evaluation] = "accuracy",
    *,
    recipe: Recipe | None = None,
) -> dict[str, Result]:
    """Evaluates a model and returns the result of each evaluation, by its spec in canonical form; nothing is stored.

    Args:
        model: A classifier, or the path of a trained one: the folder of a cell, or its ``weights.safetensors``.
        data: A data set or its spec; its test split is used. By default the data that the model of a path was trained on.
        evaluations: One or several specs, such as ``jigsaw(per='image')``, or functions ``ctx -> Result``.
        recipe: How the model was trained, which some attacks depend on; by default that of a path's model, or `Recipe()`.
    """
    if not isinstance(model, Classifier):
        model, cell = _load_one(Path(model))
        data, recipe = cell.data if data is None else data, recipe or cell.train
    if data is None:
        raise InputError("evaluate got no data; give a Dataset or a spec such as 'mnist'")
    wanted = [evaluations] if isinstance(evaluations, str) or callable(evaluations) else list(evaluations)
    named = {
        EVALUATIONS.canonical(one) if isinstance(one, str) else getattr(one, "__name__", repr(one)): one
        for one in wanted
    }
    ctx = EvalContext(model, load(data) if isinstance(data, str) else data, recipe or Recipe())
    training = model.training
    try:
        return {name: evaluate_spec(one, ctx) for name, one in named.items()}
    finally:
        model.train(training)


def evaluate_with_events(
    cell: Cell, model: Classifier, data: Dataset, specs: Sequence[str], observer: Observer
) -> Iterator[tuple[str, Result]]:
    """Yields (spec, result) of each evaluation of a trained model; sends EvalStart and EvalProgress events.

    Args:
        cell: settings with which the model was trained.
        specs: evaluations or attacks, as texts such as ``jigsaw(per='image')``.
        observer: receives the events.
    """
    spec = ""
    ctx = EvalContext(
        model, data, cell.train, lambda fraction: observer.on_event(events.EvalProgress(cell, spec, fraction))
    )
    for done, spec in enumerate(specs):
        observer.on_event(events.EvalStart(cell, spec, done, len(specs)))
        yield spec, evaluate_spec(spec, ctx)


def _load_one(path: Path) -> tuple[Classifier, Cell]:
    """Returns the trained model in a cell folder or weights file, and its cell; InputError if there are several."""
    if not path.exists():
        raise InputError(
            f"there is no model {str(path)!r}; give a classifier, the folder of a cell or its weights file"
        )
    found = load_models(path)
    if len(found) > 1:
        raise InputError(f"{path} has {len(found)} models; give the folder of one cell, as {path}/cells/…")
    (cell, load_model), *_ = found
    return load_model(), cell
