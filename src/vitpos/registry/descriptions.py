"""Descriptions of registered classes and functions: summary, options, class attributes.

Built-in entries are read from their source text, so that ``vitpos list`` and ``--help`` import nothing; every other class
or function is described by its signature.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from vitpos.registry.option_types import UnknownType, choices, read_type, type_text

REQUIRED = inspect.Parameter.empty  # the default of an option that has none
_ARGUMENTS = re.compile(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Option:
    """One keyword of an entry: its default and its type."""

    default: Any
    type: Any

    def __str__(self) -> str:
        return type_text(self.type)

    @property
    def choices(self) -> list[Any]:
        """The values of its Literal, if its type has one."""
        return choices(self.type)

    @property
    def literal(self) -> bool:
        """Whether its default can be written in a spec; others are shown by their repr."""
        try:
            return bool(ast.literal_eval(repr(self.default)) == self.default)
        except (ValueError, SyntaxError, TypeError):
            return False


@dataclass(frozen=True)
class Entry:
    """The description of one entry."""

    name: str
    definition: str  # the whole docstring
    options: dict[str, Option]
    facts: dict[str, Any]  # literal class attributes, such as ``traits``
    methods: tuple[str, ...]  # the methods that the class defines
    open: bool = False  # whether options without a description are accepted too

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits that a class declares."""
        return tuple(self.facts.get("traits", ()))

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, on one line."""
        return " ".join(self.definition.split("\n\n")[0].split())

    @property
    def prose(self) -> str:
        """The docstring without its ``Args:`` list."""
        return _ARGUMENTS.sub("", inspect.cleandoc(self.definition)).strip()

    @property
    def arguments(self) -> dict[str, str]:
        """One line for each option in the ``Args:`` list of the docstring."""
        found = _ARGUMENTS.search(inspect.cleandoc(self.definition))
        lines = re.findall(
            r"^ {4}(\w+)(?: \(.*?\))?: +((?:.+\n?)(?: {5,}.+\n?)*)", found[1] if found else "", re.MULTILINE
        )
        return {name: " ".join(text.split()) for name, text in lines}


def describe_object(name: str, thing: Any, positional: int) -> Entry:
    """The entry of a class, function or other callable that takes ``positional`` arguments before its options."""
    options: dict[str, Option] = {}
    is_open = False
    for call in _calls(thing):
        try:
            parameters = list(inspect.signature(call).parameters.values())[inspect.isclass(thing) :]
        except (ValueError, TypeError):  # something built in that has no signature
            break
        hints, skip, is_open = _hints(call), positional, False
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) and skip:
                skip -= 1
            elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                kind = hints.get(parameter.name, Any)
                options.setdefault(parameter.name, Option(parameter.default, kind))
            is_open |= parameter.kind is parameter.VAR_KEYWORD
        if not is_open:
            break
    is_open &= not inspect.isclass(thing)  # the last one of a class is that of object or of a torch module
    classes = [c for c in reversed(thing.__mro__) if c is not object] if inspect.isclass(thing) else []
    facts = {key: value for c in classes for key, value in vars(c).items() if _is_fact(key, value)}
    own = [c for c in classes if not c.__module__.startswith(("torch.", f"{_PACKAGE}.encodings.base"))]
    methods = tuple(dict.fromkeys(key for c in own for key, value in vars(c).items() if inspect.isfunction(value)))
    return Entry(name, inspect.getdoc(thing) or "", options, facts, methods, is_open)


def _calls(thing: Any) -> Iterator[Any]:
    """What calling a thing calls: itself, or the ``__init__`` of a class and, through ``**kwargs``, of its bases."""
    if not inspect.isclass(thing):
        yield thing
        return
    for base in thing.__mro__:
        if "__init__" in vars(base) and base is not object and not base.__module__.startswith("torch."):
            yield vars(base)["__init__"]


def _hints(call: Any) -> dict[str, Any]:
    """The annotations of a callable as types; as text where a name in them cannot be resolved."""
    call = call.func if isinstance(call, partial) else call
    try:
        return get_type_hints(call)
    except Exception:  # a name imported for type checkers alone, or anything else an annotation may evaluate
        return dict(getattr(call, "__annotations__", {}))


def _is_fact(key: str, value: Any) -> bool:
    return not key.startswith("_") and isinstance(value, str | bool | int | float | tuple | frozenset | set | list)


def describe_source(name: str, target: str) -> Entry:
    """The entry of ``"module:object"``, read from source text; UnknownType where that does not suffice."""
    module, _, attribute = target.partition(":")
    home, node = _find(module, attribute)
    if isinstance(node, ast.FunctionDef):
        return Entry(name, ast.get_docstring(node) or "", dict(_options(home, node)), {}, ())
    if not isinstance(node, ast.ClassDef):
        raise UnknownType(target)
    options: dict[str, Option] = {}
    facts: dict[str, Any] = {}
    calls = True
    for where, part in _classes(home, node):
        body = {n.name: n for n in part.body if isinstance(n, ast.FunctionDef)}
        if calls and "__init__" in body:
            options = dict(_options(where, body["__init__"])) | options
            calls = body["__init__"].args.kwarg is not None
        facts = dict(_facts(part)) | facts
    methods = tuple(n.name for n in node.body if isinstance(n, ast.FunctionDef))
    return Entry(name, ast.get_docstring(node) or "", options, facts, methods)


def source_constant(target: str) -> Any:
    """The literal that ``"module:name"`` is assigned in source text."""
    node = _find(*target.split(":"))[1]
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        raise UnknownType(target)
    return ast.literal_eval(node.value)


@cache
def _module(name: str) -> dict[str, ast.stmt]:
    """The top-level statements of a module by the name that they define."""
    found = importlib.util.find_spec(name)
    if not found or not found.origin:
        raise UnknownType(name)
    defined: dict[str, ast.stmt] = {}
    for node in ast.parse(Path(found.origin).read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=key) | ast.FunctionDef(name=key) | ast.AnnAssign(target=ast.Name(id=key)):
                defined[key] = node
            case ast.Assign(targets=[ast.Name(id=key)]):
                defined[key] = node
            case ast.ImportFrom(names=aliases, level=0):
                defined |= {alias.asname or alias.name: node for alias in aliases}
    return defined


def _find(module: str, name: str) -> tuple[str, ast.stmt]:
    """The module and the statement that define a name, through imports from this package."""
    node = _module(module).get(name)
    if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == _PACKAGE:
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        return _find(node.module, original)
    if node is None:
        raise UnknownType(f"{module}:{name}")
    return module, node


def _type(module: str) -> Callable[[str], Any]:
    """A function from names in a module to the types that they are aliases of."""

    def alias(name: str) -> Any:
        home, node = _find(module, name)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            return read_type(node.value, _type(home))
        raise UnknownType(name)

    return alias


def _classes(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """A class and its bases in this package, each with its module."""
    yield module, node
    for base in node.bases:
        if isinstance(base, ast.Name):
            home, found = _find(module, base.id)
            if isinstance(found, ast.ClassDef):
                yield from _classes(home, found)


def _options(module: str, call: ast.FunctionDef) -> Iterator[tuple[str, Option]]:
    """The keyword-only arguments of a function."""
    for argument, default in zip(call.args.kwonlyargs, call.args.kw_defaults, strict=True):
        try:
            value = REQUIRED if default is None else ast.literal_eval(default)
        except ValueError:
            raise UnknownType(argument.arg) from None
        yield argument.arg, Option(value, read_type(argument.annotation, _type(module)))


def _facts(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """The class attributes that are literals, or sets of them."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=key)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value):
                pass
            case _:
                continue
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "frozenset" and len(value.args) == 1:
            value = value.args[0]
        try:
            yield key, ast.literal_eval(value)
        except ValueError:
            continue
