"""An entry of the leaderboard: the numbers of one encoding under a protocol, as one JSON file that anybody can add."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vitpos.errors import InputError
from vitpos.files import os_reason, write_text
from vitpos.leaderboard.protocol import Measure, Protocol, protocols
from vitpos.printable import sanitize
from vitpos.registry import suggest
from vitpos.regular_files import read_regular

FORMAT = 1
ENTRY_FOLDER = "entry"  # where `vitpos score` writes an entry, in the folder of its run
TOLERANCE = 1e-4  # of training losses: rounding on other processors changes them by 1e-6, another recipe by 1e-3
MAX_BYTES = 1_000_000  # larger files are refused


@dataclass(frozen=True)
class Entry:
    """A leaderboard entry: the numbers of one encoding under a protocol, i.e. a fixed experiment.

    Args:
        protocol: Name of the protocol, such as ``vitpos-1``.
        protocol_sha256: Hash of the file of the protocol.
        encoding: Spec of the encoding, such as ``rope(base=10.0)``.
        family: Family of the encoding (added, bias, rotary or context), which decided its learning rate.
        summary: One sentence on the encoding.
        paper: Paper that introduced the encoding; may be empty.
        code: Name of the encoding → sha256 of its source file; for a sum, one for each of its encodings.
        numbers: Column of the protocol → seed → value.
        training_losses: Encoding → loss of a short training. The losses of the baselines are compared with those of the
            protocol, to find versions of the package that train differently; the loss of the encoding is compared before
            two of its entries are joined.
        reasons: Column → why the encoding has no such number.
        machine: Processor, cores, system and versions.
        commit: Commit of the package that the entry was made with; empty if unknown.
        maps: Title → nested list of shape (n, rows, columns): n maps of the patch grid, such as the mean logit of the
            central patch with every patch, one map per block.
        quick: Whether the entry is from a shortened run; it is then shown but not ranked.
    """

    protocol: str
    protocol_sha256: str
    encoding: str
    family: str
    summary: str
    paper: str
    code: Mapping[str, str]
    numbers: Mapping[str, Mapping[int, float]]
    training_losses: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    maps: Mapping[str, list[list[list[float]]]] = field(default_factory=dict)
    quick: bool = False

    @property
    def seeds(self) -> list[int]:
        """The seeds for which the entry has numbers, in ascending order."""
        return sorted({seed for by_seed in self.numbers.values() for seed in by_seed})

    @property
    def file_name(self) -> str:
        """Name of the JSON file of the entry: the spec of its encoding, such as ``rope.json``.

        A spec with characters other than letters, digits, dots and underscores is shortened to its words and a hash. The
        name of a shortened run ends in ``-quick``. Any other entry without seed 0 has its seeds in the name, as in
        ``rope-seeds-3-4.json``: it adds seeds to another entry of the encoding.
        """
        name = "-".join(re.findall(r"[\w.]+", self.encoding, re.ASCII))[:60]
        if name != self.encoding:
            name += f"-{hashlib.sha256(self.encoding.encode()).hexdigest()[:8]}"
        if self.quick:
            name += "-quick"
        elif self.seeds and self.seeds[0] != 0:
            name += "-seeds-" + "-".join(map(str, self.seeds))
        return f"{name}.json"

    def save(self, folder: Path) -> Path:
        """Writes the entry to a folder and returns the path of its file."""
        content = json.loads(json.dumps({"format": FORMAT, **asdict(self)}))  # seeds become strings, as in the file
        content["digest"] = _digest(content)
        return write_text(folder / self.file_name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load_entry(path: Path) -> Entry:
    """Reads a leaderboard entry from its JSON file and returns it.

    Checks the format and the protocol, that every seed has all numbers in valid ranges, and that short trainings of the
    baseline encodings gave the losses that the protocol stores (if it stores any).

    Raises:
        InputError: With the file, the value that is wrong and the remedy, in one line.
    """

    def refuse(reason: str) -> InputError:
        return InputError(f"{path} is not a valid entry: {reason}")

    content = _read(path, refuse)
    protocol = _protocol(content, refuse)
    try:
        numbers = {key: {int(s): float(v) for s, v in by.items()} for key, by in content["numbers"].items()}
    except (AttributeError, TypeError, ValueError):
        raise refuse("'numbers' must give a number for each seed; make it again with 'vitpos score'") from None
    known = {f.name for f in fields(Entry)}
    entry = Entry(**{k: v for k, v in content.items() if k in known} | {"numbers": numbers})
    _check_numbers(entry, protocol, refuse)
    _check_training(entry, protocol, refuse)
    if not all(_is_stack(grids) for grids in entry.maps.values()):
        raise refuse("'maps' has a value that is not a list of grids of numbers; make it again with 'vitpos score'")
    return entry


def join_seeds(one: Entry, other: Entry) -> Entry:
    """Returns one entry with the seeds of two entries of one encoding, which may come from different machines.

    Raises:
        InputError: If a seed is in both, or if the two trained the encoding in different ways.
    """
    both = sorted(set(one.seeds) & set(other.seeds))
    if both:
        raise InputError(f"two entries of {one.encoding!r} have seed {both[0]}; keep one of them")
    losses = [entry.training_losses.get(one.encoding, math.nan) for entry in (one, other)]
    if not abs(losses[0] - losses[1]) < TOLERANCE:
        raise InputError(
            f"two entries of {one.encoding!r} come from different code: their short trainings have the losses "
            f"{losses[0]} and {losses[1]}; make both with the same version"
        )
    numbers = {
        key: {**one.numbers.get(key, {}), **other.numbers.get(key, {})} for key in (*one.numbers, *other.numbers)
    }
    machine = {
        key: ", ".join(dict.fromkeys(filter(None, (one.machine.get(key), other.machine.get(key)))))
        for key in (*one.machine, *other.machine)
    }
    commits = dict.fromkeys(filter(None, (*one.commit.split(", "), other.commit)))
    return replace(one, numbers=numbers, machine=machine, commit=", ".join(commits))


def _read(path: Path, refuse: Any) -> dict[str, Any]:
    try:
        content = json.loads(read_regular(path, max_bytes=MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        cause = os_reason(error) if isinstance(error, OSError) else sanitize(error)
        raise refuse(f"it cannot be read as JSON ({cause})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise refuse(f"its 'format' is not {FORMAT}; make it again with 'vitpos score'")
    kinds: dict[str, type] = {f.name: str for f in fields(Entry)}
    kinds |= dict.fromkeys(("code", "numbers", "training_losses", "reasons", "machine", "maps"), dict)
    kinds |= {"quick": bool, "digest": str}
    for name, kind in kinds.items():
        if not isinstance(content.get(name), kind):
            raise refuse(f"'{name}' is missing or not a {kind.__name__}; make it again with 'vitpos score'")
    unknown = set(content) - set(kinds) - {"format"}
    if unknown:
        raise refuse(f"it has the unknown key {min(unknown)!r}; remove it")
    texts = [name for name in ("code", "reasons", "machine") for v in content[name].values() if not isinstance(v, str)]
    if texts:
        raise refuse(f"'{texts[0]}' has a value that is not text; make it again with 'vitpos score'")
    if content["digest"] != _digest(content):
        raise refuse("its digest does not match: the file was edited; make it again with 'vitpos score'")
    return content


def _protocol(content: Mapping[str, Any], refuse: Any) -> Protocol:
    name = content["protocol"]
    if name not in protocols():
        raise refuse(f"no protocol {name!r}; {suggest(name, protocols())}")
    protocol = Protocol.load(name)
    if content["protocol_sha256"] != protocol.sha256:
        raise refuse(f"it was made with another version of the protocol {name!r}; make it again with 'vitpos score'")
    if content["family"] not in protocol.learning_rates:
        raise refuse(f"no family {content['family']!r}; {suggest(content['family'], protocol.learning_rates)}")
    return protocol


def _check_numbers(entry: Entry, protocol: Protocol, refuse: Any) -> None:
    seeds = entry.seeds
    if not seeds:
        raise refuse("it has no numbers; make it again with 'vitpos score'")
    for key in (*entry.numbers, *entry.reasons):
        if key not in protocol.columns:
            raise refuse(f"the protocol has no column {key!r}; {suggest(key, protocol.columns)}")
    for key, column in protocol.columns.items():
        by_seed = entry.numbers.get(key, {})
        if column.optional and entry.reasons.get(key) and not by_seed:
            continue
        missing = [seed for seed in seeds if seed not in by_seed]
        if missing:
            raise refuse(f"{key!r} of seed {missing[0]} is missing; finish it with the same 'vitpos score'")
        for seed, value in by_seed.items():
            if problem := _out_of_range(column, value):
                raise refuse(f"{key!r} of seed {seed} is {value}, which {problem}")


def _check_training(entry: Entry, protocol: Protocol, refuse: Any) -> None:
    for encoding, loss in protocol.training_losses.items():
        found = entry.training_losses.get(encoding)
        if not isinstance(found, float) or not abs(found - loss) < TOLERANCE:
            raise refuse(
                f"the short training of {encoding!r} has the loss {found} instead of {loss}: it was made with a "
                "version of vitpos that trains differently; run 'vitpos score' again with the current version"
            )


def _out_of_range(column: Measure, value: float) -> str:
    if not math.isfinite(value) or value < 0:
        return "is not a finite number of at least 0"
    if column.unit == "fraction" and value > 1:
        return "is above 1"
    if column.unit == "count" and not value.is_integer():
        return "is not a whole number"
    return ""


def _is_stack(grids: Any) -> bool:
    """Whether a value is a list of equally large grids (lists of rows) of numbers."""

    def shape(value: Any) -> tuple[int, ...] | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return ()
        inner = {shape(one) for one in value} if isinstance(value, list) else set()
        known = inner.pop() if len(inner) == 1 else None
        return None if known is None or len(known) > 2 else (len(value), *known)

    found = shape(grids)
    return found is not None and len(found) == 3


def _digest(content: Mapping[str, Any]) -> str:
    """Returns the sha256 of an entry's content without its digest, independent of the order of keys and of whitespace."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
