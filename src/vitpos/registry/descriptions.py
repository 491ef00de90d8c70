"""Describes registered classes and functions: docstring, options, class attributes.

Built-in classes are described from their source text, so that ``vitpos list`` and ``--help`` import no torch; all others
are imported and described by their signature.
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
_ENCODING_BASE = f"{_PACKAGE}.encodings.base"  # its methods do nothing; a subclass overrides those it needs


@dataclass(frozen=True)
class Option:
    """One keyword argument of a registered class or function: its default and its type."""

    default: Any
    type: Any

    def __str__(self) -> str:
        return type_text(self.type)

    @property
    def choices(self) -> list[Any]:
        """The allowed values if the type of the option contains a ``Literal``; otherwise an empty list."""
        return choices(self.type)

    @property
    def literal(self) -> bool:
        """Whether the default is a Python literal and can be written in a spec such as ``rope(base=10.0)``."""
        try:
            return bool(ast.literal_eval(repr(self.default)) == self.default)
        except (ValueError, SyntaxError, TypeError):
            return False


@dataclass(frozen=True)
class Description:
    """The description of one registered class or function: its docstring, options and class attributes."""

    name: str
    definition: str  # the whole docstring
    options: dict[str, Option]
    attributes: dict[str, Any]  # literal class attributes, such as ``traits``
    methods: tuple[str, ...]  # the methods of the class and its bases, without those of PositionEncoding and torch
    open: bool = False  # whether options without a description are accepted too

    @property
    def traits(self) -> tuple[str, ...]:
        """Traits that an encoding declares in its class attribute ``traits``, such as ``learnable``."""
        return tuple(self.attributes.get("traits", ()))

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join(self.definition.split("\n\n")[0].split())

    @property
    def prose(self) -> str:
        """The docstring without its ``Args:`` list."""
        return _ARGUMENTS.sub("", inspect.cleandoc(self.definition)).strip()

    @property
    def arguments(self) -> dict[str, str]:
        """The ``Args:`` list of the docstring as a dictionary: option → its text on one line."""
        found = _ARGUMENTS.search(inspect.cleandoc(self.definition))
        lines = re.findall(
            r"^ {4}(\w+)(?: \(.*?\))?: +((?:.+\n?)(?: {5,}.+\n?)*)", found[1] if found else "", re.MULTILINE
        )
        return {name: " ".join(text.split()) for name, text in lines}


def describe_object(name: str, thing: Any, positional: int) -> Description:
    """Describes a class or function by its signature, with options inherited through ``**kwargs`` of its bases.

    Args:
        name: name of the returned description.
        thing: the class, function or other callable.
        positional: number of positional arguments it takes before its options.
    """
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
    is_open &= not inspect.isclass(thing)  # the last __init__ of a class is that of object or of a torch module
    classes = [c for c in reversed(thing.__mro__) if c is not object] if inspect.isclass(thing) else []
    attributes = {key: value for c in classes for key, value in vars(c).items() if _is_literal_attribute(key, value)}
    own = [c for c in classes if not c.__module__.startswith("torch.") and c.__module__ != _ENCODING_BASE]
    methods = tuple(dict.fromkeys(key for c in own for key, value in vars(c).items() if inspect.isfunction(value)))
    return Description(name, inspect.getdoc(thing) or "", options, attributes, methods, is_open)


def _calls(thing: Any) -> Iterator[Any]:
    """Yields the callables whose arguments are the options: the function, or each ``__init__`` of a class and its bases."""
    if not inspect.isclass(thing):
        yield thing
        return
    for base in thing.__mro__:
        if "__init__" in vars(base) and base is not object and not base.__module__.startswith("torch."):
            yield vars(base)["__init__"]


def _hints(call: Any) -> dict[str, Any]:
    """Returns the argument types of a callable by name; the annotations as text if they cannot be evaluated."""
    call = call.func if isinstance(call, partial) else call
    try:
        return get_type_hints(call)
    except Exception:  # a name imported for type checkers alone, or anything else an annotation may evaluate
        return dict(getattr(call, "__annotations__", {}))


def _is_literal_attribute(key: str, value: Any) -> bool:
    return not key.startswith("_") and isinstance(value, str | bool | int | float | tuple | frozenset | set | list)


def describe_source(name: str, target: str) -> Description:
    """Describes a built-in class or function from its source text, without importing its module.

    Raises UnknownType if the source text does not suffice, for example for a default that is not a literal.

    Args:
        name: name of the returned description.
        target: ``"module:object"``, such as ``"vitpos.encodings.rope:RoPE"``.
    """
    module, _, attribute = target.partition(":")
    home, node = _find(module, attribute)
    if isinstance(node, ast.FunctionDef):
        return Description(name, ast.get_docstring(node) or "", dict(_options(home, node)), {}, ())
    if not isinstance(node, ast.ClassDef):
        raise UnknownType(target)
    options: dict[str, Option] = {}
    attributes: dict[str, Any] = {}
    methods: dict[str, None] = {}
    calls = True
    for where, part in _classes(home, node):
        body = {n.name: n for n in part.body if isinstance(n, ast.FunctionDef)}
        if calls and "__init__" in body:
            options = dict(_options(where, body["__init__"])) | options
            calls = body["__init__"].args.kwarg is not None
        attributes = dict(_literal_attributes(part)) | attributes
        methods |= dict.fromkeys(body) if where != _ENCODING_BASE else {}
    return Description(name, ast.get_docstring(node) or "", options, attributes, tuple(methods))


def source_constant(target: str) -> Any:
    """Returns the value of a constant given as ``module:NAME``, read from source text without importing the module."""
    node = _find(*target.split(":"))[1]
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        raise UnknownType(target)
    return ast.literal_eval(node.value)


@cache
def _module(name: str) -> dict[str, ast.stmt]:
    """Parses the source of a module and returns its top-level statements by the name that each defines or imports."""
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
    """Returns the module and the statement that define a name, following imports inside this package."""
    node = _module(module).get(name)
    if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == _PACKAGE:
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        return _find(node.module, original)
    if node is None:
        raise UnknownType(f"{module}:{name}")
    return module, node


def _type(module: str) -> Callable[[str], Any]:
    """Returns a function that maps the name of a type alias in a module to the type it stands for."""

    def alias(name: str) -> Any:
        home, node = _find(module, name)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            return read_type(node.value, _type(home))
        raise UnknownType(name)

    return alias


def _classes(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yields (module, class statement) of a class and of its bases that are defined in this package."""
    yield module, node
    for base in node.bases:
        if isinstance(base, ast.Name):
            home, found = _find(module, base.id)
            if isinstance(found, ast.ClassDef):
                yield from _classes(home, found)


def _options(module: str, call: ast.FunctionDef) -> Iterator[tuple[str, Option]]:
    """Yields (name, `Option`) for each keyword-only argument of a function statement."""
    for argument, default in zip(call.args.kwonlyargs, call.args.kw_defaults, strict=True):
        try:
            value = REQUIRED if default is None else ast.literal_eval(default)
        except ValueError:
            raise UnknownType(argument.arg) from None
        yield argument.arg, Option(value, read_type(argument.annotation, _type(module)))


def _literal_attributes(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) for each class attribute whose value is a literal or a frozenset of literals."""
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
