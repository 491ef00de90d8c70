"""Types of options, such as ``int | None``: parsing them from source text, checking values, printing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Optional, TypeVar, Union, get_args, get_origin

_NAMES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (int, float, bool, str, tuple, list, dict, object)},
    **{"Any": Any, "None": None, "Literal": Literal, "Optional": Optional, "Union": Union},
}


class UnknownType(ValueError):
    """Raised for a type annotation or default that cannot be understood from source text without importing the module."""


def matches_type(kind: Any, value: Any) -> bool:
    """Returns whether ``value`` is of the type ``kind``.

    Types are made of int, float, bool, str, tuple, list, dict, Literal, None and unions; an int is also a float.
    """
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any or kind is object or isinstance(kind, TypeVar | str):
        return True
    if kind is None or kind is NoneType:
        return value is None
    if origin is Annotated or hasattr(kind, "__value__"):  # the second is ``type Name = …`` of Python 3.12
        return matches_type(args[0] if origin is Annotated else kind.__value__, value)
    if origin in (Union, UnionType):
        return any(matches_type(one, value) for one in args)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in args)
    if tuple in (kind, origin):
        if not isinstance(value, tuple | list) or not args:
            return isinstance(value, tuple | list)
        items = [args[0]] * len(value) if args[-1] is ... else args
        return len(items) == len(value) and all(map(matches_type, items, value))
    if list in (kind, origin):
        return isinstance(value, tuple | list) and all(matches_type(args[0], item) for item in value if args)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    plain = origin or kind
    return isinstance(plain, type) and isinstance(value, plain)


def normalize_value(kind: Any, value: Any) -> Any:
    """Converts lists to tuples and, where the type ``kind`` is float, ints to floats; returns other values unchanged.

    Specs that differ only in this way then compare equal. ``value`` has to be of the type ``kind``.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated or hasattr(kind, "__value__"):
        return normalize_value(args[0] if origin is Annotated else kind.__value__, value)
    if origin in (Union, UnionType):
        fitting = [one for one in args if matches_type(one, value)]
        return normalize_value(min(fitting, key=lambda one: one is float), value)  # an int stays one in ``float | int``
    if isinstance(value, list | tuple):
        items = args if origin is tuple and args[-1] is not ... else [args[0] if args else Any] * len(value)
        return tuple(map(normalize_value, items, value))
    return float(value) if kind is float and isinstance(value, int) else value


def choices(kind: Any) -> list[Any]:
    """Returns the values of all Literals in a type: ``['cls', 'mean']`` for ``Literal['cls', 'mean'] | None``."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [choice for one in get_args(kind) for choice in choices(one)]


def type_text(kind: Any) -> str:
    """Formats a type as in source code, such as ``int | tuple[int, ...]``."""
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(kind, str):
        return kind
    if kind is None or kind is NoneType:
        return "None"
    if kind is ...:
        return "..."
    if origin in (Union, UnionType):
        return " | ".join(map(type_text, args))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin is Annotated:
        return type_text(args[0])
    if isinstance(origin, type) and origin.__module__ == "builtins":
        return f"{origin.__name__}[{', '.join(map(type_text, args))}]"
    if kind is Any:
        return "any"
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")


def type_prose(kind: Any) -> str:
    """Formats a type for an error message, such as ``one of 'cls', 'mean', or None``."""
    return re.sub(r"Literal\[(.*?)\]", r"one of \1", type_text(kind)).replace(" | None", ", or None")


def read_type(node: ast.expr | None, alias: Callable[[str], Any]) -> Any:
    """Converts the syntax tree of a type annotation to a type, without importing its module.

    Args:
        node: the annotation; None, for no annotation, gives ``Any``.
        alias: returns the type for a name that is defined in the module, such as a type alias.
    """
    match node:
        case None:
            return Any
        case ast.Constant(value=str() as text):
            return read_type(ast.parse(text, mode="eval").body, alias)
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[read_type(left, alias), read_type(right, alias)]  # noqa: UP007 - built at run time
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Name(id=name):
            return alias(name)
        case ast.Subscript(value=base, slice=inner):
            outer = read_type(base, alias)
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if outer is Literal:
                return Literal[tuple(ast.literal_eval(item) for item in items)]
            ellipsis = [isinstance(item, ast.Constant) and item.value is ... for item in items]
            read = [... if dots else read_type(item, alias) for item, dots in zip(items, ellipsis, strict=True)]
            return outer[tuple(read) if len(read) > 1 else read[0]]
    raise UnknownType(ast.unparse(node))
