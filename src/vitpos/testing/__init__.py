"""``check_encoding``: tests whether a class keeps the contract of position encodings, such as independence of token order.

From Python or a test suite: ``check_encoding(MyEncoding, sigma=2.0)``; from a shell:
``python -m vitpos.testing mine.py:MyEncoding``, which prints a table and exits with 0 or 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.registry import Term, suggest
from vitpos.registry.descriptions import Description
from vitpos.testing.checks import CHECKS
from vitpos.testing.helpers import EncodingError, Subject, error_line, subject_of

__all__ = ["EncodingError", "check_encoding"]


def check_encoding(
    encoding: str | PositionEncoding | Callable[..., PositionEncoding],
    *,
    export: bool = False,
    skip: Collection[str] = (),
    geometry: Geometry | None = None,
    **options: Any,
) -> tuple[str, ...]:
    """Tests a position encoding against the contract of `PositionEncoding`; raises an EncodingError that lists failures.

    The checks are those of ``vitpos.testing.checks``, such as ``shapes``, ``dtypes`` and ``order``. Traits are
    properties such as ``translation_invariant``. They are checked in both directions, for a class with default options:
    a declared trait must hold, and a trait that holds must be declared.

    Returns the names of the checks that were left out: those in ``skip``; ``export`` by default; ``traits`` if options
    are given, for a sum of encodings and for an instance; and ``devices`` for an instance. An instance is tested by
    copies of it with random weights.

    Args:
        encoding: a class, a factory called with a Geometry, a spec such as ``rope(base=10)``, or an instance.
        export: also runs ``torch.export``, which takes some seconds.
        skip: names of checks that are left out.
        geometry: width and heads to test with; 32 and 2 by default. For an instance, the Geometry it was made for; by
            default its attribute ``geometry``.
        options: options of the encoding.
    """
    with torch.random.fork_rng(devices=()):  # the caller's random numbers do not change
        subject = subject_for(encoding, geometry, options)
        broken = {name: error for name, error in run_checks(subject, export=export, skip=skip) if error}
    if broken:
        by_error = {error: [name for name in broken if broken[name] == error] for error in broken.values()}
        listed = "\n".join(
            f"- {first}: {error}" + (f"; also in {', '.join(others)}" if others else "")
            for error, (first, *others) in by_error.items()
        )
        note = f"\nan instance was checked with {subject.geometry}; give the one it was made for as geometry=…"
        guessed = subject.copied and geometry is None and _own_geometry(encoding) is None
        count = len(CHECKS) - len(_left_out(subject, export, skip))
        raise EncodingError(
            f"{subject.name}: {len(broken)} of {count} checks failed\n{listed}{note if guessed else ''}"
        )
    return tuple(name for name in CHECKS if name in _left_out(subject, export, skip))


def run_checks(subject: Subject, *, export: bool = False, skip: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Runs the checks on an encoding; yields (name of the check, error message), with an empty message if it passes.

    Args:
        subject: the encoding under test.
        export: also runs the check ``export``, which calls ``torch.export``.
        skip: names of checks that are left out.
    """
    for name in skip:
        if name not in CHECKS:
            raise InputError(f"there is no check {name!r}; {suggest(name, CHECKS)}")
    left_out = _left_out(subject, export, skip)
    for name in CHECKS:
        if name not in left_out:
            yield name, _outcome(CHECKS[name], subject)


def _left_out(subject: Subject, export: bool, skip: Collection[str]) -> set[str]:
    """Returns the names of the checks that are not run on ``subject``, the encoding under test.

    They are those in ``skip``, ``"export"`` if ``export`` is False, ``"traits"`` if its traits are not checked (as for
    a sum of encodings), and ``"devices"`` if it is an instance.
    """
    impossible = {"traits": subject.traits is None, "devices": subject.copied, "export": not export}
    return {*skip, *(name for name, left_out in impossible.items() if left_out)}


def _own_geometry(encoding: Any) -> Geometry | None:
    """Returns the attribute ``geometry`` of an encoding, or of the first encoding of a sum that has one; None otherwise."""
    found = [part.geometry for part in encoding.parts if isinstance(getattr(part, "geometry", None), Geometry)]
    return found[0] if found else None


def _outcome(check: Callable[[Subject], None], subject: Subject) -> str:
    try:
        check(subject)
    except (EncodingError, InputError) as error:
        return str(error)
    except Exception as error:
        return f"raised {error_line(error, subject.files)}"
    return ""


def subject_for(encoding: Any, geometry: Geometry | None, options: dict[str, Any]) -> Subject:
    """Returns the `Subject` (encoding under test): a factory of the encoding, and factories of variants of it.

    A variant has one option changed.

    Args:
        encoding: a class, a factory called with a Geometry, a spec such as ``rope(base=10)``, or an instance.
        geometry: width and heads to test with, for an instance also depth and number of prefix tokens; None for a small
            default. The grid is always 3×4.
        options: options of the encoding.
    """
    if isinstance(encoding, PositionEncoding):
        geometry = geometry or _own_geometry(encoding)
    geometry = Geometry(32, 2, 2, (3, 4), 2) if geometry is None else geometry
    if not isinstance(geometry, Geometry):
        raise InputError(
            f"check_encoding got geometry={geometry!r}; give Geometry(dim, heads, depth, grid, num_prefix)"
        )
    if isinstance(encoding, str):
        terms = ENCODINGS.parse(encoding)
        if options and len(terms) > 1:
            raise InputError(f"options are ambiguous for the sum {encoding!r}; write them in the spec")
        terms = [Term(term.name, term.options | options) for term in terms]
        spec = ENCODINGS.canonical(" + ".join(map(str, terms)))
        make: Callable[[Geometry], PositionEncoding] = partial(ENCODINGS.build, spec)
        subject = subject_of(spec, make, geometry, traits=len(terms) == 1 and not terms[0].options)
        if len(terms) == 1:
            thing = ENCODINGS.load(terms[0].name)
            subject.variants = list(_variants(thing, ENCODINGS.describe(terms[0].name), terms[0].options, geometry))
        return subject
    if isinstance(encoding, PositionEncoding):
        if options:
            raise InputError(f"an instance has its options already; leave out {', '.join(options)}, or give its class")
        if geometry.depth < 2:
            raise InputError(
                f"check_encoding needs an instance for 2 or more blocks, not {geometry.depth}; give its class"
            )
        subject = subject_of(type(encoding).__qualname__, lambda _: deepcopy(encoding).cpu(), geometry, traits=False)
        subject.copied = True
        return subject
    if not callable(encoding):
        raise InputError(f"check_encoding got {encoding!r}; give a class, a factory, a spec or an instance")
    name = getattr(encoding, "__qualname__", repr(encoding))
    default = inspect.isclass(encoding) or inspect.isroutine(encoding)
    subject = subject_of(name, partial(encoding, **options), geometry, traits=default and not options)
    if inspect.isclass(encoding):
        subject.variants = list(_variants(encoding, ENCODINGS.describe(encoding), options, geometry))
    return subject


def _variants(
    thing: Any, described: Description, options: dict[str, Any], geometry: Geometry
) -> Iterator[Callable[[Geometry], PositionEncoding]]:
    """Yields factories of an encoding class, each with one option changed: a bool negated, a float × 1.5, another choice.

    Args:
        thing: the class.
        described: its description, which lists the options.
        options: options that are already set.
        geometry: a variant that cannot be built for it is left out.
    """
    for name, option in described.options.items():
        now = options.get(name, option.default)
        if isinstance(now, bool):
            others: list[Any] = [not now]
        elif isinstance(now, float):
            others = [1.5 * now]
        else:
            others = [choice for choice in option.choices if choice != now][:1]
        for value in others:
            make = partial(thing, **(options | {name: value}))
            try:
                make(geometry)
            except Exception:  # the encoding does not accept this value, or not for this geometry
                continue
            yield make
