"""Descriptions of registered classes and functions: docstring, options, class attributes.

Here they are read from imported objects; `vitpos.registry.source_descriptions` reads those of built-in classes from source
text.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Any, get_origin, get_type_hints

from vitpos.registry.option_types import choices, type_text

REQUIRED = inspect.Parameter.empty  # the default of an option that has none
_ARGUMENTS = re.compile(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
PACKAGE = __name__.partition(".")[0]
ENCODING_BASE = f"{PACKAGE}.encodings.base"  # its methods do nothing; a subclass overrides those it needs


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
    """Returns the `Description` of a class or function: its docstring, and as options its keyword arguments.

    A class with ``**kwargs`` also has the options of its bases, a function with ``**kwargs: Annotated[Any, Class]`` those
    of that class.

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
    own = [c for c in classes if not c.__module__.startswith("torch.") and c.__module__ != ENCODING_BASE]
    methods = tuple(dict.fromkeys(key for c in own for key, value in vars(c).items() if inspect.isfunction(value)))
    described = Description(name, inspect.getdoc(thing) or "", options, attributes, methods, is_open)
    passed_on: Any = _hints(thing, extras=True).get(_var_keyword(thing)) if is_open else None
    if get_origin(passed_on) is not Annotated:
        return described
    return with_options_of(described, describe_object(name, passed_on.__metadata__[0], positional))


def with_options_of(own: Description, other: Description) -> Description:
    """Returns the description of a function, extended by the options of the class to which it passes its ``**kwargs``.

    An option that both have is taken from the function.

    Args:
        own: description of the function.
        other: description of the class; the ``Args:`` list of its docstring is appended to that of the function.
    """
    texts, known = other.arguments, own.arguments
    more = "".join(f"\n    {key}: {texts[key]}" for key in other.options if key in texts and key not in known)
    definition = own.definition.rstrip() + ("" if known or not more else "\n\nArgs:") + more
    return replace(own, definition=definition, options=other.options | own.options, open=False)


def _var_keyword(call: Any) -> str:
    """Returns the name of the ``**kwargs`` of a function."""
    parameters = inspect.signature(call).parameters.values()
    return next(parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD)


def _calls(thing: Any) -> Iterator[Any]:
    """Yields the callables whose arguments are the options: the function, or each ``__init__`` of a class and its bases."""
    if not inspect.isclass(thing):
        yield thing
        return
    for base in thing.__mro__:
        if "__init__" in vars(base) and base is not object and not base.__module__.startswith("torch."):
            yield vars(base)["__init__"]


def _hints(call: Any, *, extras: bool = False) -> dict[str, Any]:
    """Returns the argument types of a callable by name; an annotation that cannot be evaluated is returned as text.

    With ``extras``, a type ``Annotated[T, …]`` is returned as it is, otherwise as ``T``.
    """
    call = inspect.unwrap(call.func if isinstance(call, partial) else call)
    found = dict(getattr(call, "__annotations__", {}))
    for name, annotation in found.items():
        one = SimpleNamespace(__annotations__={name: annotation}, __globals__=getattr(call, "__globals__", {}))
        with suppress(
            Exception
        ):  # a name imported for type checkers alone, or anything else an annotation may evaluate
            found[name] = get_type_hints(one, include_extras=extras)[name]
    return found


def _is_literal_attribute(key: str, value: Any) -> bool:
    return not key.startswith("_") and isinstance(value, str | bool | int | float | tuple | frozenset | set | list)
