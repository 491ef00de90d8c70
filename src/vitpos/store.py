"""What a run leaves behind: folders written so that a crash loses nothing and nothing half-written looks finished.

A folder of an experiment holds ``experiment.json``, ``results.csv``, ``report.html`` and ``cells/`` with a folder for
each cell: ``cell.json``, ``checkpoint.safetensors`` while it trains; ``log.csv``, ``machine.json`` and
``weights.safetensors`` once it has; ``scores.json`` with the numbers and curves of its evaluations; ``tensors/`` with
their arrays and images. Every file is written beside its place and moved there whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from vitpos.cells import Cell
from vitpos.disk import locked, write_whole
from vitpos.errors import UserError, WorkError
from vitpos.evaluations.result import Result
from vitpos.experiment import Experiment
from vitpos.machine import machine
from vitpos.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from vitpos.models.base import Classifier

Key = TypeVar("Key")
RESULT_COLUMNS = ("experiment", "data", "model", "encoding", "seed", "evaluation", "metric", "x", "value")


@dataclass(frozen=True)
class Run:
    """The folder of one cell."""

    path: Path

    @classmethod
    def create(cls, path: Path, cell: Cell) -> Self:
        """The folder for a cell, made now if it is not there."""
        with working_on(path):
            path.mkdir(parents=True, exist_ok=True)
        if not (path / "cell.json").exists():
            _write(path / "cell.json", _json(asdict(cell)))
        return cls(path)

    @cached_property
    def cell(self) -> Cell:
        """What was trained here."""
        return _cell(_read_json(self.path / "cell.json"))

    @property
    def trained(self) -> bool:
        """Whether the weights are there; they are moved into place whole, last of all."""
        return (self.path / "weights.safetensors").is_file()

    @property
    def results(self) -> dict[str, Result]:
        """The result of every evaluation so far, without its arrays and images."""
        return {evaluation: _result(stored) for evaluation, stored in self._scores.items()}

    @property
    def _scores(self) -> dict[str, dict[str, Any]]:
        path = self.path / "scores.json"
        scores = _read_json(path) if path.exists() else {}
        if not all("numbers" in stored for stored in scores.values()):
            raise WorkError(f"{path} was written by an older vitpos; delete it and run the same command again")
        return scores

    @property
    def log(self) -> list[dict[str, float]]:
        """One record per epoch of a trained cell."""
        path = self.path / "log.csv"
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]

    @property
    def machine(self) -> dict[str, str]:
        """What trained it."""
        return _read_json(self.path / "machine.json")

    def save_result(self, evaluation: str, result: Result) -> None:
        """Keeps the result of one evaluation, replacing an older one of the same.

        Numbers that are not finite are left out: NaN stands for a metric that is undefined, and JSON has no infinity.
        Images are kept as bytes. The scores are written last, so that what they name is there.
        """
        file = self.path / _tensors(evaluation)
        tensors = {f"arrays.{name}": array for name, array in result.arrays.items()}
        tensors |= {f"images.{name}": (255 * images).round().byte() for name, images in result.images.items()}
        if tensors:
            with working_on(file.parent):
                file.parent.mkdir(exist_ok=True)
            self._save(_tensors(evaluation), tensors, {"evaluation": evaluation})
        else:
            file.unlink(missing_ok=True)
        curves = {name: {f"{x!r}": y for x, y in _finite(curve).items()} for name, curve in result.curves.items()}
        stored = {"numbers": _finite(result.numbers), "curves": curves, "reason": result.reason}
        _write(self.path / "scores.json", _json(self._scores | {evaluation: stored}))

    def load_result(self, evaluation: str) -> Result:
        """The result of one evaluation with its arrays, and its images as bytes; an empty one if there is none."""
        light = _result(self._scores.get(evaluation, {}))
        if not (self.path / _tensors(evaluation)).exists():
            return light
        tensors, _ = self._load(_tensors(evaluation))
        arrays, images = (
            {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
            for kind in ("arrays.", "images.")
        )
        return replace(light, arrays=arrays, images=images)

    def save_checkpoint(self, epoch: int, tensors: Mapping[str, Tensor], log: list[dict[str, float]]) -> None:
        """Keeps a state to go on from."""
        self._save("checkpoint.safetensors", tensors, {"epoch": str(epoch), "log": json.dumps(log)})

    def checkpoint(self) -> tuple[int, dict[str, Tensor], list[dict[str, float]]] | None:
        """The epoch, tensors and log of the last state kept, if any."""
        if not (self.path / "checkpoint.safetensors").exists():
            return None
        tensors, about = self._load("checkpoint.safetensors")
        return int(about["epoch"]), tensors, json.loads(about["log"])

    def finish(self, model: Classifier, log: list[dict[str, float]]) -> None:
        """Keeps the log and the weights of a trained model; from now on the cell counts as trained."""
        _write(self.path / "machine.json", _json(machine()))
        header = list(log[0]) if log else []
        _write(self.path / "log.csv", _csv(header, [list(record.values()) for record in log]).encode())
        self._save("weights.safetensors", model.state_dict(), {"cell": (self.path / "cell.json").read_text()})
        (self.path / "checkpoint.safetensors").unlink(missing_ok=True)

    def weights(self) -> dict[str, Tensor]:
        """The trained weights."""
        if not self.trained:
            raise UserError(f"{self.path} has no trained weights yet; finish it with 'vitpos run'")
        return self._load("weights.safetensors")[0]

    @staticmethod
    def told_by(weights: Path) -> tuple[Cell, dict[str, Tensor]]:
        """What was trained, and the trained weights, from a file of weights alone, wherever it was copied to."""
        try:
            tensors, about = Run(weights.parent)._load(weights.name)
        except WorkError:
            what = "is damaged, or no weights of a 'vitpos run'"
            raise UserError(f"{weights} {what}; give one of its cells, or a weights.safetensors") from None
        if "cell" not in about:
            raise UserError(f"{weights} holds no model of a 'vitpos run' to take gradients of; give one of its cells")
        return _cell(json.loads(about["cell"])), tensors

    def _save(self, name: str, tensors: Mapping[str, Tensor], about: dict[str, str]) -> None:
        from safetensors.torch import save

        _write(self.path / name, save({key: t.detach().cpu().contiguous() for key, t in tensors.items()}, about))

    def _load(self, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path / name, "pt") as file:
                return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise WorkError(f"{self.path / name} is damaged ({error}); delete it and run the cell again") from None


@dataclass(frozen=True)
class Folder:
    """The folder of an experiment."""

    path: Path
    experiment: Experiment

    @classmethod
    @contextmanager
    def working(cls, path: Path, experiment: Experiment) -> Iterator[Self]:
        """The folder for an experiment, made or taken over now and locked; that of another experiment is refused."""
        if path.exists() and not path.is_dir():
            raise UserError(f"--out {path} is a file; give a folder")
        if (path / "experiment.json").exists() and (other := cls.open(path).experiment.name) != experiment.name:
            raise UserError(f"--out {path} holds experiment {other!r}; give {experiment.name!r} a folder of its own")
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / ".lock").touch()
        except OSError as error:
            raise UserError(f"--out {path} cannot be written ({_reason(error)}); give another folder") from None
        with only_one(path):
            _write(path / "experiment.json", _json(dict(experiment.origin)))
            yield cls(path, experiment)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The folder of an experiment that was run before."""
        if not (path / "experiment.json").exists():
            raise UserError(f"{path} is not the folder of an experiment; give the --out of a 'vitpos run'")
        return cls(path, Experiment.make(_read_json(path / "experiment.json")))

    def run_of(self, cell: Cell) -> Run:
        """Where a cell's run is, or will be."""
        return Run(self.path / "cells" / cell.key)

    @property
    def runs(self) -> list[tuple[Cell, Run]]:
        """The trained cells of the experiment as it was last asked for, in its order."""
        pairs = [(cell, self.run_of(cell)) for cell in self.experiment.cells]
        return [(cell, run) for cell, run in pairs if run.trained]

    @property
    def unfinished(self) -> list[Cell]:
        """The cells that are not trained, or not asked everything yet."""
        return [cell for cell in self.experiment.cells if not self.finished(cell)]

    def finished(self, cell: Cell) -> bool:
        """Whether a cell is trained and measured."""
        run = self.run_of(cell)
        return run.trained and set(cell.evaluate) <= set(run.results)

    def results(self) -> Iterator[dict[str, Any]]:
        """One row per number."""
        for cell, run in self.runs:
            fixed = (self.experiment.name, cell.data, cell.model, cell.encoding, cell.seed)
            for evaluation, result in run.results.items():
                for values in result_rows(result):
                    row = dict(zip(RESULT_COLUMNS, (*fixed, evaluation, *values), strict=True))
                    yield row | {name: self.experiment.value(cell, name) for name in self.experiment.columns}

    def write_results(self) -> Path:
        """``results.csv``, anew."""
        header = [*RESULT_COLUMNS, *self.experiment.columns]
        _write(self.path / "results.csv", _csv(header, [list(row.values()) for row in self.results()]).encode())
        return self.path / "results.csv"


def result_rows(result: Result) -> Iterator[tuple[str, float | str, float]]:
    """Metric, x and value of each number, whose x is empty, and of each point of a curve."""
    for metric, value in result.numbers.items():
        yield metric, "", value
    for metric, curve in result.curves.items():
        for x, value in curve.items():
            yield metric, int(x) if float(x).is_integer() else x, value


def _result(stored: Mapping[str, Any]) -> Result:
    """What ``scores.json`` has of one evaluation."""
    curves = {name: {float(x): y for x, y in curve.items()} for name, curve in stored.get("curves", {}).items()}
    return Result(stored.get("numbers", {}), curves, reason=stored.get("reason", ""))


def _tensors(evaluation: str) -> str:
    return f"tensors/{hashlib.sha256(evaluation.encode()).hexdigest()[:16]}.safetensors"


def _finite(values: Mapping[Key, float]) -> dict[Key, float]:
    return {key: value for key, value in values.items() if math.isfinite(value)}


def _cell(values: dict[str, Any]) -> Cell:
    swept = tuple((key, value) for key, value in values["swept"])
    fixed = {"train": Recipe(**values["train"]), "evaluate": tuple(values["evaluate"]), "swept": swept}
    return Cell(**{**values, **fixed})


def write_bytes(path: Path, content: bytes) -> Path:
    """A file, whole or not at all; its folder is made if it is not there."""
    with working_on(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, content)
    return path


def write_rows(path: Path, rows: Sequence[Sequence[Any]], swept: Sequence[str] = ()) -> Path:
    """A file like ``results.csv``, with the columns that were ``swept`` at the end."""
    return write_bytes(path, _csv([*RESULT_COLUMNS, *swept], [list(row) for row in rows]).encode())


def write_text(path: Path, text: str) -> Path:
    """A text file, whole or not at all; its folder is made if it is not there."""
    return write_bytes(path, text.encode())


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keeps a second process from working in the same folder."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError:
            raise UserError(f"another process is working in {folder}; wait for it or give another --out") from None
        yield


@contextmanager
def working_on(path: Path) -> Iterator[None]:
    """Turns an error of the file system into one that says what is kept and what to do."""
    try:
        yield
    except OSError as error:
        raise WorkError(
            f"cannot write {path} ({_reason(error)}); what is finished is kept: mend it and run the same command again"
        ) from error


def _write(path: Path, content: bytes) -> None:
    with working_on(path):
        write_whole(path, content)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WorkError(f"{path} is damaged ({error}); delete it and run again") from None


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=1) + "\n").encode()


def _csv(header: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _reason(error: BaseException) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    return (isinstance(cause, OSError) and cause.strerror) or str(error)
