"""Reads an experiment from a TOML file: cells (trainings) to run and tables to print.

Top-level keys apply to every cell, and each ``[[cells]]`` block overrides some of them. A list in ``data``, ``model``,
``encoding`` or a ``train`` value gives one cell for each of its items. This module does not import torch.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.files import os_reason
from vitpos.lab.cells import Cell
from vitpos.lab.settings import (
    SPECS,
    TRAIN,
    as_list,
    flatten,
    parse_setting,
    parse_values,
    read_record,
    read_table,
    require_distinct,
    require_seed,
    require_text,
    setting_texts,
    storable,
    take_blocks,
)
from vitpos.lab.tables import Column, PublishedNumber, Table
from vitpos.models import MODELS
from vitpos.printable import sanitize
from vitpos.registry import Registry, suggest
from vitpos.registry.plugins import load_plugin
from vitpos.regular_files import read_regular
from vitpos.training import AUGMENTATIONS, DEFENSES
from vitpos.training.recipe import Recipe

MAX_BYTES, MAX_CELLS = 1 << 20, 100_000  # size of an experiment file, number of cells
SHIPPED = Path(__file__).parents[1] / "experiments"


@dataclass(frozen=True)
class About:
    """The keys of an experiment file that describe it: question, source of published numbers, notes."""

    question: str = ""
    published_source: str = ""  # source of the published numbers
    notes: tuple[str, ...] = ()  # paragraphs printed with the results


@dataclass(frozen=True)
class Experiment:
    """An experiment: its question, its cells (trainings) and the tables of its results."""

    name: str
    cells: tuple[Cell, ...]
    tables: tuple[Table, ...]
    published: tuple[PublishedNumber, ...] = ()
    question: str = ""
    published_source: str = ""  # source of the published numbers
    notes: tuple[str, ...] = ()  # paragraphs printed with the results
    definition: Mapping[str, Any] = field(default_factory=dict, compare=False)  # what it is made from

    @classmethod
    def load(
        cls,
        source: Experiment | str | Mapping[str, Any],
        settings: Iterable[str] | Mapping[str, Any] = (),
        seeds: Sequence[int] | None = None,
        plugins: Sequence[str] = (),
    ) -> Experiment:
        """Reads an experiment and returns it, with settings that override its values.

        Args:
            source: Name of a shipped experiment, path of a TOML file, its content as a dictionary, or an experiment.
            settings: Texts such as ``"train.lr=0.1"``, or values by key, which may be classes.
            seeds: Replace the seeds of the source.
            plugins: Python files or modules that are imported first.
        """
        if not isinstance(source, Experiment | str | Mapping):
            remedy = "give a name such as 'quick', the path of a TOML file as text, or a dictionary"
            raise InputError(f"there is no experiment of type {type(source).__name__}; {remedy}")
        if seeds is not None and (isinstance(seeds, str) or not isinstance(seeds, Iterable)):
            raise InputError(f"seeds takes a list such as [0, 1, 2], not {seeds!r}")
        for name in plugins:
            load_plugin(name)
        require_distinct([settings, source])
        texts = setting_texts(settings) if isinstance(settings, Mapping) else list(settings)
        if isinstance(source, Experiment):
            if not texts and seeds is None and not plugins:
                return source
            definition = dict(source.definition)
        elif isinstance(source, str):
            path = SHIPPED / f"{source}.toml" if source in shipped() else Path(source)
            definition = {"name": path.stem, "name_given": source, "text": _read(path, source)}
        else:
            document = {key: storable(key, value) for key, value in source.items() if key != "name"}
            definition = {"name": source.get("name", "experiment"), "document": document}
        definition["settings"] = [*definition.get("settings", ()), *texts]
        definition["seeds"] = definition.get("seeds") if seeds is None else list(seeds)
        if plugins:
            definition["plugins"] = [*definition.get("plugins", ()), *plugins]
        return cls.from_definition(definition)

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Experiment:
        """Builds an experiment from the values that ``experiment.json`` stores.

        Args:
            definition: what the experiment is made from: ``name``; ``text`` (TOML) or ``document`` (a dictionary);
                ``settings``, a list of texts such as ``train.lr=0.1``; ``seeds``, a list, or None for those of the text.
        """
        where = f"experiment {definition['name']!r}"
        try:
            document = tomllib.loads(definition["text"]) if "text" in definition else deepcopy(definition["document"])
        except (ValueError, RecursionError) as error:  # TOMLDecodeError; too many digits or levels
            raise InputError(f"{where} is not valid TOML: {sanitize(error, limit=160)}") from None
        settings: dict[str, Any] = {}
        for text in definition["settings"]:
            key, value = parse_setting(text)
            if key in settings:
                raise InputError(f"--set {key!r} is given twice; keep one, or write a list")
            settings[key] = value
        if definition["seeds"] is not None:
            settings["seeds"] = list(definition["seeds"])
        blocks, tables, published = (take_blocks(document, k, where) for k in ("cells", "tables", "published"))
        about = {f.name: document.pop(f.name) for f in fields(About) if f.name in document}
        shared = flatten(document, where)
        flat = [flatten(block, f"{where}, cells {number}") for number, block in enumerate(blocks or [{}], 1)]
        cells = _merge(cell for block in _kept(flat, settings) for cell in _expand(shared | block, settings))
        shown = list(_available([read_table(t, where) for t in tables], cells, strict=not settings))
        if not all(any(table.shows(cell) for table in shown) for cell in cells):
            shown += _default_table(cells)
        return cls(
            name=definition["name"],
            cells=_mark_varied(cells),
            tables=tuple(shown),
            published=tuple(read_record(PublishedNumber, number, f"{where}, published") for number in published),
            definition=definition,
            **vars(read_record(About, about, where)),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the training options that differ between trainings, such as ``train.lr``; columns of ``results.csv``."""
        return tuple(dict.fromkeys(name for cell in self.cells for name, _ in cell.varied))

    @property
    def specs(self) -> list[tuple[Registry, str]]:
        """Pairs (registry, spec) of everything the experiment names: data, models, encodings, evaluations and so on.

        A spec is a text such as ``rope(base=10)``; its registry maps the name ``rope`` to a class. There are no duplicates.
        """
        found: dict[tuple[str, str], Registry] = {}
        for cell in self.cells:
            found |= {(key, getattr(cell, key)): registry for key, registry in SPECS.items()}
            found |= {("evaluations", spec): EVALUATIONS for spec in cell.evaluations}
            found |= {("augment", cell.train.augment): AUGMENTATIONS, ("defense", cell.train.defense): DEFENSES}
        return [(registry, spec) for (_, spec), registry in found.items() if spec]


def shipped() -> list[str]:
    """Returns the names of the experiments shipped with the package, such as ``quick``."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def _read(path: Path, name: str) -> str:
    """Returns the text of an experiment file; ``name`` is what the user typed, for error messages."""
    if not path.is_file():
        raise InputError(f"no experiment {name!r}; {suggest(name, shipped())} (or give the path of a TOML file)")
    try:
        return read_regular(path, max_bytes=MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read experiment {name!r}: {os_reason(error)}; give a TOML file") from None


def _kept(blocks: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Returns the ``[[cells]]`` blocks of an experiment file that are run with given ``settings`` (values of ``--set``).

    These are all blocks, unless the settings replace the encoding and not the model. Then blocks that name one model and
    one encoding are left out: their model is made for their encoding, such as cosine attention for ``cpb``. Blocks of
    models without tokens are kept. If no block would remain, all are run.
    """
    if "encoding" not in settings or "model" in settings:
        return blocks
    return [block for block in blocks if not _is_pair(block)] or blocks


def _is_pair(block: Mapping[str, Any]) -> bool:
    model, encoding = block.get("model"), block.get("encoding")
    return isinstance(model, str) and isinstance(encoding, str) and _takes_positions(model)


def _expand(written: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[Cell]:
    """Yields a cell (one training) for each combination of the lists in a ``[[cells]]`` block, and each seed.

    Args:
        written: values of the block.
        settings: values of ``--set``, which override those of the block; an encoding is ignored for models without tokens.
    """
    values = {**written, **settings}
    for key in SPECS:
        if key not in values:
            raise InputError(f"no {key} is given; write {key} = {next(iter(SPECS[key]))!r} in the experiment")
    options = {key: parse_values(key, values[key]) for key in (*SPECS, *TRAIN) if key in values}
    specs = as_list(values.get("evaluations", "accuracy"))
    evaluations = tuple(EVALUATIONS.canonical(require_text("evaluations", spec)) for spec in specs)
    if not isinstance(values.get("seeds", []), list):
        raise InputError(f"seeds takes a list such as [0, 1, 2], not {values['seeds']!r}")
    seeds = [require_seed("seeds", seed) for seed in values.get("seeds", [0]) or [None]]
    if math.prod(map(len, (*options.values(), seeds))) > MAX_CELLS:
        raise InputError(f"the lists of an experiment give more than {MAX_CELLS:,} cells; shorten them")
    for combination in itertools.product(*options.values()):
        chosen = dict(zip(options, combination, strict=True))
        if "encoding" in settings and "model" not in settings and not _takes_positions(chosen["model"]):
            chosen["encoding"] = parse_values("encoding", written.get("encoding", "none"))[0]
        recipe = Recipe(**{key.removeprefix("train."): value for key, value in chosen.items() if key in TRAIN})
        for seed in seeds:
            yield Cell(chosen["data"], chosen["model"], chosen["encoding"], seed, recipe, evaluations)


def _takes_positions(model: str) -> bool:
    """Whether a model, such as ``vit(depth=6)``, has tokens and accepts a position encoding; false for ``cnn``."""
    return bool(MODELS.describe(MODELS.parse(model)[0].name).attributes.get("takes_encoding", True))


def _merge(cells: Iterable[Cell]) -> list[Cell]:
    """Merges cells (trainings) that differ only in their evaluations into one cell with all these evaluations."""
    merged: dict[str, Cell] = {}
    for cell in cells:
        known = merged[cell.folder_name].evaluations if cell.folder_name in merged else ()
        merged[cell.folder_name] = replace(cell, evaluations=tuple(dict.fromkeys((*known, *cell.evaluations))))
    return list(merged.values())


def _mark_varied(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Returns the cells (trainings), each with its field ``varied`` set: pairs (name, value) of training options.

    These are the options, such as ``train.lr``, that differ between cells with the same data, model and encoding.
    Without ``varied``, two cells with different options would be averaged as if they were two seeds.
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


def _available(tables: Iterable[Table], cells: Sequence[Cell], *, strict: bool) -> Iterator[Table]:
    """Yields each table without the columns whose evaluation none of its trainings has; skips it if no column is left.

    Args:
        cells: all trainings of the experiment, with their evaluations.
        strict: whether to raise an InputError if a column would be removed, or if no row of the table has its baseline
            encoding. False if the user changed settings.
    """
    for table in tables:
        rows = [cell for cell in cells if table.shows(cell)]
        evaluated = {spec for cell in rows for spec in cell.evaluations}
        missing = [column.evaluation for column in table.columns if column.evaluation not in evaluated]
        if strict and missing:
            raise InputError(
                f"table {table.title!r}: none of its cells has the evaluation {missing[0]}; add it to evaluations"
            )
        if strict and table.baseline and table.baseline not in {cell.encoding for cell in rows}:
            raise InputError(
                f"table {table.title!r}: none of its cells has the baseline {table.baseline!r}; add it to encoding"
            )
        columns = tuple(column for column in table.columns if column.evaluation in evaluated)
        if columns:
            yield replace(table, columns=columns)


def _default_table(cells: Sequence[Cell]) -> list[Table]:
    """Returns a list with one table, which has a column for each evaluation of the cells that returns an ``accuracy``.

    Returns an empty list if there is no such evaluation.
    """
    specs = dict.fromkeys(spec for cell in cells for spec in cell.evaluations)
    shown = [spec for spec in specs if re.search(r"^accuracy:", _definition(spec), re.MULTILINE)]
    return [Table("Accuracy", tuple(Column(spec, spec) for spec in shown), bar_chart=True)] if shown else []


def _definition(spec: str) -> str:
    return EVALUATIONS.describe(EVALUATIONS.parse(spec)[0].name).definition
