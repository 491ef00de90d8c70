"""Runs an experiment: loads data, builds and trains models, evaluates them, stores the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitpos.data.dataset import Dataset, load
from vitpos.errors import RunError
from vitpos.evaluations.context import EvalContext
from vitpos.inspection.table_stats import position_vectors
from vitpos.lab import events
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cell_models import build_model
from vitpos.lab.cells import Cell
from vitpos.lab.device import using_device
from vitpos.lab.downloads import download, missing_data
from vitpos.lab.dry_run import dry_run
from vitpos.lab.evaluate import evaluate_cell
from vitpos.lab.events import Event, Observer
from vitpos.lab.executor import Executor, LocalExecutor, refuse_to_nest
from vitpos.lab.experiment import Experiment
from vitpos.lab.experiment_folder import ExperimentFolder, load_run_plugins
from vitpos.lab.initial_weights import (
    check_weights_origin,
    find_weights,
    load_initial_weights,
    weights_hash,
    without_initial_weights,
)
from vitpos.lab.results import Results
from vitpos.lab.trust import trusting
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.registry.plugin_records import load_recorded_plugins, workers_can_import
from vitpos.training.loop import fit

SAMPLES = 10  # test images that a cell stores for the report


def run(
    experiment: Experiment | str | Mapping[str, Any],
    out: Path | str,
    *,
    workers: int | None = None,
    observer: Observer | None = None,
    executor: Executor | None = None,
    seeds: Sequence[int] | None = None,
    plugins: Sequence[str] = (),
    device: str | None = None,
    trust: bool = False,
    **settings: Any,
) -> Results:
    """Trains and evaluates the unfinished cells (trainings) of an experiment; stores and returns the results of all cells.

    A cell that fails does not stop the others; at the end a RunError gives the reason. The weights of a cell depend on
    the number of threads (cores divided by workers) through floating-point rounding.

    Args:
        experiment: An Experiment, the name of a shipped one, the path of a TOML file, or its content as a dictionary.
        out: Folder for all output; if it holds an unfinished run of the experiment, that run is continued.
        workers: Number of processes that run cells in parallel; by default one per core, or a single one with a GPU. With
            several, a script must call ``run`` under ``if __name__ == "__main__":``, because every process imports it.
        observer: Receives the events of the run; by default progress is shown on standard error.
        executor: Runs the cells; by default in processes on this machine.
        seeds: Replace the seeds of the experiment.
        plugins: Python files or modules that register encodings, models and so on.
        device: ``cpu``, ``cuda``, ``cuda:0``, ``mps`` or ``auto``; by default a GPU if PyTorch finds one (CUDA),
            otherwise the CPU.
        trust: Whether the run in ``out``, if this user's vitpos did not write it, may name any plug-ins, data and models.
        settings: Override values of the experiment, as ``encoding=MyClass, train={"epochs": 1}``; classes and functions
            are accepted as well as specs such as ``rope(base=10)``.
    """
    refuse_to_nest()
    if trust:
        with trusting(True):
            options: dict[str, Any] = {"seeds": seeds, "plugins": plugins, "device": device, **settings}
            return run(experiment, out, workers=workers, observer=observer, executor=executor, **options)
    if device is not None:
        with using_device(device):
            options = {"executor": executor, "seeds": seeds, "plugins": plugins, **settings}
            return run(experiment, out, workers=workers, observer=observer, **options)
    if observer is None:
        from vitpos.lab.console import Console

        with Console() as console:
            options = {"seeds": seeds, "plugins": plugins, **settings}
            return run(experiment, out, workers=workers, observer=console, executor=executor, **options)
    load_run_plugins(Path(out))
    experiment = Experiment.load(experiment, settings, seeds, plugins)
    if not workers_can_import(spec for _, spec in experiment.specs):
        workers = 1  # other processes could not import them
    executor = executor or LocalExecutor(workers, max_workers=len(experiment.cells))
    reserved = ExperimentFolder.reserve(Path(out), experiment)
    for cell in experiment.cells:
        check_weights_origin(cell, reserved.cell_folder(cell), refuse_change=True)
    pending = Results(reserved).pending
    download(missing_data(experiment.cells), observer)
    begun = {cell for cell in pending if reserved.cell_folder(cell).begun}
    tried = [without_initial_weights(cell) if cell in begun else cell for cell in pending]
    dry_run(tried, experiment.tables, observer)  # before anything is trained or written
    with ExperimentFolder.create_locked(Path(out), experiment) as folder:
        results = Results(folder)
        observer.on_event(events.RunStart(results))
        for cell in experiment.cells:
            if results.is_done(cell):
                observer.on_event(events.CellDone(cell))
        results.write_csv()
        executor.run(run_cell, results.pending, folder.path, _Recorder(results, observer))
    if results.errors:
        cell, error = next(iter(results.errors.items()))
        count = f"{len(results.errors)} of {len(experiment.cells)} cells failed"
        raise RunError(f"{count}, the first ({cell.label}, seed {cell.seed}): {error}; the others are finished")
    return results


class _Recorder(Observer):
    """Observer that updates Results and ``results.csv`` after each training and forwards all events to another observer."""

    def __init__(self, results: Results, observer: Observer):
        self.results, self.observer = results, observer

    def on_event(self, event: Event) -> None:
        if isinstance(event, events.CellFailed):
            self.results.errors[event.cell] = event.error
        if isinstance(event, events.CellDone | events.CellFailed):
            self.results.refresh(event.cell)
            self.results.write_csv()
        self.observer.on_event(event)


def run_cell(cell: Cell, folder: CellFolder, observer: Observer) -> None:
    """Trains one model and runs its evaluations, with the settings of ``cell``; skips what its folder stores already."""
    load_recorded_plugins(folder.path.parent.parent, quiet=True)
    CellFolder.create(folder.path, cell)
    if not folder.trained:
        train(cell, folder, observer)
    known = folder.results
    evaluate_cell(folder, [spec for spec in cell.evaluations if spec not in known], observer)


def train(cell: Cell, folder: CellFolder, observer: Observer) -> None:
    """Trains one model, from its last checkpoint if there is one, and stores its weights in its folder.

    Without a checkpoint the training starts from the weights that ``train.weights`` gives, or from random ones.

    Args:
        cell: the settings of the training.
        folder: its folder.
        observer: receives TrainStart and TrainProgress events.
    """
    data = load(cell.data)
    model = build_model(cell, data)
    done, tensors, log = folder.load_checkpoint() or (0, None, [])
    observer.on_event(events.TrainStart(cell, cell.train.epochs * len(data.train), done * len(data.train)))
    resume = (done, tensors) if tensors else None
    if cell.train.weights and not resume:
        file = find_weights(cell).resolve()
        folder.save_initial_weights(file, weights_hash(file))
        load_initial_weights(model, cell, data, file)
    states = fit(
        model,
        data,
        cell.train,
        seed=cell.seed,
        resume=resume,
        on_batch=lambda images: observer.on_event(events.TrainProgress(cell, images)),
    )
    for state in states:
        if state.metrics:
            log.append(state.metrics | _test_metrics(cell, model, data))
        folder.save_checkpoint(state.epoch, state.state, log)
    finish(folder, model, data, log)


def _test_metrics(cell: Cell, model: Classifier, data: Dataset) -> dict[str, float]:
    """Returns ``test_accuracy`` if the training records it, otherwise nothing.

    It has no effect on the weights: predictions change none, and each epoch of the training sets its own random seed.
    """
    if not cell.train.log_test_accuracy:
        return {}
    return {"test_accuracy": EvalContext(model, data, cell.train).evaluate("accuracy").numbers["accuracy"]}


def finish(folder: CellFolder, model: Classifier, data: Dataset, log: list[dict[str, float]]) -> None:
    """Stores test images, position vectors, log and, last, the weights of a trained model in its folder.

    Args:
        folder: folder of the training.
        data: the data set that the model was trained on.
        log: one dictionary per epoch.
    """
    model.eval()
    folder.save_samples(sample_images(data))
    if isinstance(model, PatchClassifier):
        vectors = position_vectors(model)  # (N, D)
        if vectors.any() and vectors.isfinite().all():
            folder.save_position_table(vectors.unflatten(0, model.geometry.grid))
    folder.finish(model, log, data)


def sample_images(data: Dataset) -> Tensor:
    """Returns the first test image of each of n classes, at most ten: uint8 (n, channels, height, width)."""
    first = [(data.test.labels == label).nonzero()[:1, 0] for label in range(len(data.classes))]
    return data.test.images[torch.cat(first)[:SAMPLES]]
