"""What a run leaves behind: folders written so that a crash loses nothing and nothing half-written looks finished.

A folder of an experiment holds ``experiment.json``, ``results.csv``, ``report.html`` and ``cells/`` with a folder for
each cell: ``cell.json``, ``checkpoint.safetensors`` while it trains; ``log.csv``, ``machine.json`` and
``weights.safetensors`` once it has; ``scores.json``; ``attacks/`` with what attacks found. Every file is written beside
its place and moved there whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vitpos.cells import Cell
from vitpos.disk import locked, write_whole
from vitpos.errors import UserError, WorkError
from vitpos.experiment import Experiment
from vitpos.machine import machine
from vitpos.plugin_records import keep, read_records, recall, used
from vitpos.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from vitpos.attacks.recovery import Recovery
    from vitpos.models.base import Classifier

RESULT_COLUMNS = ("experiment", "data", "model", "encoding", "seed", "evaluation", "metric", "value")
Scores = dict[str, dict[str, float]]  # evaluation → metric → value


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
    def scores(self) -> Scores:
        """What was measured so far."""
        path = self.path / "scores.json"
        return _read_json(path) if path.exists() else {}

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

    def add_scores(self, evaluation: str, numbers: Mapping[str, float]) -> None:
        """Keeps the numbers of one evaluation, replacing older ones of the same.

        What is not finite is left out: a number that does not exist (NaN) is missing, not measured, and JSON has no word
        for infinity, of which nothing could be told over seeds anyway.
        """
        finite = {metric: value for metric, value in numbers.items() if math.isfinite(value)}
        _write(self.path / "scores.json", _json(self.scores | {evaluation: finite}))

    def add_pictures(self, question: str, answer: Recovery) -> None:
        """Keeps what an attack found, or why it could not, replacing older pictures of the same."""
        pictures = {"found": answer.found, "goal": answer.goal, "frames": answer.frames}
        tensors = {name: (255 * x).round().byte() for name, x in pictures.items() if x is not None}
        with working_on(self.path / "attacks"):
            (self.path / "attacks").mkdir(exist_ok=True)
        self._save(self._pictures(question), tensors, {"question": question, "why": answer.why})

    def pictures(self, question: str) -> tuple[dict[str, Tensor], str]:
        """What an attack found, as bytes by name (``found``, ``goal``, ``frames``), and why if it could not."""
        if not (self.path / self._pictures(question)).exists():
            return {}, ""
        tensors, about = self._load(self._pictures(question))
        return tensors, about["why"]

    def _pictures(self, question: str) -> str:
        return f"attacks/{hashlib.sha256(question.encode()).hexdigest()[:16]}.safetensors"

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
        about = {"cell": (self.path / "cell.json").read_text()}
        if records := read_records(self.path.parent.parent):
            about["plugins"] = json.dumps(records)
        self._save("weights.safetensors", model.state_dict(), about)
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
        recall(weights.parent, json.loads(about.get("plugins", "{}")))
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
            _keep_plugins(path, experiment)
            _write(path / "experiment.json", _json(dict(experiment.origin)))
            yield cls(path, experiment)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The folder of an experiment that was run before."""
        if not (path / "experiment.json").exists():
            raise UserError(f"{path} is not the folder of an experiment; give the --out of a 'vitpos run'")
        recall(path)
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
        return run.trained and set(cell.evaluate) <= set(run.scores)

    def results(self) -> Iterator[dict[str, Any]]:
        """One row per number."""
        for cell, run in self.runs:
            fixed = (self.experiment.name, cell.data, cell.model, cell.encoding, cell.seed)
            for evaluation, numbers in run.scores.items():
                for metric, value in numbers.items():
                    row = dict(zip(RESULT_COLUMNS, (*fixed, evaluation, metric, value), strict=True))
                    yield row | {name: self.experiment.value(cell, name) for name in self.experiment.columns}

    def write_results(self) -> Path:
        """``results.csv``, anew."""
        header = [*RESULT_COLUMNS, *self.experiment.columns]
        _write(self.path / "results.csv", _csv(header, [list(row.values()) for row in self.results()]).encode())
        return self.path / "results.csv"


def _keep_plugins(path: Path, experiment: Experiment) -> None:
    """Records the plug-ins of an experiment in its folder, with a description of what it uses of them."""
    specs = experiment.specs
    found = used([spec for _, spec in specs], experiment.origin.get("plugins", ()))
    terms = [(registry, term.name) for registry, spec in specs for term in registry.parse(spec)] if found else []
    with working_on(path):
        keep(path, found, {(registry.kind, name): registry.describe(name) for registry, name in terms})


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
