"""The one look-up: from a spec such as ``"learned + rope(base=10)"`` to the object it names.

A catalogue is a visible dict of lazy ``"module:object"`` strings. What an entry takes is read from its source text, so
that listing and checking need neither an import nor a second list of names. Specs are parsed, never evaluated.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

from vitpos.errors import UserError


@dataclass(frozen=True)
class Option:
    """One keyword of an entry: its default and its annotation, as written in the source."""

    default: Any
    annotation: ast.expr | None

    def __str__(self) -> str:
        return ast.unparse(self.annotation) if self.annotation else "any"

    @property
    def choices(self) -> list[Any]:
        """The values of its Literal, if its annotation has one."""
        nodes = ast.walk(self.annotation) if self.annotation else ()
        literals = [n for n in nodes if isinstance(n, ast.Subscript) and ast.unparse(n.value) == "Literal"]
        return [choice for literal in literals for choice in _constants(literal.slice)]


@dataclass(frozen=True)
class Entry:
    """What the source says of one catalogue entry."""

    name: str
    definition: str  # the whole docstring
    options: dict[str, Option]
    facts: dict[str, Any]  # what the body of the class assigns, such as ``traits``
    methods: tuple[str, ...]  # what the class defines itself

    @property
    def traits(self) -> tuple[str, ...]:
        """What the class declares of itself, if anything."""
        return self.facts.get("traits", ())

    @property
    def summary(self) -> str:
        """The first sentence of the docstring, on one line."""
        return " ".join(self.definition.split("\n\n")[0].split())


@dataclass(frozen=True)
class Term:
    """One ``name(option=value)`` of a spec."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value!r}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name


class Catalog(dict[str, str]):
    """A dict from names to lazy ``"module:object"`` strings that can build what a spec describes."""

    def __init__(self, kind: str, entries: Mapping[str, str], *, sums: bool = False):
        super().__init__(entries)
        self.kind = kind
        self.sums = sums  # whether things of this kind can be added

    def build(self, spec: str, *args: Any) -> Any:
        """The object a spec names, called with ``args`` and the spec's options; several terms are added up."""
        return reduce(operator.add, (self.load(term.name)(*args, **term.options) for term in self.parse(spec)))

    def load(self, name: str) -> Any:
        """The class or function behind a name, imported now."""
        module, _, attribute = self[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def parse(self, spec: str) -> list[Term]:
        """The terms of a spec, each with a known name and options that exist and have the right type."""
        try:
            tree = ast.parse(spec.strip(), mode="eval").body
        except (SyntaxError, ValueError, AttributeError):
            raise self._unreadable(spec) from None
        terms = [self._term(node, spec) for node in _summands(tree)]
        if len(terms) > 1 and not self.sums:
            raise UserError(f"cannot add in {self.kind} spec {spec!r}; give one {self.kind} at a time")
        return terms

    def canonical(self, spec: str) -> str:
        """The spec as we write it: checked, with one way of spacing and quoting."""
        return " + ".join(str(term) for term in self.parse(spec))

    def filled(self, term: Term) -> dict[str, Any]:
        """All options of a term, as they are unless told otherwise."""
        return {name: option.default for name, option in self.describe(term.name).options.items()} | term.options

    def spelt(self, spec: str, known: Iterable[str]) -> str:
        """The one of some known specs that means the same, defaults left out or not; else the spec as we write it."""
        meaning = [(term.name, self.filled(term)) for term in self.parse(spec)]
        alike = (k for k in known if [(term.name, self.filled(term)) for term in self.parse(k)] == meaning)
        return next(alike, self.canonical(spec))

    def describe(self, name: str) -> Entry:
        """What the source of an entry says: summary, options, traits; nothing is imported."""
        if name not in self:
            raise UserError(f"no {self.kind} {name!r}; {suggest(name, self)}")
        return _read(name, self[name])

    def _term(self, node: ast.expr, spec: str) -> Term:
        if isinstance(node, ast.Name):
            node = ast.Call(node, [], [])
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
            raise self._unreadable(spec)
        entry = self.describe(node.func.id)
        values = {}
        for keyword in node.keywords:
            if keyword.arg not in entry.options:
                known = suggest(keyword.arg or "**", entry.options)
                raise UserError(f"{self.kind} {entry.name!r} has no option {keyword.arg!r}; {known}")
            if keyword.arg in values:
                raise UserError(f"{self.kind} {entry.name!r}: option {keyword.arg!r} is given twice; keep one")
            try:
                value = ast.literal_eval(keyword.value)
            except (ValueError, TypeError):
                text = ast.unparse(keyword.value)
                named = text.isidentifier() and text not in ("inf", "nan")
                hint = f"write {keyword.arg}={text!r} with quotes" if named else "write a plain, finite value"
                raise UserError(
                    f"{self.kind} {entry.name!r}: option {keyword.arg!r} got {text}, which is not a value; {hint}"
                ) from None
            option = entry.options[keyword.arg]
            if not accepts(option.annotation, value):
                raise UserError(
                    f"{self.kind} {entry.name!r}: option {keyword.arg!r} takes {_words(option)}, not {value!r}"
                )
            values[keyword.arg] = settle(option.annotation, value)
        return Term(entry.name, {key: values[key] for key in entry.options if key in values})

    def _unreadable(self, spec: object) -> UserError:
        return UserError(
            f"cannot read {self.kind} spec {spec!r}; write a name, with options as name(option=value), joined by +"
        )


def suggest(name: str, known: Iterable[str]) -> str:
    """The remedy for a name that does not exist: the nearest one, or all there are."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there is {', '.join(names)}" if names else "it takes none"


def accepts(annotation: ast.expr | None, value: Any) -> bool:
    """Whether a plain value fits an annotation written with int, float, bool, str, tuple, Literal, None and |."""
    match annotation:
        case None:
            return True
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return accepts(left, value) or accepts(right, value)
        case ast.Constant(value=None):
            return value is None
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return any(type(value) is type(choice) and value == choice for choice in _constants(choices))
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            if not isinstance(value, tuple | list):
                return False
            if isinstance(items[-1], ast.Constant) and items[-1].value is ...:
                items = [items[0]] * len(value)
            return len(items) == len(value) and all(map(accepts, items, value))
        case ast.Name(id="float"):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.Name(id="int"):
            return isinstance(value, int) and not isinstance(value, bool)
        case ast.Name(id="bool" | "str" as name):
            return type(value).__name__ == name
    raise AssertionError(f"an option is annotated {ast.unparse(annotation)}, which nobody can check")


def settle(annotation: ast.expr | None, value: Any) -> Any:
    """An accepted value in its one form, so that specs can be compared: lists as tuples, numbers for floats as floats."""
    if isinstance(value, list | tuple):
        return tuple(value)
    if isinstance(value, int) and isinstance(annotation, ast.Name) and annotation.id == "float":
        return float(value)
    return value


def _constants(node: ast.expr) -> list[Any]:
    return [ast.literal_eval(item) for item in (node.elts if isinstance(node, ast.Tuple) else [node])]


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


@cache
def _read(name: str, target: str) -> Entry:
    """Finds the class or function of ``"module:object"`` in its source file and reads what it says of itself."""
    module, _, attribute = target.partition(":")
    found = importlib.util.find_spec(module)
    assert found and found.origin, f"catalogue entry {name!r} points to {module}, which is not there"
    tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == attribute)
    body = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)} if isinstance(node, ast.ClassDef) else {}
    call = node if isinstance(node, ast.FunctionDef) else body.get("__init__")
    options = {}
    if call:
        for argument, default in zip(call.args.kwonlyargs, call.args.kw_defaults, strict=True):
            assert default is not None, f"option {argument.arg!r} of {name!r} has no default"
            options[argument.arg] = Option(ast.literal_eval(default), argument.annotation)
    facts = {}
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=fact)], value=value) if not isinstance(node, ast.FunctionDef):
                facts[fact] = ast.literal_eval(value)
    return Entry(name, ast.get_docstring(node) or "", options, facts, tuple(body))


def _words(option: Option) -> str:
    """What an option takes, as it is said to a user."""
    return re.sub(r"Literal\[(.*?)\]", r"one of \1", str(option)).replace(" | None", ", or None")
