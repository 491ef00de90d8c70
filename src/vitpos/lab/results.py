"""The results of an experiment: read once from its folder, then updated after each training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.result import Result
from vitpos.files import write_csv
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.experiment import Experiment
from vitpos.lab.experiment_folder import ExperimentFolder
from vitpos.lab.trust import is_trusted, limited_names

RESULT_COLUMNS = ("experiment", "data", "model", "encoding", "seed", "evaluation", "metric", "x", "value")


class Results:
    """The measured numbers of all finished trainings of an experiment; ``print(results)`` shows its tables.

    ``rows`` is a list with one dictionary per line of ``results.csv``, for example for ``pandas.DataFrame(results.rows)``.
    """

    def __init__(self, folder: ExperimentFolder):
        self.folder = folder
        self._trusted = is_trusted(folder.path)
        self.errors: dict[Cell, str] = {}  # error messages of the cells that failed in this run
        self._results: dict[str, dict[str, Result]] = {}  # folder name of a trained cell → spec → result
        for cell in folder.experiment.cells:
            self.refresh(cell)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Reads the results from the folder of an experiment."""
        return cls(ExperimentFolder.open(path))

    def refresh(self, cell: Cell) -> None:
        """Reads the results of one cell (training) again from its folder."""
        folder = self.folder.cell_folder(cell)
        if folder.trained:
            found = folder.results
            if not self._trusted:
                with limited_names(self.path, trusted=False):
                    for spec in found:
                        EVALUATIONS.parse(spec)
            self._results[cell.folder_name] = found

    @property
    def path(self) -> Path:
        """The folder of the experiment."""
        return self.folder.path

    @property
    def experiment(self) -> Experiment:
        """The experiment, with the settings of its last run."""
        return self.folder.experiment

    @property
    def trained(self) -> list[tuple[Cell, CellFolder]]:
        """Pairs (cell, its folder) of the cells whose training is finished, in the order of the experiment."""
        return [(cell, self.folder.cell_folder(cell)) for cell in self.experiment.cells if self.is_trained(cell)]

    def of(self, cell: Cell) -> dict[str, Result]:
        """Returns a dictionary evaluation → Result of a cell (one training), without arrays and images; may be empty."""
        return self._results.get(cell.folder_name, {})

    def is_trained(self, cell: Cell) -> bool:
        """Whether the training of a cell is finished, i.e. its weights are stored."""
        return cell.folder_name in self._results

    def is_done(self, cell: Cell) -> bool:
        """Whether the training of a cell and all its evaluations are finished."""
        return self.is_trained(cell) and set(cell.evaluations) <= set(self.of(cell))

    @property
    def pending(self) -> list[Cell]:
        """The cells (trainings) that are not trained yet or lack one of their evaluations."""
        return [cell for cell in self.experiment.cells if not self.is_done(cell)]

    @property
    def evaluations(self) -> list[str]:
        """All evaluations with stored results, as texts such as ``jigsaw(per='image')``, in order of first appearance."""
        return list(dict.fromkeys(spec for cell, _ in self.trained for spec in self.of(cell)))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per number; its keys are the columns of ``results.csv``, such as encoding, seed, metric, value."""
        found = ((cell, spec, result) for cell, _ in self.trained for spec, result in self.of(cell).items())
        return result_rows(self.experiment.name, found, self.experiment.columns)

    def write_csv(self) -> Path:
        """Writes ``results.csv`` into the folder of the experiment and returns its path."""
        return write_rows(self.path / "results.csv", self.rows, self.experiment.columns)

    def __repr__(self) -> str:
        from vitpos.lab.table_text import as_text

        return as_text(self)


def result_rows(
    experiment: str, results: Iterable[tuple[Cell, str, Result]], varied: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns the rows of ``results.csv`` as dictionaries: one per number, with empty ``x``, and one per point of a curve.

    Args:
        experiment: name of the experiment.
        results: triples (settings of the training, evaluation such as ``jigsaw(per='image')``, result).
        varied: training options with a column of their own at the end, such as ``train.lr``.
    """
    rows = []
    for cell, evaluation, result in results:
        points: list[tuple[str, float | str, float]] = [(name, "", value) for name, value in result.numbers.items()]
        for name, curve in result.curves.items():
            points += [(name, int(x) if float(x).is_integer() else x, value) for x, value in curve.items()]
        fixed = experiment, cell.data, cell.model, cell.encoding, cell.seed, evaluation
        extra = {name: cell.train_value(name) for name in varied}
        rows += [dict(zip(RESULT_COLUMNS, (*fixed, *point), strict=True)) | extra for point in points]
    return rows


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], varied: Sequence[str]) -> Path:
    """Writes rows to a CSV file in the format of ``results.csv``, and returns its path.

    Args:
        rows: one dictionary per number, as `result_rows` returns them: encoding, seed, metric, value and so on.
        varied: training options with a column of their own at the end, such as ``train.lr``.
    """
    return write_csv(path, [*RESULT_COLUMNS, *varied], [list(row.values()) for row in rows])
