"""The source of a class or function that was defined without a file, as in a notebook, as a file that stands alone."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
import textwrap
from types import ModuleType
from typing import Any


def standalone_source(thing: Any) -> str | None:
    """A Python file that defines a class or function, with the imports and helpers it needs; None if that fails."""
    found: dict[str, str] = {}  # the definition of each name, in the order in which they are needed
    try:
        _define(thing, found)
        text = "\n".join(found.values()) + "\n"
        compile(text, thing.__name__, "exec")
    except (LookupError, OSError, TypeError, SyntaxError, ValueError):
        return None
    return text


def _define(thing: Any, found: dict[str, str]) -> None:
    """Adds the source of a class or function after that of every name it uses."""
    source = _source(thing)
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | _bound(source)
    scope = vars(sys.modules[thing.__module__])
    for name in dict.fromkeys(node.id for node in names):
        if name in found or name in bound or (name not in scope and hasattr(builtins, name)):
            continue
        value = scope[name]
        if isinstance(value, ModuleType):
            found[name] = f"import {value.__name__} as {name}"
        elif getattr(value, "__module__", None) == thing.__module__ and hasattr(value, "__qualname__"):
            _define(value, found)
        elif hasattr(value, "__qualname__") and "." not in value.__qualname__:
            found[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
        else:
            ast.literal_eval(repr(value))
            found[name] = f"{name} = {value!r}"
    found[thing.__name__] = f"\n\n{source.strip()}"


def _bound(source: str) -> set[str]:
    """The names of arguments, classes and functions that a source defines."""
    nodes = list(ast.walk(ast.parse(source)))
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return defined | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _source(thing: Any) -> str:
    """The text of a class or function, found through the code of its functions: a notebook has no file for its classes."""
    if not inspect.isclass(thing):
        return textwrap.dedent(inspect.getsource(thing))
    functions = [value for value in vars(thing).values() if inspect.isfunction(value)]
    if not functions:
        return textwrap.dedent(inspect.getsource(thing))
    lines = linecache.getlines(functions[0].__code__.co_filename)
    inside = functions[0].__code__.co_firstlineno
    classes = [
        n for n in ast.walk(ast.parse("".join(lines))) if isinstance(n, ast.ClassDef) and n.name == thing.__name__
    ]
    for node in classes:
        if node.lineno <= inside <= (node.end_lineno or node.lineno):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    raise LookupError(thing.__name__)
