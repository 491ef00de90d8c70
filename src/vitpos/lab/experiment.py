"""Reads an experiment from a TOML file: cells to run and tables to print.

Top-level keys apply to every cell, and each ``[[cells]]`` block overrides some of them. A list in ``data``, ``model``,
``encoding`` or a ``train`` value gives one cell for each of its items. This module does not import torch.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.lab.cells import Cell, Column, Reference, Table
from vitpos.lab.toml import (
    SPECS,
    TRAIN,
    as_list,
    choices,
    flatten,
    parse_setting,
    read_record,
    read_table,
    require_seed,
    require_text,
    storable,
    take_blocks,
)
from vitpos.models import MODELS
from vitpos.registry import Registry, suggest
from vitpos.registry.plugins import load as load_plugin
from vitpos.training import AUGMENTS, DEFENSES
from vitpos.training.recipe import Recipe

SHIPPED = Path(__file__).parents[1] / "experiments"


@dataclass(frozen=True)
class About:
    """The descriptive keys of an experiment file."""

    question: str = ""
    source: str = ""  # source of the reference numbers
    notes: tuple[str, ...] = ()  # paragraphs printed with the results


@dataclass(frozen=True)
class Experiment:
    """The question of an experiment, its cells, and the tables of its results."""

    name: str
    question: str
    cells: tuple[Cell, ...]
    tables: tuple[Table, ...]
    references: tuple[Reference, ...] = ()
    source: str = ""  # source of the reference numbers
    notes: tuple[str, ...] = ()  # paragraphs printed with the results
    origin: Mapping[str, Any] = field(
        default_factory=dict, compare=False
    )  # arguments of ``make``: name, text, settings, seeds

    @classmethod
    def read(
        cls,
        name: str,
        settings: Iterable[str] = (),
        seeds: Sequence[int] | None = None,
        plugins: Sequence[str] = (),
    ) -> Self:
        """Reads a shipped experiment or a TOML file.

        Args:
            settings: texts such as ``"train.lr=0.1"`` that override values of the file.
            seeds: replace the seeds of the file.
            plugins: recorded in the experiment; they must be loaded already.
        """
        path = SHIPPED / f"{name}.toml"
        if name not in shipped():
            path = Path(name)
            if not path.is_file():
                raise InputError(
                    f"no experiment {name!r}; {suggest(name, shipped())} (or give the path of a TOML file)"
                )
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read experiment {name!r}: {error}") from None
        origin = {"name": path.stem, "asked": name, "text": text, "settings": list(settings), "seeds": seeds}
        return cls.make(origin | ({"plugins": list(plugins)} if plugins else {}))

    @classmethod
    def of(
        cls,
        source: Experiment | str | Mapping[str, Any],
        settings: Mapping[str, Any],
        seeds: Sequence[int] | None = None,
        plugins: Sequence[str] = (),
    ) -> Experiment:
        """Reads an experiment from a name, a TOML file or a dictionary; values of ``settings`` may be classes."""
        for name in plugins:
            load_plugin(name)
        flat = flatten(settings, "run()")
        texts = [f"{key}={json.dumps(storable(key, value))}" for key, value in flat.items()]
        if isinstance(source, str):
            return cls.read(source, texts, seeds, plugins)
        if isinstance(source, Experiment):
            if not texts and seeds is None and not plugins:
                return source
            origin = dict(source.origin)
        else:
            origin = {"name": source.get("name", "experiment"), "settings": [], "seeds": None}
            origin["document"] = {key: storable(key, value) for key, value in source.items() if key != "name"}
        origin["settings"] = [*origin["settings"], *texts]
        origin["seeds"] = origin["seeds"] if seeds is None else list(seeds)
        return cls.make(origin | ({"plugins": [*origin.get("plugins", ()), *plugins]} if plugins else {}))

    @classmethod
    def make(cls, origin: Mapping[str, Any]) -> Self:
        """Builds an experiment from ``origin``: its name, TOML text or dictionary, settings and seeds."""
        name, where = origin["name"], f"experiment {origin['name']!r}"
        try:
            document = tomllib.loads(origin["text"]) if "text" in origin else deepcopy(origin["document"])
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{where} is not valid TOML: {error}") from None
        settings: dict[str, Any] = {}
        for text in origin["settings"]:
            key, value = parse_setting(text)
            if key in settings:
                raise InputError(f"--set {key!r} is given twice; keep one, or write a list")
            settings[key] = value
        if origin["seeds"] is not None:
            settings["seeds"] = list(origin["seeds"])
        blocks, tables, references = (take_blocks(document, key, where) for key in ("cells", "tables", "references"))
        about = read_record(About, {f.name: document.pop(f.name) for f in fields(About) if f.name in document}, where)
        shared = flatten(document, where)
        cells = _merge(
            cell
            for number, block in enumerate(blocks or [{}], 1)
            for cell in _expand(shared | flatten(block, f"{where}, cells {number}"), settings)
        )
        shown = list(_served([read_table(t, where) for t in tables], cells, strict=not settings))
        if not all(any(table.shows(cell) for table in shown) for cell in cells):
            shown += _plain_table(cells)
        return cls(
            name=name,
            question=about.question,
            source=about.source,
            notes=tuple(about.notes),
            cells=_tell_apart(cells),
            tables=tuple(shown),
            references=tuple(read_record(Reference, r, f"{where}, references") for r in references),
            origin=origin,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the ``train`` values that differ between cells; each is a column of the results."""
        return tuple(dict.fromkeys(name for cell in self.cells for name, _ in cell.varied))

    @property
    def specs(self) -> list[tuple[Registry, str]]:
        """The specs of all cells, without duplicates, each with its registry."""
        found: dict[tuple[str, str], Registry] = {}
        for cell in self.cells:
            found |= {(key, getattr(cell, key)): registry for key, registry in SPECS.items()}
            found |= {("evaluate", spec): EVALUATIONS for spec in cell.evaluate}
            found |= {("augment", cell.train.augment): AUGMENTS, ("defense", cell.train.defense): DEFENSES}
        return [(registry, spec) for (_, spec), registry in found.items() if spec]

    def value(self, cell: Cell, column: str) -> Any:
        """The value of a cell in one of these columns."""
        return getattr(cell.train, column.removeprefix("train."))


def shipped() -> list[str]:
    """Names of the experiments shipped with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def _expand(written: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[Cell]:
    """Yields a cell for each combination of the lists in a block; ``settings`` override the ``written`` values.

    An encoding in ``settings`` does not apply to models without tokens.
    """
    values = {**written, **settings}
    for key in SPECS:
        if key not in values:
            raise InputError(f"no {key} is given; write {key} = {next(iter(SPECS[key]))!r} in the experiment")
    options = {key: choices(key, values[key]) for key in (*SPECS, *TRAIN) if key in values}
    specs = as_list(values.get("evaluate", "accuracy"))
    evaluate = tuple(EVALUATIONS.canonical(require_text("evaluate", spec)) for spec in specs)
    if not isinstance(values.get("seeds", []), list):
        raise InputError(f"seeds takes a list such as [0, 1, 2], not {values['seeds']!r}")
    seeds = [require_seed("seeds", seed) for seed in values.get("seeds", [0]) or [None]]
    for combination in itertools.product(*options.values()):
        chosen = dict(zip(options, combination, strict=True))
        if "encoding" in settings and "model" not in settings and not _takes_positions(chosen["model"]):
            chosen["encoding"] = choices("encoding", written.get("encoding", "none"))[0]
        recipe = Recipe(**{key.removeprefix("train."): value for key, value in chosen.items() if key in TRAIN})
        for seed in seeds:
            yield Cell(chosen["data"], chosen["model"], chosen["encoding"], seed, recipe, evaluate)


def _takes_positions(model: str) -> bool:
    """Whether a model has tokens and accepts a position encoding."""
    return bool(MODELS.describe(MODELS.parse(model)[0].name).facts.get("takes_encoding", True))


def _merge(cells: Iterable[Cell]) -> list[Cell]:
    """Removes duplicates; a cell has the evaluations of all its duplicates."""
    merged: dict[str, Cell] = {}
    for cell in cells:
        known = merged[cell.folder_name].evaluate if cell.folder_name in merged else ()
        merged[cell.folder_name] = replace(cell, evaluate=tuple(dict.fromkeys((*known, *cell.evaluate))))
    return list(merged.values())


def _tell_apart(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Sets ``varied`` of each cell: the ``train`` values that differ between cells with its data, model and encoding.

    Without it, two trainings of one model would be averaged as if they were two seeds.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    found = {}
    for group in groups.values():
        differ = [f.name for f in fields(Recipe) if len({getattr(cell.train, f.name) for cell in group}) > 1]
        for cell in group:
            varied = tuple((f"train.{name}", getattr(cell.train, name)) for name in differ)
            found[cell.folder_name] = replace(cell, varied=varied)
    return tuple(found[cell.folder_name] for cell in cells)


def _served(tables: Iterable[Table], cells: Sequence[Cell], *, strict: bool) -> Iterator[Table]:
    """Yields the tables, each with the columns whose evaluations its cells have.

    With ``strict`` a column without such a cell is an error; settings may remove the evaluations of a column.
    """
    for table in tables:
        evaluated = {spec for cell in cells if table.shows(cell) for spec in cell.evaluate}
        for column in table.columns:
            if strict and column.evaluation not in evaluated:
                raise InputError(
                    f"table {table.title!r}: none of its cells has the evaluation {column.evaluation}; add it to evaluate"
                )
        if strict and table.against and table.against not in {cell.encoding for cell in cells if table.shows(cell)}:
            raise InputError(
                f"table {table.title!r}: it compares against {table.against!r}, which none of its cells has; "
                "add it to encoding"
            )
        columns = tuple(column for column in table.columns if column.evaluation in evaluated)
        if columns:
            yield replace(table, columns=columns)


def _plain_table(cells: Sequence[Cell]) -> list[Table]:
    """Default table of an experiment: a column for each evaluation that returns an accuracy; empty if none does."""
    specs = dict.fromkeys(spec for cell in cells for spec in cell.evaluate)
    shown = [spec for spec in specs if re.search(r"^accuracy:", _definition(spec), re.MULTILINE)]
    return [Table("Accuracy", tuple(Column(spec, spec) for spec in shown), chart=True)] if shown else []


def _definition(spec: str) -> str:
    return EVALUATIONS.describe(EVALUATIONS.parse(spec)[0].name).definition
