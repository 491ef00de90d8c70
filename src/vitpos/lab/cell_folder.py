"""The folder of one cell (one training, i.e. one model with one seed): its settings, weights, logs and results.

``cell.json``; during training ``checkpoint.safetensors``; after training ``log.csv``, ``machine.json``,
``test_samples.safetensors``, ``position_table.safetensors`` and, written last, ``weights.safetensors``; after evaluation
``scores.json`` with numbers and curves, and ``tensors/`` with arrays and images; after an unexpected error ``error.log``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError, RunError
from vitpos.evaluations.result import Result
from vitpos.files import (
    explain_damage,
    read_csv,
    read_json,
    read_metadata,
    read_tensors,
    write_csv,
    write_json,
    write_tensors,
    write_text,
)
from vitpos.lab.cells import Cell
from vitpos.lab.format_version import FORMAT_VERSION, check_version
from vitpos.lab.machine import machine, vector_instructions
from vitpos.lab.stored_results import from_entry, to_entry
from vitpos.lab.trust import is_trusted, limited_names
from vitpos.models import MODELS
from vitpos.registry import matches_type
from vitpos.registry.plugin_records import load_recorded_plugins, read_records
from vitpos.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from vitpos.data.dataset import Dataset
    from vitpos.models.base import Classifier

WEIGHTS = "weights.safetensors"
CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class CellFolder:
    """Reads and writes the folder of one cell, i.e. of one training: its settings, weights, log and results."""

    path: Path

    @classmethod
    def create(cls, path: Path, cell: Cell) -> Self:
        """Writes the settings of a training to ``path/cell.json``, if that file does not exist; returns the CellFolder."""
        if not (path / "cell.json").exists():
            write_json(path / "cell.json", {"format_version": FORMAT_VERSION, **asdict(cell)})
        return cls(path)

    @cached_property
    def cell(self) -> Cell:
        """The settings of the training in this folder (data, model, encoding, seed …), read from ``cell.json``."""
        return _read_cell(read_json(self.path / "cell.json"), self.path, trusted=self.trusted)

    @property
    def trusted(self) -> bool:
        """Whether a run of this user wrote the folder, so that it may name files and plug-ins to read."""
        return is_trusted(self.path)

    @property
    def trained(self) -> bool:
        """Whether training is finished, i.e. ``weights.safetensors`` exists; that file is written last.

        A FIFO, a folder or a broken link of that name counts too: to read it is an error, whereas untrained cells are
        omitted.
        """
        return os.path.lexists(self.path / WEIGHTS)

    @property
    def begun(self) -> bool:
        """Whether the training is finished or has a checkpoint, so that it needs no initial weights."""
        return self.trained or (self.path / CHECKPOINT).exists()

    @property
    def initial_weights(self) -> dict[str, str]:
        """``path`` and ``sha256`` of the file whose weights the training started from; empty if they were random."""
        with explain_damage(self.path / "cell.json"):
            stored = read_json(self.path / "cell.json").get("initial_weights", {})
            return {key: str(stored[key]) for key in ("path", "sha256")} if stored else {}

    def save_initial_weights(self, path: Path, sha256: str) -> None:
        """Stores in ``cell.json`` which file the weights at the start of the training are from, and its SHA-256."""
        stored = read_json(self.path / "cell.json")
        write_json(self.path / "cell.json", {**stored, "initial_weights": {"path": str(path), "sha256": sha256}})

    @property
    def results(self) -> dict[str, Result]:
        """Dictionary of the stored results, such as ``jigsaw(per='image')`` → Result; arrays and images are not loaded."""
        with explain_damage(self.path / "scores.json"):
            return {evaluation: from_entry(stored) for evaluation, stored in self._scores.items()}

    @property
    def _scores(self) -> dict[str, dict[str, Any]]:
        path = self.path / "scores.json"
        return read_json(path) if path.exists() else {}

    @property
    def log(self) -> list[dict[str, float]]:
        """One dictionary per epoch (``epoch``, ``loss``, ``accuracy`` …); empty before the training is finished."""
        path = self.path / "log.csv"
        if not path.exists():
            return []
        with explain_damage(path):
            return [{key: float(value) for key, value in row.items()} for row in read_csv(path)]

    @property
    def machine(self) -> dict[str, str]:
        """Processor, memory, library versions and so on of the machine that trained; empty without ``machine.json``."""
        path = self.path / "machine.json"
        return {str(key): str(value) for key, value in read_json(path).items()} if path.exists() else {}

    @property
    def instructions(self) -> dict[str, str]:
        """Evaluation → vector instructions that computed it, such as ``AVX2``; those of the training if none are stored."""
        trained = self.machine.get("instructions", "unknown")
        with explain_damage(self.path / "scores.json"):
            return {name: str(stored.get("instructions", trained)) for name, stored in self._scores.items()}

    def save_result(self, evaluation: str, result: Result) -> None:
        """Stores the result of one evaluation, such as ``jigsaw(per='image')``; replaces an older one of that evaluation.

        NaN and infinite values of numbers and curves are left out; images are stored as uint8. The vector instructions of
        this process are stored too: an evaluation may be added on another machine than that of the training. Arrays and
        images are written before the numbers: a crash leaves no numbers without their arrays.
        """
        file = self._tensor_file(evaluation)
        tensors = {f"arrays.{name}": array for name, array in result.arrays.items()}
        tensors |= {f"images.{name}": (255 * images).round().byte() for name, images in result.images.items()}
        if tensors:
            write_tensors(file, tensors, {"evaluation": evaluation})
        else:
            file.unlink(missing_ok=True)
        stored = to_entry(result) | {"instructions": vector_instructions()}
        write_json(self.path / "scores.json", self._scores | {evaluation: stored})

    def load_result(self, evaluation: str) -> Result:
        """Returns the stored result of one evaluation, such as ``jigsaw(per='image')``, with its arrays and uint8 images.

        Returns an empty Result if none is stored.
        """
        with explain_damage(self.path / "scores.json"):
            result = from_entry(self._scores.get(evaluation, {}))
        if not self._tensor_file(evaluation).exists():
            return result
        tensors, _ = read_tensors(self._tensor_file(evaluation))
        arrays, images = (
            {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
            for kind in ("arrays.", "images.")
        )
        return replace(result, arrays=arrays, images=images)

    def _tensor_file(self, evaluation: str) -> Path:
        return self.path / "tensors" / f"{hashlib.sha256(evaluation.encode()).hexdigest()[:16]}.safetensors"

    def save_checkpoint(self, epoch: int, tensors: Mapping[str, Tensor], log: list[dict[str, float]]) -> None:
        """Stores the state after an epoch, from which training can be resumed.

        Args:
            epoch: number of finished epochs.
            tensors: weights, optimizer state and so on, by name.
            log: one dictionary per finished epoch.
        """
        metadata = {"epoch": str(epoch), "log": json.dumps(log)}
        write_tensors(self.path / CHECKPOINT, tensors, metadata)

    def load_checkpoint(self) -> tuple[int, dict[str, Tensor], list[dict[str, float]]] | None:
        """Returns (number of finished epochs, name → tensor, one log dictionary per epoch) of the checkpoint, or None."""
        if not (self.path / CHECKPOINT).exists():
            return None
        tensors, about = read_tensors(self.path / CHECKPOINT)
        with explain_damage(self.path / CHECKPOINT):
            return int(about["epoch"]), tensors, [dict(record) for record in json.loads(about["log"])]

    def save_samples(self, images: Tensor) -> None:
        """Stores n test images, uint8 (n, channels, height, width), for the report."""
        write_tensors(self.path / "test_samples.safetensors", {"images": images}, {})

    def load_samples(self) -> Tensor:
        """Returns the n stored test images, uint8 (n, channels, height, width)."""
        path = self.path / "test_samples.safetensors"
        with explain_damage(path):
            return read_tensors(path)[0]["images"]

    def save_position_table(self, table: Tensor) -> None:
        """Stores the position vectors (rows, columns, dim) that the trained encoding adds to the grid of patch tokens."""
        write_tensors(self.path / "position_table.safetensors", {"table": table}, {})

    def load_position_table(self) -> Tensor | None:
        """Returns the stored position vectors (rows, columns, dim) of the patch grid; None if the encoding adds none."""
        path = self.path / "position_table.safetensors"
        with explain_damage(path):
            return read_tensors(path)[0]["table"] if path.exists() else None

    def finish(self, model: Classifier, log: list[dict[str, float]], data: Dataset) -> None:
        """Stores the weights of a trained model, its log and a description of the machine; marks the training as finished.

        Args:
            log: one dictionary per epoch.
            data: the data set; its class names and the shape of its images are stored with the weights.
        """
        write_json(self.path / "machine.json", machine())
        write_csv(self.path / "log.csv", list(log[0]) if log else [], [list(record.values()) for record in log])
        about = json.dumps(
            {
                **read_json(self.path / "cell.json"),
                "classes": data.classes,
                "image_shape": data.shape,
                "plugins": read_records(self.path.parent.parent),
            }
        )
        # a single key: safetensors does not fix the order of several, and equal trainings must give equal files
        write_tensors(self.path / WEIGHTS, model.state_dict(), {"cell": about})
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def load_weights(self) -> dict[str, Tensor]:
        """Returns the ``state_dict`` of the trained model; raises an InputError if training is not finished."""
        if not self.trained:
            raise InputError(f"{self.path} has no trained weights yet; finish it with 'vitpos run'")
        return read_tensors(self.path / WEIGHTS)[0]

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that the model was trained on, read from the weights file."""
        with explain_damage(self.path / WEIGHTS):
            return tuple(map(str, json.loads(read_metadata(self.path / WEIGHTS)["cell"])["classes"]))

    @staticmethod
    def from_weights(weights: Path) -> tuple[Cell, dict[str, Tensor], tuple[str, ...]]:
        """Reads (cell with the training settings, weights, class names) from a weights file, which may lie anywhere."""
        try:
            tensors, about = read_tensors(weights)
        except RunError:
            what = "is damaged, or was not written by 'vitpos run'"
            raise InputError(f"{weights} {what}; give the folder of a cell, or its weights.safetensors") from None
        if "cell" not in about:
            raise InputError(
                f"{weights} holds no model of a 'vitpos run'; give the folder of a cell, or its weights.safetensors"
            )
        trusted = is_trusted(weights)
        with explain_damage(weights, "give the weights.safetensors of a cell, as 'vitpos run' wrote it"):
            stored = json.loads(about["cell"])
            if trusted:
                load_recorded_plugins(weights.parent, stored.get("plugins", {}))
            return _read_cell(stored, weights, trusted=trusted), tensors, tuple(map(str, stored["classes"]))

    def save_traceback(self, text: str) -> Path:
        """Stores the traceback of an unexpected error in ``error.log`` and returns its path."""
        return write_text(self.path / "error.log", text)

    def clear_traceback(self) -> None:
        """Removes ``error.log``, the traceback of an earlier attempt."""
        (self.path / "error.log").unlink(missing_ok=True)


def _read_cell(stored: Mapping[str, Any], path: Path, *, trusted: bool) -> Cell:
    """Converts the content of ``cell.json`` to a Cell; raises a RunError if a value is missing or has another type.

    Args:
        path: folder or file of the content, for messages.
        trusted: whether the content may name plug-ins, which are then imported.
    """
    with explain_damage(path), limited_names(path, trusted=trusted):
        check_version(stored, path)
        values = {f.name: stored[f.name] for f in fields(Cell)}
        varied = tuple((key, value) for key, value in values["varied"])
        hints = get_type_hints(Recipe)
        if wrong := [key for key, value in values["train"].items() if not matches_type(hints.get(key, str), value)]:
            raise TypeError(f"train.{wrong[0]} has another type")
        evaluations = tuple(values["evaluations"])
        fixed = {"train": Recipe(**values["train"]), "evaluations": evaluations, "varied": varied}
        texts = [values["data"], values["model"], values["encoding"], *evaluations]
        if not all(isinstance(text, str) for text in texts) or type(values["seed"]) is not int:
            raise TypeError("data, model, encoding and evaluations must be texts, and the seed a number")
        for registry, text in zip((DATASETS, MODELS, ENCODINGS), texts, strict=False):
            if text:  # a model that was not trained by vitpos has no data
                registry.parse(text)
        return Cell(**{**values, **fixed})
