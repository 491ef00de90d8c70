"""The registry: maps names to classes and builds objects from specs such as ``"learned + rope(base=10)"``.

Built-in names are stored as ``"module:object"`` strings and imported at first use. Other packages add names by entry
points, and user files by decorators (``register_encoding``). A spec can also name a class directly, as ``file.py:Class``
or ``package.module:Class``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from typing import Any, TypeVar

from vitpos.errors import InputError
from vitpos.printable import sanitize
from vitpos.registry import plugins
from vitpos.registry.descriptions import REQUIRED, Description, Option, describe_object
from vitpos.registry.option_types import UnknownType, matches_type, normalize_value, type_prose
from vitpos.registry.plugin_records import reference_to
from vitpos.registry.source_descriptions import describe_source
from vitpos.registry.specs import SpecSyntaxError, Term, reference, split_terms
from vitpos.registry.suggestions import suggest

T = TypeVar("T")
MAX_SPEC = 4000  # characters; the sum of all encodings has fewer


class Registry(Mapping[str, Any]):
    """A mapping from names to classes or functions that builds objects from specs such as ``"learned + rope(base=10)"``.

    Classes are imported at first use.

    Args:
        kind: what one entry is called in messages, such as ``encoding``.
        entries: built-in names and their ``"module:object"``.
        sums: whether a spec may add several entries, as in ``"learned + rope"``.
        positional: number of positional arguments that an entry takes before its options.
        group: entry-point group in which other packages register names.
        base: ``"module:class"`` that all built objects are instances of; :meth:`build` returns such an instance unchanged.
        includes: registries whose names are also in this one.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, str],
        *,
        sums: bool = False,
        positional: int = 0,
        group: str = "",
        base: str = "",
        includes: Iterable[Registry] = (),
    ):
        self.kind, self.sums, self.positional, self.group, self.base = kind, sums, positional, group, base
        self._builtin = dict(entries)
        self._registered: dict[str, Any] = {}
        self._includes = tuple(includes)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(name)
        return self.load(name)

    def __iter__(self) -> Iterator[str]:
        installed = plugins.entry_points(self.group, self._builtin)
        included = [name for registry in self._includes for name in registry]
        return iter(dict.fromkeys([*self._builtin, *included, *installed, *self._registered]))

    def __contains__(self, name: object) -> bool:
        known = name in self._builtin or name in self._registered or any(name in one for one in self._includes)
        return known or name in plugins.entry_points(self.group, self._builtin)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def builtin(self) -> list[str]:
        """Names of the entries of the package itself, without those of plug-ins."""
        return list(self._builtin)

    def register(self, name: str) -> Callable[[T], T]:
        """Returns a decorator that registers a class or function under ``name``."""
        if not isinstance(name, str):
            raise InputError(f"no name is given for an entry of kind {self.kind!r}; add one, as @register_…('my_name')")
        if not name.isidentifier():
            raise InputError(f"{self.kind} name {name!r} cannot be written in a spec; choose letters, digits and _")

        def add(thing: T) -> T:
            if name in self._builtin or any(name in one for one in self._includes):
                raise InputError(f"{self.kind} {name!r} is built in; register yours under another name, as 'my_{name}'")
            before = self._registered.get(name)
            if before is None and name in (installed := plugins.entry_points(self.group, self._builtin)):
                point = installed[name]
                before = thing if plugins.identity(thing)[1] == point.attr else point
            if before is not None and plugins.identity(before) != plugins.identity(thing):
                other = " of ".join(map(str, reversed(plugins.identity(before))))
                raise InputError(f"{self.kind} {name!r} is registered by {other} already; choose another name")
            self._registered[name] = thing
            plugins.REGISTERED[self.kind, name] = thing
            return thing

        return add

    def build(self, what: Any, *args: Any) -> Any:
        """Builds an object by calling a class or factory with ``args`` and the options of a spec.

        Args:
            what: a spec such as ``learned + rope(base=10)``, a class or a factory. The objects of a spec's terms are added
                (``+``). An object that is already built is returned unchanged.
            args: positional arguments, such as the Geometry (width, heads, grid …) of an encoding.
        """
        if isinstance(what, str):
            made = [self._make(term.name, self.load(term.name), args, term.options) for term in self.parse(what)]
            return reduce(operator.add, made)
        if self.base and isinstance(what, _imported(self.base)):
            return what
        name = getattr(what, "__qualname__", type(what).__name__)
        self._require_factory(name, what)
        return self._make(name, what, args, {})

    def load(self, name: str) -> Any:
        """Imports and returns the class or function for a registered name, or for a reference such as ``file.py:Class``."""
        if name in self._builtin:
            return _imported(self._builtin[name])
        if name in self._registered:
            return self._registered[name]
        for registry in self._includes:
            if name in registry:
                return registry.load(name)
        if (point := plugins.entry_points(self.group, self._builtin).get(name)) is not None:
            return plugins.load_entry_point(self.kind, point)
        if found := reference(name):
            return plugins.load_reference(*found)
        if (self.kind, name) in plugins.UNAVAILABLE_NAMES:
            raise InputError(plugins.UNAVAILABLE_NAMES[self.kind, name][0])
        raise InputError(f"no {self.kind} {name!r}; {suggest(name, self)}")

    def parse(self, spec: str) -> list[Term]:
        """Parses a spec into terms: ``"learned + rope(base=10)"`` has the terms ``learned`` and ``rope(base=10)``.

        Raises an InputError for unknown names and options, and for values of the wrong type.
        """
        try:
            found = split_terms(spec if isinstance(spec, str) and len(spec) <= MAX_SPEC else "")
        except SpecSyntaxError:
            shown = repr(spec) if isinstance(spec, str) and len(spec) < 200 else sanitize(spec)
            in_file = isinstance(spec, str) and spec.endswith(".py")
            hint = f"{sanitize(spec)}:CLASS" if in_file else "a name, with options as name(option=value), joined by +"
            raise InputError(f"cannot read {self.kind} spec {shown}; write {hint}") from None
        terms = [self._term(name, keywords) for name, keywords in found]
        if len(terms) > 1 and not self.sums:
            raise InputError(f"cannot add in {self.kind} spec {spec!r}; give one {self.kind} at a time")
        return terms

    def canonical(self, spec: str) -> str:
        """Returns a spec in canonical form, with uniform spacing and quotes: ``"rope( base=10 )"`` → ``"rope(base=10.0)"``.

        Raises an InputError if the spec is not valid. Paths of files are kept as typed.
        """
        return " + ".join(str(term) for term in self.parse(spec))

    def with_defaults(self, term: Term) -> dict[str, Any]:
        """Returns all options of a term such as ``rope(base=10)`` by name, with the defaults of those it does not set."""
        return {name: option.default for name, option in self.describe(term.name).options.items()} | term.options

    def stored_spelling(self, spec: str, known: Iterable[str]) -> str:
        """Returns the spec in ``known`` that has the same meaning as ``spec``; the canonical ``spec`` if there is none.

        Specs have the same meaning if they differ only in options that are written out with their default value.
        """
        meaning = [(term.name, self.with_defaults(term)) for term in self.parse(spec)]
        equal = (k for k in known if [(term.name, self.with_defaults(term)) for term in self.parse(k)] == meaning)
        return next(equal, self.canonical(spec))

    def describe(self, what: Any) -> Description:
        """Returns the `Description` (docstring, options, class attributes) of a class or factory.

        Args:
            what: a name, a reference such as ``file.py:Class``, a class, a factory or an instance. The module of a
                built-in name is not imported.
        """
        if not isinstance(what, str):
            what = what.func if isinstance(what, partial) else what
            what = what if inspect.isroutine(what) or inspect.isclass(what) else type(what)
            return describe_object(what.__qualname__, what, self.positional)
        for registry in self._includes:
            if what in registry:
                return registry.describe(what)
        if what in self._builtin:
            try:
                return describe_source(what, self._builtin[what])
            except UnknownType:  # for example, a default is not a literal
                pass
        if what not in self and (self.kind, what) in plugins.UNAVAILABLE_NAMES:
            return plugins.UNAVAILABLE_NAMES[self.kind, what][1]
        thing = self.load(what)
        self._require_factory(what, thing)
        return describe_object(what, thing, self.positional)

    def spec_of(self, thing: Any) -> str:
        """Returns a spec for a class or function: its registered name, or a reference such as ``mine.py:Class``.

        A ``functools.partial`` with keyword arguments gives a spec with options, such as ``mine.py:Class(slope=2.0)``.
        """
        if isinstance(thing, str):
            return thing
        options: dict[str, Any] = {}
        if isinstance(thing, partial) and not thing.args:
            thing, options = thing.func, thing.keywords
        if not inspect.isclass(thing) and not inspect.isfunction(thing):
            given = type(thing).__name__
            raise InputError(f"{self.kind} of type {given} cannot be stored with a run; give the class or a spec")
        for key, value in options.items():
            if not Option(value, Any).literal:
                where = f"{self.kind} {thing.__name__}: option {key!r} of type {type(value).__name__}"
                raise InputError(f"{where} cannot be stored with a run; give a number, a text or a tuple of them")
        return str(Term(self._name_of(thing), options))

    def _name_of(self, thing: Any) -> str:
        """Returns the registered name of a class or function, or a reference such as ``mine.py:Class``."""
        target = f"{thing.__module__}:{thing.__qualname__}"
        for registry in (self, *self._includes):
            for name, known in {**registry._builtin, **registry._registered}.items():
                if known == target or known is thing:
                    return name
        if not thing.__name__.isidentifier():
            raise InputError(f"{self.kind} {thing.__name__} cannot be stored with a run; define it with def and a name")
        return reference_to(thing)

    def describe_all(self, what: Any) -> list[Description]:
        """Returns a `Description` (docstring, options, class attributes) per term of a spec such as ``learned + rope``.

        For a class, factory or instance, returns a list with its description.
        """
        return (
            [self.describe(term.name) for term in self.parse(what)] if isinstance(what, str) else [self.describe(what)]
        )

    def _require_factory(self, name: str, thing: Any) -> None:
        """Raises an InputError if ``thing`` is not callable, or a class that is no subclass of the registry's base class.

        ``name`` is its name in the message.
        """
        base = _imported(self.base) if self.base else ()
        where, made = f"{self.kind} {name!r}", self.base.replace(":", ".")
        if not callable(thing) or isinstance(thing, base):
            kind = type(thing).__name__
            raise InputError(f"{where} is an object of type {kind}, not a class or function; give a class or a spec")
        if base and inspect.isclass(thing) and (thing is base or not issubclass(thing, base)):
            problem = "the base class itself" if thing is base else f"no subclass of {made}"
            raise InputError(f"{where} is {problem}; give a subclass of {made}")

    def _make(self, name: str, thing: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        with plugins.plugin_errors(f"{self.kind} {name!r}", thing):
            made = thing(*args, **options)
        if self.base and not isinstance(made, _imported(self.base)):
            wanted = self.base.replace(":", ".")
            raise InputError(f"{self.kind} {name!r} makes a {type(made).__name__}; it has to make a {wanted}")
        return made

    def _term(self, name: str, keywords: list[ast.keyword]) -> Term:
        described = self.describe(name)
        values: dict[str, Any] = {}
        for keyword in keywords:
            option = described.options.get(keyword.arg or "")
            if option is None and not (described.open and keyword.arg):
                known = suggest(keyword.arg or "**", described.options)
                raise InputError(f"{self.kind} {name!r} has no option {keyword.arg!r}; {known}")
            if keyword.arg in values:
                raise InputError(f"{self.kind} {name!r}: option {keyword.arg!r} is given twice; keep one")
            values[str(keyword.arg)] = self._value(name, keyword, option or Option(None, Any))
        for key, option in described.options.items():
            if option.default is REQUIRED and key not in values:
                raise InputError(f"{self.kind} {name!r} needs option {key!r}; write {name}({key}=…)")
        ordered = [key for key in described.options if key in values]
        return Term(name, {key: values[key] for key in dict.fromkeys([*ordered, *values])})

    def _value(self, name: str, keyword: ast.keyword, option: Option) -> Any:
        where = f"{self.kind} {name!r}: option {keyword.arg!r}"
        try:
            value = ast.literal_eval(keyword.value)
            ast.literal_eval(repr(value))  # 1e400 is inf, which a spec cannot contain
        except (ValueError, TypeError, RecursionError, MemoryError):
            text = ast.unparse(keyword.value)
            hint = f"write a plain, finite value: {type_prose(option.type)}"
            if text.isidentifier() and matches_type(option.type, text):
                hint = f"write {keyword.arg}={text!r} with quotes"
            raise InputError(f"{where} got {text}, which is not a value; {hint}") from None
        if not matches_type(option.type, value):
            raise InputError(f"{where} takes {type_prose(option.type)}, not {value!r}")
        return normalize_value(option.type, value)


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
