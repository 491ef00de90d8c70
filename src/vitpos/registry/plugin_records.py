"""Stores which plug-ins (Python files from outside the package) a run used, so that later commands import the same code.

``plugins.json`` in a run folder has an object for each plug-in: its file, the SHA-256 of its content, and descriptions of
its classes that the run used, so that a report can be written even if the file is gone. Of a script that calls
``vitpos.run``, only the classes that the run uses, and what they need, are hashed: the rest of it may be edited. Code
inside a run folder is imported only if this process or its parent wrote it, or if it is given by ``--plugin``: a folder may
be untrusted.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitpos.errors import InputError
from vitpos.files import atomic_write, explain_damage
from vitpos.printable import sanitize
from vitpos.registry import plugins
from vitpos.registry.class_source import definitions, standalone_source
from vitpos.registry.descriptions import Description, Option
from vitpos.registry.option_types import UnknownType, read_type
from vitpos.registry.plugins import LOADED, REGISTERED, UNAVAILABLE, UNAVAILABLE_NAMES, Plugin, PluginWarning, load_file
from vitpos.registry.specs import SpecSyntaxError, reference, split_terms
from vitpos.regular_files import read_regular

RECORDS = "plugins.json"
RESTORE = "restore it, or run again in another folder"
_refused: set[str] = set()  # names that were not imported because their folder was not trusted
TRUSTED = "VITPOS_TRUSTED_PLUGINS"  # hashes of in-folder sources that this process or its parent wrote
Descriptions = Mapping[tuple[str, str], Description]  # by kind and name


def reference_to(thing: Any) -> str:
    """Returns a reference to a class or function that can stand in a spec, such as ``mine.py:Class``."""
    plugin = _plugin_of(thing)
    return f"{plugin.name}:{thing.__name__ if plugin.path is None else thing.__qualname__}"


def _plugin_of(thing: Any) -> Plugin:
    """Returns the `Plugin` record of the file that defines a class or function, creating the record if there is none.

    For a class without a file, as in a notebook, the record holds the source of that class with its imports and helpers.
    """
    module = sys.modules.get(thing.__module__)
    path = Path(plugins.identity(thing)[0])
    if path.suffix == ".py" and "<" not in thing.__qualname__:
        known = plugins.find_loaded(path)
        if known is None:
            inside = path.is_relative_to(Path.cwd())
            name = str(path.relative_to(Path.cwd()) if inside else path)
            known = LOADED.setdefault(name, Plugin(name, path, path.read_bytes(), module=module))
        return known
    source = standalone_source(thing)
    if source is None:
        warnings.warn(
            f"{thing.__qualname__} has no source that could be stored; this run cannot be resumed by another process",
            PluginWarning,
            3,
        )
    name = f"{thing.__name__}.py"
    LOADED[name] = Plugin(name, None, None if source is None else source.encode(), {thing.__name__: thing})
    return LOADED[name]


def plugins_in(specs: Iterable[str], given: Iterable[str] = ()) -> list[Plugin]:
    """Returns the plug-ins (imported Python files or modules outside vitpos) that an experiment depends on.

    Args:
        specs: texts such as ``rope(base=10)`` or ``mine.py:Class``; each names a plug-in, or a class that a plug-in or
            vitpos registered.
        given: names of further plug-ins, from ``--plugin``.
    """
    names = {name for spec in specs for name in _names(spec)} | set(given)
    for (_, name), thing in REGISTERED.items():
        if name in names:
            names.add(_plugin_of(thing).name)
    return [plugin for plugin in LOADED.values() if plugin.name in names]


def _names(spec: str) -> Iterator[str]:
    """Yields the names in a spec: ``learned`` and ``rope`` for ``learned + rope(base=10)``; the file for ``file.py:Class``.

    Texts in option values are read as specs too: ``ood(dataset='mnist')`` yields ``ood`` and ``mnist``.
    """
    try:
        terms = split_terms(spec)
    except SpecSyntaxError:  # an option whose text is not a spec
        return
    for name, keywords in terms:
        yield (reference(name) or (name,))[0]
        for node in (node for keyword in keywords for node in ast.walk(keyword.value)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from _names(node.value)


def workers_can_import(specs: Iterable[str]) -> bool:
    """Returns whether the source of all plug-in classes in the specs is known, so that worker processes can import them.

    False for example for a class typed into an interactive Python session.
    """
    return all(plugin.source is not None for plugin in plugins_in(specs))


def save_plugins(folder: Path, found: Iterable[Plugin], descriptions: Descriptions, *, began: bool = True) -> None:
    """Writes plug-ins to ``plugins.json`` of a run folder; raises an InputError if one has changed since the run began.

    Args:
        found: the plug-ins that the run uses.
        descriptions: (kind, name) → description of each class that the run uses, such as ``("encoding", "mine")``.
        began: whether anything was trained in the folder; if not, older records are discarded.
    """
    records = read_records(folder) if began else {}
    for plugin in found:
        before = records.get(plugin.name)
        if before and _digest(plugin, before.get("definitions", ())) != before["sha256"]:
            remedy = "restore it, delete the folder to train again, or use another folder"
            raise InputError(f"plug-in {plugin.name} has changed since {folder} was run with it; {remedy}")
        here = Path(plugin.name)
        if plugin.path and here.is_file() and here.read_bytes() != plugin.source:
            raise InputError(f"{folder} was run with {plugin.path}, not with {here.resolve()}; use another folder")
        path = str(plugin.path) if plugin.path else ""
        if before and before["path"] and (folder / before["path"]).exists():
            path = before["path"]
        if plugin.path is None and plugin.source is not None:
            path = f"plugins/{plugin.name}"
            (folder / "plugins").mkdir(exist_ok=True)
            atomic_write(folder / path, plugin.source)
            os.environ[TRUSTED] = f"{os.environ.get(TRUSTED, '')} {plugin.sha256}"
        names = [key for key, thing in REGISTERED.items() if key in descriptions and _plugin_of(thing) is plugin]
        names += [key for key in descriptions if key[1].startswith(f"{plugin.name}:")]
        described = {f"{kind} {name}": _to_record(descriptions[kind, name]) for kind, name in names}
        described = (before or {}).get("entries", {}) | described
        record = {"path": path, "sha256": plugin.sha256, "entries": described}
        if used_names := _script_definitions(plugin, names, before):
            record |= {"definitions": used_names, "sha256": _digest(plugin, used_names)}
        records[plugin.name] = record
    if records:
        atomic_write(folder / RECORDS, (json.dumps(records, indent=1) + "\n").encode())


def _script_definitions(plugin: Plugin, names: list[tuple[str, str]], before: Mapping[str, Any] | None) -> list[str]:
    """Returns the top-level names in a plug-in's file whose definitions are hashed; an empty list to hash the whole file.

    Of the script that calls ``vitpos.run``, only what the run uses is hashed, so that the rest of it may be edited.

    Args:
        names: the classes and functions that the run uses, as pairs (kind, name) such as ``("encoding", "mine")``.
        before: the older record of the plug-in in ``plugins.json``, whose names are kept; None if there is none.
    """
    running = plugin.module is not None and plugin.module.__name__ in ("__main__", "__mp_main__")
    if (before and "definitions" not in before) or not (before or running):
        return []
    found = set(before["definitions"] if before else ())
    for key in names:
        qualified = REGISTERED[key].__qualname__ if key in REGISTERED else key[1].rpartition(":")[2]
        found.add(qualified.partition(".")[0])
    return sorted(found) if definitions((plugin.source or b"").decode(), found) else []


def _digest(plugin: Plugin, names: Sequence[str]) -> str:
    """Returns the SHA-256 of the definitions of ``names`` in a plug-in's file; of the whole file if ``names`` is empty."""
    text = definitions((plugin.source or b"").decode(), names) if names else ""
    return hashlib.sha256(text.encode()).hexdigest() if text else plugin.sha256


def read_records(folder: Path) -> dict[str, Any]:
    """Returns the content of ``plugins.json`` in a run folder: plug-in name → record; empty if the run used no plug-in."""
    if not (folder / RECORDS).exists():
        return {}
    with explain_damage(folder / RECORDS, RESTORE):
        records = json.loads(read_regular(folder / RECORDS))
        if not all(isinstance(record[key], str) for record in records.values() for key in ("path", "sha256")):
            raise TypeError("a record has no path or no sha256")
        return dict(records)


def load_recorded_plugins(
    folder: Path, records: Mapping[str, Any] | None = None, *, quiet: bool = False, trusted: bool = True
) -> None:
    """Imports the plug-ins that ``plugins.json`` of a run folder lists; warns about those that are missing or have changed.

    Args:
        records: content to use in place of that of ``plugins.json``, plug-in name → record.
        quiet: whether to omit the warnings.
        trusted: whether plug-ins may be imported; otherwise all that ``--plugin`` has not given count as missing.
    """
    with explain_damage(folder / RECORDS, RESTORE):
        _load_recorded(folder, read_records(folder) if records is None else records, quiet, trusted)


def _load_recorded(folder: Path, records: Mapping[str, Any], quiet: bool, trusted: bool) -> None:
    for name, record in records.items():
        if trusted and name in _refused:
            _forget_refusal(name, record)
        if name not in LOADED and name not in UNAVAILABLE:
            try:
                if not trusted:
                    _refused.add(name)
                    raise InputError(
                        f"plug-in {sanitize(name)} is not imported, because {folder} is not from a run of yours; "
                        "give it by --plugin or, if you trust the folder, use --trust, or trust=True in Python"
                    )
                LOADED[name] = _import_recorded(name, record, folder)
            except InputError as error:
                UNAVAILABLE[name] = reason = str(error)
                for key, described in record["entries"].items():
                    kind, _, registered = key.partition(" ")
                    UNAVAILABLE_NAMES[kind, registered] = reason, _from_record(registered, described)
        note = UNAVAILABLE.get(name, "")
        if name in LOADED and _digest(LOADED[name], record.get("definitions", ())) != record["sha256"]:
            note = f"plug-in {name} has changed since {folder} was run with it"
        if note and not quiet:
            warnings.warn(note, PluginWarning, 3)


def _forget_refusal(name: str, record: Mapping[str, Any]) -> None:
    _refused.remove(name)
    UNAVAILABLE.pop(name, None)
    for key in record["entries"]:
        kind, _, registered = key.partition(" ")
        UNAVAILABLE_NAMES.pop((kind, registered), None)


def _import_recorded(name: str, record: Mapping[str, Any], folder: Path) -> Plugin:
    """Imports the plug-in of one record of ``plugins.json`` and returns it; raises an InputError if it is not available.

    Args:
        name: name of the plug-in.
        record: its record, with the path of its file and the hash of its content.
        folder: the run folder, to which relative paths refer. A file inside it that this run did not write is not imported.
    """
    path = folder / record["path"] if record["path"] else None  # an absolute path stays itself
    if not name.endswith(".py"):
        return plugins.load_plugin(name)
    if path is None:
        raise InputError(f"plug-in {name} was a class without source; define it again and run from Python")
    path = path.resolve()
    if not path.is_file():
        raise InputError(f"plug-in {name} is gone; put it back at {path}, or give it by --plugin")
    inside = path.is_relative_to(folder.resolve())
    if inside and not plugins.find_loaded(path) and record["sha256"] not in os.environ.get(TRUSTED, ""):
        raise InputError(f"plug-in {name} lies inside the run; read it, then give --plugin {path}")
    return load_file(name, path)


def _to_record(described: Description) -> dict[str, Any]:
    options = {key: [str(option), repr(option.default)] for key, option in described.options.items()}
    attributes = {
        key: list(value) if isinstance(value, set | frozenset) else value for key, value in described.attributes.items()
    }
    return {"definition": inspect.cleandoc(described.definition), "options": options, "attributes": attributes}


def _from_record(name: str, record: Mapping[str, Any]) -> Description:
    options = {key: Option(_literal(default), _type(kind)) for key, (kind, default) in record["options"].items()}
    attributes = record["attributes"] if "attributes" in record else record["facts"]  # the key in older run folders
    return Description(name, record["definition"], options, dict(attributes), ())


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _type(text: str) -> Any:
    def unknown(name: str) -> Any:
        raise UnknownType(name)

    try:
        return read_type(ast.parse(text, mode="eval").body, unknown)
    except (UnknownType, SyntaxError):
        return Any
