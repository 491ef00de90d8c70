"""Describes built-in classes and functions from their source text, so that ``vitpos list`` imports no torch."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from vitpos.registry.descriptions import (
    ENCODING_BASE,
    PACKAGE,
    REQUIRED,
    Description,
    Option,
    with_options_of,
)
from vitpos.registry.option_types import UnknownType, read_type


def describe_source(name: str, target: str) -> Description:
    """Returns the `Description` of a built-in class or function, from its source text, without importing its module.

    Raises UnknownType if the source text does not suffice, for example for a default that is not a literal.

    Args:
        name: name of the returned description.
        target: ``"module:object"``, such as ``"vitpos.encodings.rope:RoPE"``.
    """
    module, _, attribute = target.partition(":")
    home, node = _find(module, attribute)
    if isinstance(node, ast.FunctionDef):
        described = Description(name, ast.get_docstring(node) or "", dict(_options(home, node)), {}, ())
        return with_options_of(described, passed_on) if (passed_on := _passed_on(home, node)) else described
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
        methods |= dict.fromkeys(body) if where != ENCODING_BASE else {}
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
    """Returns (module, statement) that define a global ``name`` of ``module``; follows imports inside this package."""
    node = _module(module).get(name)
    if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == PACKAGE:
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
    """Yields (name, `Option`) for each keyword-only argument of ``call``, a function statement in ``module``."""
    for argument, default in zip(call.args.kwonlyargs, call.args.kw_defaults, strict=True):
        try:
            value = REQUIRED if default is None else ast.literal_eval(default)
        except ValueError:
            raise UnknownType(argument.arg) from None
        yield argument.arg, Option(value, read_type(argument.annotation, _type(module)))


def _passed_on(module: str, call: ast.FunctionDef) -> Description | None:
    """Returns the `Description` of the dataclass that a function statement passes options on to; None if there is none.

    Such a function has ``**kwargs: Annotated[Any, Class]``.
    """
    match call.args.kwarg and call.args.kwarg.annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[_, ast.Name(id=name)])):
            home, node = _find(module, name)
        case None:
            return None
        case _:
            raise UnknownType(call.name)
    assert isinstance(node, ast.ClassDef)
    options = {
        field.target.id: Option(ast.literal_eval(field.value), read_type(field.annotation, _type(home)))
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value
    }
    return Description(name, ast.get_docstring(node) or "", options, {}, ())


def _literal_attributes(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) for each public class attribute whose value is a literal or a frozenset of literals."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=key)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value):
                pass
            case _:
                continue
        if key.startswith("_"):
            continue
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "frozenset" and len(value.args) == 1:
            value = value.args[0]
        try:
            yield key, ast.literal_eval(value)
        except ValueError:
            continue
