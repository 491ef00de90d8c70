"""The source code of single classes and functions: as a file that can be imported alone, or as it stands in its file."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterable
from functools import reduce
from types import CodeType, ModuleType
from typing import Any


def standalone_source(thing: Any) -> str | None:
    """Returns the text of a Python file with a class or function and all imports and helpers it needs; None on failure.

    None also for a class or function that uses local variables of the function in which it is defined.
    """
    found: dict[str, str] = {}  # the definition of each name, in the order in which they are needed
    try:
        _define(thing, found)
        text = "\n".join(found.values()) + "\n"
        compile(text, thing.__name__, "exec")
    except (AttributeError, LookupError, OSError, TypeError, SyntaxError, ValueError):
        return None
    return text


def definitions(text: str, names: Iterable[str]) -> str:
    """Returns the top-level statements of a Python file that define ``names`` and all names that these statements use.

    Comments are removed. Returns an empty string if the file does not define all ``names``.

    Args:
        text: content of the file.
        names: names of classes, functions or variables.
    """
    statements = ast.parse(text).body
    bound = [_bound_names(statement) for statement in statements]
    needed, wanted = set[int](), list(names)
    if not set(wanted) <= set().union(*bound):
        return ""
    for name in wanted:  # the list grows while it is read
        for number, statement in enumerate(statements):
            if name in bound[number] and number not in needed:
                needed.add(number)
                wanted += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return "\n".join(ast.unparse(statements[number]) for number in sorted(needed))


def _bound_names(statement: ast.stmt) -> set[str]:
    """Returns the names that a top-level statement defines, assigns or imports; ``a`` for ``a.b = 1`` and ``a[0] = 1``."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            target: ast.expr = node
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            found |= {target.id} if isinstance(target, ast.Name) else set()
    return found


def _define(thing: Any, found: dict[str, str]) -> None:
    """Adds to ``found`` (name → source code) the definitions that a class or function uses, then its own source."""
    source = _source(thing)
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)} | _bound(source)
    scope, local = vars(sys.modules[thing.__module__]), _enclosing_names(thing)
    if any(name not in bound for name in local & {node.id for node in names}) or _captured(thing):
        raise LookupError(f"{thing.__qualname__} uses local variables")
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


def _enclosing_names(thing: Any) -> set[str]:
    """Returns the local variables of the functions in which a class or function is defined; empty at the top level."""
    outer, local, _ = thing.__qualname__.partition(".<locals>.")
    if not local:
        return set()
    found = set[str]()
    codes = [reduce(getattr, outer.split("."), sys.modules[thing.__module__]).__code__]
    for code in codes:  # the list grows while it is read: functions inside functions
        found |= {*code.co_varnames, *code.co_cellvars}
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def _captured(thing: Any) -> set[str]:
    """Returns the variables of enclosing functions that a function, or the methods of a class, use."""
    functions = [one for one in (thing, *vars(thing).values()) if inspect.isfunction(one)]
    return {name for function in functions for name in function.__code__.co_freevars} - {"__class__"}


def _bound(source: str) -> set[str]:
    """Returns the names of all arguments, classes and functions that are defined in a source text."""
    nodes = list(ast.walk(ast.parse(source)))
    defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return defined | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _source(thing: Any) -> str:
    """Returns the source text of a class or function.

    A class of a notebook is found through its methods, because notebooks have no file in which ``inspect`` could find it.
    """
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
