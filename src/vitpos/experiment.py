"""An experiment: a TOML file that becomes cells to run and tables to print.

Top-level keys are what every cell shares; each ``[[cells]]`` block overrides some of them, and a list in ``data``,
``model``, ``encoding`` or a ``train`` value becomes one cell for each of its members. Nothing here needs torch.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, get_type_hints

from vitpos.cells import Cell, Column, Reference, Table
from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.errors import UserError
from vitpos.models import MODELS
from vitpos.option_types import type_text
from vitpos.plugins import load as load_plugin
from vitpos.questions import QUESTIONS
from vitpos.registry import Registry, accepts, suggest
from vitpos.training import AUGMENTS, DEFENCES
from vitpos.training.recipe import Recipe

SHIPPED = Path(__file__).with_name("experiments")
SPECS: dict[str, Registry] = {"data": DATASETS, "model": MODELS, "encoding": ENCODINGS}
OTHERS: dict[str, Registry] = {"evaluate": QUESTIONS, "train.augment": AUGMENTS, "train.defence": DEFENCES}
TRAIN = {f"train.{name}": kind for name, kind in get_type_hints(Recipe).items()}
KEYS = (*SPECS, "evaluate", "seeds", *TRAIN)  # what --set and a block of cells may set


@dataclass(frozen=True)
class About:
    """What an experiment says of itself."""

    question: str = ""
    source: str = ""  # where the references come from
    notes: tuple[str, ...] = ()  # what a reader of the results must know


@dataclass(frozen=True)
class Experiment:
    """A question, the cells that answer it, and the tables that show the answer."""

    name: str
    question: str
    cells: tuple[Cell, ...]
    tables: tuple[Table, ...]
    references: tuple[Reference, ...] = ()
    source: str = ""  # where the references come from
    notes: tuple[str, ...] = ()  # what a reader of the results must know
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)  # name, text, settings: to make it again

    @classmethod
    def read(
        cls,
        name: str,
        settings: Iterable[str] = (),
        seeds: Sequence[int] | None = None,
        plugins: Sequence[str] = (),
    ) -> Self:
        """The experiment of a shipped name or a TOML file, with ``"a.b=value"`` settings, other seeds and plug-ins."""
        path = SHIPPED / f"{name}.toml"
        if name not in shipped():
            path = Path(name)
            if not path.is_file():
                raise UserError(f"no experiment {name!r}; {suggest(name, shipped())} (or give the path of a TOML file)")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read experiment {name!r}: {error}") from None
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
        """The experiment of a name, a TOML file or a dictionary, with settings whose values may be classes."""
        for name in plugins:
            load_plugin(name)
        flat = _flat(settings, "run()")
        texts = [f"{key}={json.dumps(_stored(key, value))}" for key, value in flat.items()]
        if isinstance(source, str):
            return cls.read(source, texts, seeds, plugins)
        if isinstance(source, Experiment):
            if not texts and seeds is None and not plugins:
                return source
            origin = dict(source.origin)
        else:
            origin = {"name": source.get("name", "experiment"), "settings": [], "seeds": None}
            origin["document"] = {key: _stored(key, value) for key, value in source.items() if key != "name"}
        origin["settings"] = [*origin["settings"], *texts]
        origin["seeds"] = origin["seeds"] if seeds is None else list(seeds)
        return cls.make(origin | ({"plugins": [*origin.get("plugins", ()), *plugins]} if plugins else {}))

    @classmethod
    def make(cls, origin: Mapping[str, Any]) -> Self:
        """The experiment of a TOML text with settings, as ``origin`` keeps them."""
        name, where = origin["name"], f"experiment {origin['name']!r}"
        try:
            document = tomllib.loads(origin["text"]) if "text" in origin else deepcopy(origin["document"])
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{where} is not valid TOML: {error}") from None
        settings: dict[str, Any] = {}
        for text in origin["settings"]:
            key, value = _setting(text)
            if key in settings:
                raise UserError(f"--set {key!r} is given twice; keep one, or write a list")
            settings[key] = value
        if origin["seeds"] is not None:
            settings["seeds"] = list(origin["seeds"])
        blocks, tables, references = (_blocks(document, key, where) for key in ("cells", "tables", "references"))
        about = _record(About, {f.name: document.pop(f.name) for f in fields(About) if f.name in document}, where)
        shared = _flat(document, where)
        cells = _merge(
            cell
            for number, block in enumerate(blocks or [{}], 1)
            for cell in _expand(shared | _flat(block, f"{where}, cells {number}"), settings)
        )
        shown = list(_served([_table(t, where) for t in tables], cells, strict=not settings))
        if not all(any(table.shows(cell) for table in shown) for cell in cells):
            shown += _plain_table(cells)
        return cls(
            name=name,
            question=about.question,
            source=about.source,
            notes=tuple(about.notes),
            cells=_tell_apart(cells),
            tables=tuple(shown),
            references=tuple(_record(Reference, r, f"{where}, references") for r in references),
            origin=origin,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The ``train`` values that tell cells apart, which become columns of the results."""
        return tuple(dict.fromkeys(name for cell in self.cells for name, _ in cell.swept))

    @property
    def specs(self) -> list[tuple[Registry, str]]:
        """All specs of its cells, each once, with their registries."""
        found: dict[tuple[str, str], Registry] = {}
        for cell in self.cells:
            found |= {(key, getattr(cell, key)): registry for key, registry in SPECS.items()}
            found |= {("evaluate", spec): QUESTIONS for spec in cell.evaluate}
            found |= {("augment", cell.train.augment): AUGMENTS, ("defence", cell.train.defence): DEFENCES}
        return [(registry, spec) for (_, spec), registry in found.items() if spec]

    def value(self, cell: Cell, column: str) -> Any:
        """What a cell has in one of these columns."""
        return getattr(cell.train, column.removeprefix("train."))


def shipped() -> list[str]:
    """The names of the experiments inside the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def _setting(text: str) -> tuple[str, Any]:
    """``"train.lr=0.1"`` as key and value: a TOML value, or the bare text."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise UserError(f"--set {text!r} has no value; write --set key=value, as in --set train.epochs=1")
    if key not in KEYS:
        raise UserError(f"--set {key!r}: there is no such key; {suggest(key, KEYS)}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        if value.startswith("["):
            example = f'{key}=["none", "learned"]' if key == "encoding" else f'{key}=["…", "…"]'
            raise UserError(f"--set {text!r} is not a list; put its items in quotes, as --set '{example}'") from None
        return key, value


def _stored(key: str, value: Any) -> Any:
    """A value of a Python document as one that can be stored: classes and functions become specs."""
    if isinstance(value, Mapping):
        return {name: _stored(f"{key}.{name}" if key == "train" else name, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(key, one) for one in value]
    registry = (SPECS | OTHERS).get(key)
    return registry.spec_of(value) if registry and not isinstance(value, str | int | float | None) else value


def _blocks(document: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """The ``[[key]]`` tables of a document, taken out of it."""
    blocks = document.pop(key, [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UserError(f"{where}: {key!r} is not a list of tables; write [[{key}]] above each one")
    return blocks


def _flat(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The document with ``train`` laid out as ``train.lr`` and so on, all keys known."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        flat |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, dict) else {key: value}
    for key in flat:
        if key not in KEYS:
            raise UserError(f"{where}: there is no key {key!r}; {suggest(key, KEYS)}")
    return flat


def _expand(written: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[Cell]:
    """One cell for each combination of the lists in a block; settings go first, but give no model what it cannot take."""
    values = {**written, **settings}
    for key in SPECS:
        if key not in values:
            raise UserError(f"no {key} is given; write {key} = {next(iter(SPECS[key]))!r} in the experiment")
    choices = {key: _choices(key, values[key]) for key in (*SPECS, *TRAIN) if key in values}
    specs = _several(values.get("evaluate", "accuracy"))
    evaluate = tuple(QUESTIONS.canonical(_text("evaluate", spec)) for spec in specs)
    if not isinstance(values.get("seeds", []), list):
        raise UserError(f"seeds takes a list such as [0, 1, 2], not {values['seeds']!r}")
    seeds = [_whole("seeds", seed) for seed in values.get("seeds", [0]) or [None]]
    for combination in itertools.product(*choices.values()):
        chosen = dict(zip(choices, combination, strict=True))
        if "encoding" in settings and "model" not in settings and not _takes_positions(chosen["model"]):
            chosen["encoding"] = _choices("encoding", written.get("encoding", "none"))[0]
        recipe = Recipe(**{key.removeprefix("train."): value for key, value in chosen.items() if key in TRAIN})
        for seed in seeds:
            yield Cell(chosen["data"], chosen["model"], chosen["encoding"], seed, recipe, evaluate)


def _takes_positions(model: str) -> bool:
    """Whether a model has tokens that an encoding could tell places of."""
    return bool(MODELS.describe(MODELS.parse(model)[0].name).facts.get("tokens", True))


def _merge(cells: Iterable[Cell]) -> list[Cell]:
    """Each cell once, asked whatever any of its mentions asks."""
    merged: dict[str, Cell] = {}
    for cell in cells:
        asked = merged[cell.key].evaluate if cell.key in merged else ()
        merged[cell.key] = replace(cell, evaluate=tuple(dict.fromkeys((*asked, *cell.evaluate))))
    return list(merged.values())


def _tell_apart(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells, each with the ``train`` values that differ between cells of its data, model and encoding.

    Without this, two trainings of one model would be averaged as if they were two seeds.
    """
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.row, []).append(cell)
    told = {}
    for group in groups.values():
        differ = [f.name for f in fields(Recipe) if len({getattr(cell.train, f.name) for cell in group}) > 1]
        for cell in group:
            swept = tuple((f"train.{name}", getattr(cell.train, name)) for name in differ)
            told[cell.key] = replace(cell, swept=swept)
    return tuple(told[cell.key] for cell in cells)


def _choices(key: str, value: Any) -> list[Any]:
    """The members of a value that may be a list, each checked and in our spelling."""
    if not _several(value):
        raise UserError(f"{key} is an empty list; give it a value or leave it out")
    if key in SPECS:
        return [SPECS[key].canonical(_text(key, spec)) for spec in _several(value)]
    for item in _several(value):
        if not accepts(TRAIN[key], item):
            raise UserError(f"{key} takes {type_text(TRAIN[key])}, not {item!r}")
    return [float(item) if TRAIN[key] is float else item for item in _several(value)]


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UserError(f"{key} takes text such as {next(iter(SPECS.get(key, QUESTIONS)))!r}, not {value!r}")
    return value


def _whole(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise UserError(f"{key} takes whole numbers from 0 to 2³¹ − 1, not {value!r}")
    return value


def _table(document: Mapping[str, Any], where: str) -> Table:
    columns = document.get("columns", [])
    where = f"{where}, table {document.get('title', '')!r}"
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise UserError(
            f"{where}: columns is not a list of tables such as {{ label = 'normal', evaluation = 'accuracy' }}"
        )
    rows: dict[str, Any] = {key: tuple(_choices(key, document[key])) for key in SPECS if key in document}
    made = tuple(_record(Column, column, where) for column in columns)
    if "against" in document:
        rows["against"] = ENCODINGS.canonical(_text("encoding", document["against"]))
    return _record(Table, {**document, "columns": made, **rows}, where)


def _record(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A Column, Table, Reference or About of a TOML table; specs in our spelling, so that they can be compared."""
    types = get_type_hints(kind)
    spelt = {}
    for key, value in values.items():
        if key not in types:
            raise UserError(f"{where}: there is no key {key!r}; {suggest(key, types)}")
        made = key == "columns" or (kind is Table and key in SPECS)
        if not made and not accepts(types[key], value):
            raise UserError(f"{where}: {key} takes {type_text(types[key])}, not {value!r}")
        registry = (SPECS | {"evaluation": QUESTIONS}).get(key)
        spelt[key] = registry.canonical(value) if registry and isinstance(value, str) else value
    for f in fields(kind):
        if f.name not in spelt and f.default is MISSING:
            raise UserError(f"{where}: {f.name} is missing; write {f.name} = …")
    return kind(**spelt)


def _served(tables: Iterable[Table], cells: Sequence[Cell], *, strict: bool) -> Iterator[Table]:
    """The tables, each with the columns that its cells are asked for.

    In the file itself a column that nobody serves is a mistake; a setting may leave some out.
    """
    for table in tables:
        asked = {spec for cell in cells if table.shows(cell) for spec in cell.evaluate}
        for column in table.columns:
            if strict and column.evaluation not in asked:
                raise UserError(
                    f"table {table.title!r}: none of its cells is asked {column.evaluation}; add it to evaluate"
                )
        if strict and table.against and table.against not in {cell.encoding for cell in cells if table.shows(cell)}:
            raise UserError(
                f"table {table.title!r}: it compares against {table.against!r}, which none of its cells has; "
                "add it to encoding"
            )
        columns = tuple(column for column in table.columns if column.evaluation in asked)
        if columns:
            yield replace(table, columns=columns)


def _plain_table(cells: Sequence[Cell]) -> list[Table]:
    """For an experiment that names no table: accuracy in every protocol that gives one, if any does."""
    specs = dict.fromkeys(spec for cell in cells for spec in cell.evaluate)
    shown = [spec for spec in specs if re.search(r"^accuracy:", _definition(spec), re.MULTILINE)]
    return [Table("Accuracy", tuple(Column(spec, spec) for spec in shown), chart=True)] if shown else []


def _definition(spec: str) -> str:
    return QUESTIONS.describe(QUESTIONS.parse(spec)[0].name).definition
