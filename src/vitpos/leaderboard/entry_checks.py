"""What the JSON file of a leaderboard entry must contain; every check refuses it with one line."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError
from vitpos.files import os_reason
from vitpos.leaderboard.protocol import Measure, Protocol, family_of, protocols
from vitpos.printable import sanitize
from vitpos.registry import suggest
from vitpos.registry.specs import SpecSyntaxError, split_terms
from vitpos.regular_files import read_regular

FORMAT = 1
TOLERANCE = 1e-4  # of training losses: rounding on other processors changes them by 1e-6, another recipe by 1e-3
MAX_BYTES = 1_000_000  # larger files are refused
KEYS: dict[str, type] = {
    **dict.fromkeys(("protocol", "protocol_sha256", "encoding", "family", "summary", "paper", "commit", "digest"), str),
    **dict.fromkeys(("code", "numbers", "training_losses", "reasons", "machine", "maps"), dict),
    "quick": bool,
}
OPTIONAL_KEYS: dict[str, type] = {"data": str}
Content = Mapping[str, Any]
Refuse = Callable[[str], InputError]
AGAIN = "make it again with 'vitpos score'"


def read_content(path: Path, refuse: Refuse) -> dict[str, Any]:
    """Reads the JSON file of an entry; checks its size, format, keys and digest, and returns its content."""
    try:
        content = json.loads(read_regular(path, max_bytes=MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        cause = os_reason(error) if isinstance(error, OSError) else sanitize(error)
        raise refuse(f"it cannot be read as JSON ({cause})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise refuse(f"its 'format' is not {FORMAT}; {AGAIN}")
    for name, kind in KEYS.items():
        if not isinstance(content.get(name), kind):
            raise refuse(f"'{name}' is missing or not a {kind.__name__}; {AGAIN}")
    for name, kind in OPTIONAL_KEYS.items():
        if not isinstance(content.get(name, kind()), kind):
            raise refuse(f"'{name}' is not a {kind.__name__}; {AGAIN}")
    unknown = set(content) - set(KEYS) - set(OPTIONAL_KEYS) - {"format"}
    if unknown:
        raise refuse(f"it has the unknown key {sanitize(min(unknown))!r}; remove it")
    if content["digest"] != digest(content):
        raise refuse(f"its digest does not match: the file was edited; {AGAIN}")
    return content


def digest(content: Content) -> str:
    """Returns the sha256 of an entry's content without its digest, independent of the order of keys and of whitespace.

    It finds accidental changes. It is no signature: whoever changes a file can compute it again.
    """
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def check_protocol(content: Content, refuse: Refuse) -> Protocol:
    """Returns the protocol of an entry; refuses another version of it, and families that it does not have."""
    name = content["protocol"]
    if name not in protocols():
        raise refuse(f"no protocol {sanitize(name)!r}; {suggest(name, protocols())}")
    protocol = Protocol.load(name)
    if content["protocol_sha256"] != protocol.sha256:
        raise refuse(f"it was made with another version of the protocol {name!r}; {AGAIN}")
    if protocol.needs_data and not content.get("data"):
        raise refuse(f"it does not say on which data it was trained ('data'); {AGAIN}")
    if content["family"] not in protocol.learning_rates:
        raise refuse(
            f"no family {sanitize(content['family'])!r}; {suggest(content['family'], protocol.learning_rates)}"
        )
    return protocol


def check_texts(content: Content, refuse: Refuse) -> None:
    """Refuses texts with control characters or line breaks, and maps that are not grids of finite numbers."""
    for name, value in content.items():
        texts = [value] if isinstance(value, str) else [*value, *value.values()] if name in _OF_TEXTS else ()
        for text in texts:
            if not isinstance(text, str):
                raise refuse(f"'{name}' has a value that is not text; {AGAIN}")
            if not text.isprintable():
                raise refuse(f"'{name}' has the unprintable text {sanitize(text)!r}; {AGAIN}")
    if not all(title.isprintable() and _is_stack(grids) for title, grids in content["maps"].items()):
        raise refuse(f"'maps' has a value that is not a list of grids of finite numbers; {AGAIN}")


_OF_TEXTS = ("code", "reasons", "machine")  # keys of dictionaries of texts


def check_numbers(content: Content, protocol: Protocol, refuse: Refuse) -> None:
    """Refuses entries that lack a number of a seed, or have one that is out of range or occurs in no column."""
    numbers = content["numbers"]
    for key in (*numbers, *content["reasons"]):
        if key not in protocol.columns:
            raise refuse(f"the protocol has no column {sanitize(key)!r}; {suggest(key, protocol.columns)}")
    if not all(isinstance(by_seed, dict) and by_seed for by_seed in numbers.values()):
        raise refuse(f"'numbers' must give a number for each seed; {AGAIN}")
    seeds = dict.fromkeys(seed for by_seed in numbers.values() for seed in by_seed)
    if not seeds:
        raise refuse(f"it has no numbers; {AGAIN}")
    for seed in seeds:
        if not re.fullmatch(r"0|[1-9]\d{0,9}", seed, re.ASCII):
            raise refuse(f"{sanitize(seed)!r} is not a seed, which is a whole number of at least 0; {AGAIN}")
    for key, column in protocol.columns.items():
        by_seed = numbers.get(key, {})
        if column.optional and content["reasons"].get(key) and not by_seed:
            continue
        missing = [seed for seed in seeds if seed not in by_seed]
        if missing:
            raise refuse(f"{key!r} of seed {missing[0]} is missing; finish it with the same 'vitpos score'")
        for seed, value in by_seed.items():
            if problem := _out_of_range(column, value):
                raise refuse(f"{key!r} of seed {seed} is {sanitize(value)}, which {problem}")
    one_of = {tuple(numbers[key][seed] for key in numbers): seed for seed in seeds}
    if len(one_of) < len(seeds) and not content["quick"]:
        other = next(seed for seed in seeds if seed not in one_of.values())
        raise refuse(f"seed {other} has the same numbers as another seed; {AGAIN}")


def check_training(content: Content, protocol: Protocol, refuse: Refuse) -> None:
    """Refuses entries whose short trainings of the baselines gave other losses than those of the protocol."""
    losses = content["training_losses"]
    if not all(isinstance(loss, float) and math.isfinite(loss) for loss in losses.values()):
        raise refuse(f"'training_losses' has a value that is not a finite number; {AGAIN}")
    if content["encoding"] not in losses:
        raise refuse(f"'training_losses' lacks {sanitize(content['encoding'])!r}; {AGAIN}")
    for encoding, loss in protocol.training_losses.items():
        found = losses.get(encoding, math.nan)
        if not abs(found - loss) < TOLERANCE:
            raise refuse(
                f"the short training of {encoding!r} has the loss {found} instead of {loss}: it was made with a "
                "version of vitpos that trains differently; run 'vitpos score' again with the current version"
            )


def check_encoding(content: Content, refuse: Refuse) -> None:
    """Refuses entries whose spec or family contradicts the encodings of the package.

    Other encodings are not imported, and nothing but the form of their spec is checked.
    """
    spec = content["encoding"]
    try:
        names = [name for name, _ in split_terms(spec)]
    except SpecSyntaxError:
        raise refuse(f"{sanitize(spec)!r} is not the spec of an encoding; {AGAIN}") from None
    if set(content["code"]) != set(names):
        raise refuse(f"'code' has hashes of {sanitize(sorted(content['code']))} and not of {sanitize(names)}; {AGAIN}")
    if not all(name in ENCODINGS.builtin for name in names):
        return
    try:
        canonical = ENCODINGS.canonical(spec)
    except InputError as error:
        raise refuse(str(error)) from None
    if spec != canonical:
        raise refuse(f"the encoding {spec!r} is not in its canonical form {canonical!r}; {AGAIN}")
    if content["family"] != family_of_spec(spec):
        raise refuse(f"{spec!r} is in the family {family_of_spec(spec)!r}, not {content['family']!r}; {AGAIN}")


def family_of_spec(encoding: Any) -> str:
    """Returns the family of an encoding (context, rotary, bias or added), found by building it for a small model.

    Args:
        encoding: A spec such as ``rope(base=10)``, a class or a factory.
    """
    built = ENCODINGS.build(encoding, Geometry(256, 4, 4, (8, 8)))  # heads of width 64, as in published models
    return family_of(built.hooks, [trait for part in built.parts for trait in part.traits])


def _out_of_range(column: Measure, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "is not a number"
    if not 0 <= value < 1e15:  # False for NaN
        return "is not a finite number of at least 0"
    if column.unit == "fraction" and value > 1:
        return "is above 1"
    if column.unit == "count" and value != int(value):
        return "is not a whole number"
    if column.unit == "ratio" and not value:
        return "is not above 0"
    return ""


def _is_stack(grids: Any) -> bool:
    """Whether a value is a list of equally large grids (lists of rows) of finite numbers."""

    def shape(value: Any) -> tuple[int, ...] | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return () if abs(value) < 1e15 else None
        inner = {shape(one) for one in value} if isinstance(value, list) else set()
        known = inner.pop() if len(inner) == 1 else None
        return None if known is None or len(known) > 2 else (len(value), *known)

    found = shape(grids)
    return found is not None and len(found) == 3
