"""The folder of an experiment: ``experiment.json``, ``results.csv``, ``report.html`` and ``cells/``, a folder per training.

Files are written atomically: after a crash, no partly written file counts as finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from vitpos.errors import InputError
from vitpos.files import exclusive, explain_damage, os_reason, read_json, require_folder, write_json
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cells import Cell
from vitpos.lab.experiment import Experiment
from vitpos.lab.format_version import FORMAT_VERSION, check_version
from vitpos.lab.trust import is_trusted, limited_names, sign
from vitpos.registry.plugin_records import load_recorded_plugins, plugins_in, save_plugins


@dataclass(frozen=True)
class ExperimentFolder:
    """The output folder of an experiment, and the experiment (trainings and tables) as it was last run."""

    path: Path
    experiment: Experiment

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens the folder of an experiment that was run before; raises an InputError if ``path`` is not such a folder."""
        if not (path / "experiment.json").exists():
            raise InputError(f"{path} is not the folder of an experiment; give the --out of a 'vitpos run'")
        file = path / "experiment.json"
        stored = read_json(file)
        check_version(stored, path)
        load_run_plugins(path)
        with (
            explain_damage(file, "restore it, or run the experiment again"),
            limited_names(path, trusted=is_trusted(path)),
        ):
            return cls(path, Experiment.from_definition(stored))

    @classmethod
    def reserve(cls, path: Path, experiment: Experiment) -> Self:
        """Returns the folder at ``path`` without creating it; raises an InputError if it holds another experiment."""
        require_folder(path)
        if (path / "experiment.json").exists() and (other := cls.open(path).experiment.name) != experiment.name:
            raise InputError(f"{path} holds experiment {other!r}; use another folder for {experiment.name!r}")
        return cls(path, experiment)

    @classmethod
    @contextmanager
    def create_locked(cls, path: Path, experiment: Experiment) -> Iterator[Self]:
        """Context manager that yields the folder of an experiment, created if needed and locked against other processes."""
        folder = cls.reserve(path, experiment)
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / ".lock").touch()
        except OSError as error:
            raise InputError(f"{path} cannot be written ({os_reason(error)}); use another folder") from None
        with exclusive(path):
            _save_plugins(path, experiment)
            write_json(path / "experiment.json", {"format_version": FORMAT_VERSION, **experiment.definition})
            sign(path)
            yield folder

    def cell_folder(self, cell: Cell) -> CellFolder:
        """Returns the folder of a cell (one training), which may not exist yet."""
        return CellFolder(self.path / "cells" / cell.folder_name)

    @property
    def trained(self) -> list[CellFolder]:
        """The folders of all cells whose training is finished, in the order of the experiment."""
        return [folder for folder in map(self.cell_folder, self.experiment.cells) if folder.trained]


def load_run_plugins(path: Path) -> None:
    """Imports the plug-ins (Python files or modules) that a run folder records.

    Warns about plug-ins that are missing or have changed, if the folder has a weights file or a checkpoint. Those of a
    folder that no run of this user wrote are not imported.
    """
    load_recorded_plugins(path, quiet=not _began(path), trusted=is_trusted(path))


def _began(path: Path) -> bool:
    """Whether a run folder has a weights file or a checkpoint."""
    return any(path.glob("cells/*/*.safetensors"))


def _save_plugins(path: Path, experiment: Experiment) -> None:
    """Stores in ``plugins.json`` which plug-in files an experiment uses, with descriptions of their classes."""
    specs = experiment.specs
    found = plugins_in([spec for _, spec in specs], experiment.definition.get("plugins", ()))
    terms = [(registry, term.name) for registry, spec in specs for term in registry.parse(spec)] if found else []
    descriptions = {(registry.kind, name): registry.describe(name) for registry, name in terms}
    save_plugins(path, found, descriptions, began=_began(path))
