"""Plug-ins: Python files and modules outside this package that define encodings, models and so on.

A plug-in is named by its path (``mine.py``), its module (``package.module``) or the entry point of an installed package. It
is imported once per process. An error in it becomes a one-line InputError with file and line number, and the names of
other plug-ins stay usable.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from vitpos.errors import InputError, Notice, RunError
from vitpos.printable import sanitize
from vitpos.registry.descriptions import Description

_PACKAGE = __name__.partition(".")[0]


class PluginWarning(Notice):
    """Warns that a plug-in is missing, has changed or cannot be imported; the message is one line."""


@dataclass
class Plugin:
    """Record of one imported plug-in, a Python file or module that defines encodings, models and so on.

    It holds the name that the user typed, and the file, source and module of the plug-in.
    """

    name: str  # as it was typed: a path of a .py file, or a module
    path: Path | None  # its file; None for a class that was defined without one
    source: bytes | None  # its content when it was imported; None where there is no source
    objects: dict[str, Any] = field(default_factory=dict)  # name → class, if there is no module
    module: ModuleType | None = None

    @property
    def sha256(self) -> str:
        """SHA-256 of the plug-in's source as hex digits; an empty string if it has no source."""
        return hashlib.sha256(self.source).hexdigest() if self.source is not None else ""


LOADED: dict[str, Plugin] = {}  # by the name that was typed
REGISTERED: dict[tuple[str, str], Any] = {}  # (kind, name) → class or function; finds the plug-in that a run used
UNAVAILABLE: dict[str, str] = {}  # name of a plug-in that a run recorded and that cannot be imported → why
_refusal: ContextVar[tuple[str, str] | None] = ContextVar("refusal", default=None)  # why imports are refused, remedy
UNAVAILABLE_NAMES: dict[tuple[str, str], tuple[str, Description]] = {}  # (kind, name) of its classes → why, description


def load_plugin(name: str) -> Plugin:
    """Imports a .py file or a module once per process and returns its `Plugin` record."""
    if name in UNAVAILABLE:
        raise InputError(UNAVAILABLE[name])
    if name not in LOADED:
        LOADED[name] = load_file(name, Path(name)) if name.endswith(".py") else _load_module(name)
    return LOADED[name]


@contextmanager
def refusing_imports(reason: str, remedy: str) -> Iterator[None]:
    """Context manager in which references such as ``file.py:Class`` import nothing; those to loaded plug-ins still work.

    Args:
        reason: why, as the end of a sentence in the error message.
        remedy: what to do, the end of that message.
    """
    token = _refusal.set((reason, remedy))
    try:
        yield
    finally:
        _refusal.reset(token)


def load_reference(home: str, attribute: str) -> Any:
    """Returns the class or function that a spec such as ``file.py:Class`` refers to; imports its plug-in if allowed."""
    refusal = _refusal.get()
    if refusal and home not in LOADED and not find_loaded(Path(home).expanduser().absolute()):
        raise InputError(f"plug-in {sanitize(home)} is not imported, because {refusal[0]}; {refusal[1]}")
    return load_object(home, attribute)


def load_object(home: str, attribute: str) -> Any:
    """Imports the plug-in ``home``, a .py file or a module, and returns its class or function called ``attribute``."""
    plugin = load_plugin(home)
    if attribute in plugin.objects:
        return plugin.objects[attribute]
    found: Any = plugin.module
    for part in attribute.split("."):
        if not hasattr(found, part):
            there = [key for key, thing in vars(plugin.module).items() if _defines(plugin, thing)]
            raise InputError(f"{home} has no {attribute!r}; it defines {', '.join(there) or 'no class or function'}")
        found = getattr(found, part)
    return found


def load_file(name: str, path: Path) -> Plugin:
    """Imports a Python file and returns its `Plugin` record.

    A file that is already imported, even under another name, or that is the running script is not executed again.

    Args:
        name: the file name as the user typed it, for messages and as the name of the plug-in.
        path: where the file is.
    """
    path = path.expanduser().resolve()
    if not path.is_file():
        raise InputError(f"no file {name!r}; give the path of a Python file")
    if (known := find_loaded(path)) and known.module:
        return Plugin(name, path, known.source, module=known.module)
    same_name = (m for m in list(sys.modules.values()) if str(getattr(m, "__file__", "")).endswith(path.name))
    module = next((m for m in same_name if _file(m) == path), None)
    source = path.read_bytes()
    if module is None:
        key = f"{_PACKAGE}_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        found = importlib.util.spec_from_file_location(key, path)
        if found is None or found.loader is None:
            raise InputError(f"{name!r} is not a Python file; give one that ends in .py")
        module = importlib.util.module_from_spec(found)
        sys.modules[key] = module  # before it runs, as for every import: dataclasses and annotations look it up
        sys.path.insert(0, str(path.parent))  # so that it can import its neighbors, as a script does
        try:
            with _import_errors(name, {str(path)}):
                found.loader.exec_module(module)
        except BaseException:
            del sys.modules[key]
            raise
        finally:
            sys.path.remove(str(path.parent))
    return Plugin(name, path, source, module=module)


def find_loaded(path: Path) -> Plugin | None:
    """Returns the `Plugin` record of the file ``path`` if it was imported as a plug-in; otherwise None."""
    return next((plugin for plugin in LOADED.values() if plugin.path == path), None)


def _load_module(name: str) -> Plugin:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"plug-in {name!r} is neither a .py file nor a module; give one of them")
    with _import_errors(name, set()):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and (name + ".").startswith(error.name + "."):
                raise InputError("there is no such module; install it, or give the path of its .py file") from None
            raise
    path = _file(module)
    return Plugin(name, path, path.read_bytes() if path else None, module=module)


@cache
def _entry_points(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=group)} if group else {}


@cache
def _warn_of_clash(group: str, name: str) -> None:
    point = _entry_points(group)[name]
    owner = point.dist.name if point.dist else point.value
    warnings.warn(f"{owner} registers {name!r} in {group}, which is built in; rename its entry point", PluginWarning, 2)


def entry_points(group: str, builtin: Mapping[str, str]) -> dict[str, importlib.metadata.EntryPoint]:
    """Returns name → entry point of installed packages, without importing them.

    Args:
        group: entry-point group, such as ``vitpos.encodings``.
        builtin: built-in name → ``"module:object"``; an entry point with such a name is left out, with a warning.
    """
    found = _entry_points(group)
    for name in found.keys() & builtin.keys():
        _warn_of_clash(group, name)
    return {name: point for name, point in found.items() if name not in builtin}


def load_entry_point(kind: str, point: importlib.metadata.EntryPoint) -> Any:
    """Imports and returns the class or function of an entry point of an installed package, and records it as a plug-in's.

    Args:
        kind: kind of the class or function, such as ``encoding``.
        point: the entry point.
    """
    thing = load_object(point.module, point.attr)
    REGISTERED[kind, point.name] = thing
    return thing


def identity(thing: Any) -> tuple[str, str]:
    """Returns (file, qualified name) of a class or function, or (module, qualified name) if it has no file.

    An entry point, which is not imported, gives (module, qualified name) of its class or function.
    """
    if isinstance(thing, importlib.metadata.EntryPoint):
        return thing.module, thing.attr
    module = getattr(thing, "__module__", "") or ""
    return str(_file(sys.modules.get(module)) or module), getattr(thing, "__qualname__", repr(thing))


@contextmanager
def plugin_errors(what: str, thing: Any = None) -> Iterator[None]:
    """Converts an exception that plug-in code raises in a ``with`` block into a one-line InputError with file and line.

    Exceptions of vitpos's own code pass unchanged.

    Args:
        what: subject of the message, such as ``"encoding 'mine'"``.
        thing: the class or function that is called in the block; the message gives its file if no line is found.
    """
    try:
        yield
    except (InputError, RunError):
        raise
    except (Exception, SystemExit) as error:
        files = {str(plugin.path) for plugin in LOADED.values() if plugin.path}
        files |= {identity(one)[0] for one in (thing, *REGISTERED.values()) if not _is_builtin(one)}
        where = location(error, files)
        if where is None and (thing is None or _is_builtin(thing)):
            raise
        raise InputError(f"{what} failed: {_reason(error)} ({where or identity(thing)[0]})") from error


@contextmanager
def _import_errors(name: str, files: set[str]) -> Iterator[None]:
    """Converts any exception in a ``with`` block, in which plug-in ``name`` is imported, into a one-line InputError.

    Args:
        files: the plug-in's files; the message gives the last line of the traceback that is in one of them.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        where = location(error, files) or location(error, None)
        raise InputError(f"plug-in {name}: {_reason(error)}" + (f" ({where})" if where else "")) from error


def _reason(error: BaseException) -> str:
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


def location(error: BaseException, files: set[str] | None) -> str | None:
    """Returns ``"FILE, line N"`` of the innermost traceback frame in one of ``files``; None if there is no such frame.

    If ``files`` is None, any file counts except this one and Python's import system.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        outside = frame.filename not in (__file__, importlib.__file__) and not frame.filename.startswith("<frozen")
        if outside if files is None else frame.filename in files:
            return f"{frame.filename}, line {frame.lineno}"
    return None


def _file(module: Any) -> Path | None:
    found = getattr(module, "__file__", None)
    return Path(found).resolve() if isinstance(found, str) and found.endswith(".py") else None


def _defines(plugin: Plugin, thing: Any) -> bool:
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == getattr(
        plugin.module, "__name__", ""
    )


def _is_builtin(thing: Any) -> bool:
    return thing is None or (getattr(thing, "__module__", "") or "").partition(".")[0] == _PACKAGE
