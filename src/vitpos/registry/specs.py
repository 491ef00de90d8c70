"""The grammar of specs: ``name(option=value)``, ``file.py:Class(…)`` and ``package.module:Class(…)``, joined by ``+``.

A small scanner splits a spec into terms, because a path is not a Python expression. Options are parsed as Python literals
and never evaluated. A path that contains ``+`` or a parenthesis is written in quotes: ``'a+b/mine.py':Class``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

_REFERENCE = re.compile(r"(?P<home>.+):(?P<object>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.DOTALL)
_PAIRS = {")": "(", "]": "[", "}": "{"}


class SpecSyntaxError(ValueError):
    """Raised for a text that is not a spec such as ``rope(base=10)``; the registry converts it into an InputError."""


@dataclass(frozen=True)
class Term:
    """One term of a spec, i.e. a name with options: the spec ``learned + rope(base=10)`` has two terms.

    The name may be a reference such as ``file.py:Class``.
    """

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        home, attribute = reference(self.name) or ("", "")
        name = f"{home!r}:{attribute}" if set(home) & set("+()'\"") else self.name
        return f"{name}({options})" if options else name


def reference(name: str) -> tuple[str, str] | None:
    """Splits a reference to a class at its colon: ``file.py:Class`` → ``("file.py", "Class")``; None for a plain name."""
    found = _REFERENCE.fullmatch(name)
    return (found["home"], found["object"]) if found else None


def split_terms(spec: str) -> list[tuple[str, list[ast.keyword]]]:
    """Splits a spec such as ``learned + rope(base=10)`` at ``+``.

    Returns for each term its name and the syntax-tree nodes of its ``option=value`` pairs.
    """
    terms, at = [], 0
    while True:
        name, at = _name(spec, at)
        end = _closing(spec, at) if spec[at : at + 1] == "(" else at
        terms.append((name, _keywords(spec[at:end])))
        rest = spec[end:].lstrip()
        if not rest:
            return terms
        if rest[0] != "+":
            raise SpecSyntaxError(spec)
        at = len(spec) - len(rest) + 1


def _name(spec: str, at: int) -> tuple[str, int]:
    """Reads the name that begins at or after index ``at`` of a spec; returns it without quotes, and the index after it."""
    at += len(spec[at:]) - len(spec[at:].lstrip())
    path = ""
    if spec[at : at + 1] in ("'", '"'):
        end = _quoted(spec, at)
        path, at = ast.literal_eval(spec[at:end]), end
    end = min((i for i in (spec.find("+", at), spec.find("(", at)) if i >= 0), default=len(spec))
    name = path + spec[at:end].strip()
    if not (name.isidentifier() if not path and ":" not in name else reference(name)):
        raise SpecSyntaxError(spec)
    return name, end


def _quoted(spec: str, at: int) -> int:
    """Returns the index after the string literal that begins at index ``at`` of a spec."""
    end = at + 1
    while end < len(spec) and spec[end] != spec[at]:
        end += 2 if spec[end] == "\\" else 1
    if end >= len(spec):
        raise SpecSyntaxError(spec)
    return end + 1


def _closing(spec: str, at: int) -> int:
    """Returns the index after the bracket that closes the opening bracket at index ``at`` of a spec."""
    opened: list[str] = []
    while at < len(spec):
        if spec[at] in "'\"":
            at = _quoted(spec, at)
            continue
        if spec[at] in _PAIRS.values():
            opened.append(spec[at])
        elif spec[at] in _PAIRS and (not opened or opened.pop() != _PAIRS[spec[at]]):
            raise SpecSyntaxError(spec)
        at += 1
        if not opened:
            return at
    raise SpecSyntaxError(spec)


def _keywords(text: str) -> list[ast.keyword]:
    """Parses ``(option=value, …)`` into syntax-tree keyword nodes; returns an empty list for an empty text."""
    if not text:
        return []
    try:
        call = ast.parse(f"_{text}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecSyntaxError(text) from None
    if not isinstance(call, ast.Call) or call.args:
        raise SpecSyntaxError(text)
    return call.keywords
