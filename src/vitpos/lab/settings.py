"""Validates the keys and values of experiment files and of ``--set``, and converts specs to canonical form.

A spec is a text such as ``rope(base=10)``.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, get_type_hints

from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.lab.tables import Column, Table
from vitpos.models import MODELS
from vitpos.registry import Registry, matches_type, suggest
from vitpos.registry.option_types import normalize_value, type_text
from vitpos.training import AUGMENTATIONS, DEFENSES
from vitpos.training.recipe import Recipe

SPECS: dict[str, Registry] = {"data": DATASETS, "model": MODELS, "encoding": ENCODINGS}
OTHERS: dict[str, Registry] = {"evaluations": EVALUATIONS, "train.augment": AUGMENTATIONS, "train.defense": DEFENSES}
TRAIN = {f"train.{name}": kind for name, kind in get_type_hints(Recipe).items()}
KEYS = (*SPECS, "evaluations", "seeds", *TRAIN)  # keys allowed in --set and in [[cells]]


def parse_setting(text: str) -> tuple[str, Any]:
    """Splits ``train.lr=0.1`` into key and value; the value is parsed as TOML, or kept as a string if that fails."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise InputError(f"--set {text!r} has no value; write --set key=value, as in --set train.epochs=1")
    if key not in KEYS:
        raise InputError(f"--set {key!r}: there is no such key; {suggest(key, KEYS)}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # TOMLDecodeError, or an integer of thousands of digits
        if value.startswith("["):
            example = f'{key}=["none", "learned"]' if key == "encoding" else f'{key}=["…", "…"]'
            raise InputError(f"--set {text!r} is not a list; put its items in quotes, as --set '{example}'") from None
        return key, value


def setting_texts(settings: Mapping[str, Any]) -> list[str]:
    """Converts settings given in Python, such as ``{"train": {"lr": 0.1}}``, to texts such as ``train.lr=0.1``."""
    flat = flatten(settings, "run()")
    return [f"{key}={json.dumps(storable(key, value))}" for key, value in flat.items()]


def storable(key: str, value: Any) -> Any:
    """Converts the value of setting ``key``, such as ``encoding``, to one that JSON can store.

    A class or function becomes its registered name or a text such as ``mine.py:Class``, a path its text.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: storable(f"{key}.{name}" if key == "train" else name, one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [storable(key, one) for one in value]
    registry = (SPECS | OTHERS).get(key)
    return registry.spec_of(value) if registry and not isinstance(value, str | int | float) else value


def require_distinct(values: Any) -> None:
    """Raises an InputError if two different classes or functions in nested settings have the same spec (text form).

    This happens if they have the same name, as two versions of a class in a notebook. A run stores only specs, and would
    train only one of the two.
    """
    found = [(registry, registry.spec_of(thing), thing) for registry, thing in _objects("", values)]
    for registry, spec, thing in found:
        if registry.load(registry.parse(spec)[0].name) is not (thing.func if isinstance(thing, partial) else thing):
            raise InputError(f"two different objects have the {registry.kind} spec {spec!r}; give one another name")


def _objects(key: str, value: Any) -> Iterator[tuple[Registry, Any]]:
    """Yields (registry, object) for each value of nested settings that is a class, a function or an instance.

    Texts and numbers are skipped. A registry maps names to the classes of one kind, such as encodings.

    Args:
        key: name of the setting, such as ``encoding``, which determines the registry; empty for the whole settings.
        value: value of the setting, which may be a dictionary or a list.
    """
    registry = (SPECS | OTHERS).get(key)
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _objects(f"{key}.{name}" if key == "train" else name, one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _objects(key, one)
    elif registry and not isinstance(value, str | int | float):
        yield registry, value


def take_blocks(document: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """Removes the ``[[key]]`` tables from a parsed TOML document and returns them as a list of dictionaries.

    Args:
        key: name of the tables, such as ``cells``.
        where: what the document is, for error messages.
    """
    blocks = document.pop(key, [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise InputError(f"{where}: {key!r} is not a list of tables; write [[{key}]] above each one")
    return blocks


def flatten(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Flattens nested TOML tables into one dictionary with keys such as ``train.lr``.

    Raises an InputError for unknown keys.

    Args:
        document: the parsed TOML.
        where: what the document is, for error messages.
    """
    flat: dict[str, Any] = {}
    for key, value in document.items():
        flat |= {f"{key}.{name}": v for name, v in value.items()} if isinstance(value, dict) else {key: value}
    for key in flat:
        if key not in KEYS:
            raise InputError(f"{where}: there is no key {key!r}; {suggest(key, KEYS)}")
    return flat


def parse_values(key: str, value: Any) -> list[Any]:
    """Checks the value of setting ``key``, or a list of them, and returns a list of values in canonical form.

    For example ``["rope(base=10.0)"]`` for the encoding ``"rope( base=10 )"``.
    """
    if not as_list(value):
        raise InputError(f"{key} is an empty list; give it a value or leave it out")
    if key in SPECS:
        return [SPECS[key].canonical(require_text(key, spec)) for spec in as_list(value)]
    for item in as_list(value):
        if not matches_type(TRAIN[key], item):
            raise InputError(f"{key} takes {type_text(TRAIN[key])}, not {item!r}")
    return [float(item) if TRAIN[key] is float else item for item in as_list(value)]


def as_list(value: Any) -> list[Any]:
    """Converts a list or tuple to a list, and any other value to a list with one item."""
    return list(value) if isinstance(value, list | tuple) else [value]


def require_text(key: str, value: Any) -> str:
    """Returns ``value`` if it is a string, as settings such as ``encoding`` must be; otherwise raises an InputError."""
    if not isinstance(value, str):
        raise InputError(f"{key} takes text such as {next(iter(SPECS.get(key, EVALUATIONS)))!r}, not {value!r}")
    return value


def require_seed(key: str, value: Any) -> int:
    """Returns ``value`` if it is a valid seed, an integer from 0 to 2³¹ − 1; otherwise raises an InputError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise InputError(f"{key} takes whole numbers from 0 to 2³¹ − 1, not {value!r}")
    return value


def read_table(document: Mapping[str, Any], where: str) -> Table:
    """Builds a Table from a ``[[tables]]`` block of an experiment file; ``where`` names the file in error messages."""
    columns = document.get("columns", [])
    where = f"{where}, table {document.get('title', '')!r}"
    if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
        raise InputError(
            f"{where}: columns is not a list of tables such as {{ label = 'normal', evaluation = 'accuracy' }}"
        )
    rows: dict[str, Any] = {key: tuple(parse_values(key, document[key])) for key in SPECS if key in document}
    made = tuple(read_record(Column, column, where) for column in columns)
    if "baseline" in document:
        rows["baseline"] = ENCODINGS.canonical(require_text("encoding", document["baseline"]))
    return read_record(Table, {**document, "columns": made, **rows}, where)


def read_record(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Builds a dataclass from a table of an experiment file, with specs such as ``rope(base=10)`` in canonical form.

    Args:
        kind: the class: Column, Table, PublishedNumber or About.
        values: the keys and values of the TOML table.
        where: what is read, for error messages.
    """
    types = get_type_hints(kind)
    values_read = {}
    for key, value in values.items():
        if key not in types:
            raise InputError(f"{where}: there is no key {key!r}; {suggest(key, types)}")
        is_built = key == "columns" or (kind is Table and key in SPECS)
        if not is_built and not matches_type(types[key], value):
            raise InputError(f"{where}: {key} takes {type_text(types[key])}, not {value!r}")
        catalog = (SPECS | {"evaluation": EVALUATIONS}).get(key)
        values_read[key] = (
            catalog.canonical(value) if catalog and isinstance(value, str) else normalize_value(types[key], value)
        )
    for f in fields(kind):
        if f.name not in values_read and f.default is MISSING:
            raise InputError(f"{where}: {f.name} is missing; write {f.name} = …")
    return kind(**values_read)
