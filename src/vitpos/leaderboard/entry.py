"""An entry of the leaderboard: the numbers of one encoding under a protocol, as one JSON file that anybody can add."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from vitpos.errors import InputError
from vitpos.files import write_text
from vitpos.leaderboard.entry_checks import (
    FORMAT,
    TOLERANCE,
    check_encoding,
    check_numbers,
    check_protocol,
    check_texts,
    check_training,
    digest,
    read_content,
)

ENTRY_FOLDER = "entry"  # where `vitpos score` writes an entry, in the folder of its run


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
        data: Size of the data set, such as ``1,281,167 training images, 1,000 classes``, if the user gives it; else empty.
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
    data: str = ""

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
        content["digest"] = digest(content)
        return write_text(folder / self.file_name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load_entry(path: Path) -> Entry:
    """Reads a leaderboard entry from its JSON file and returns it.

    Checks types, the protocol, that every seed has all numbers in valid ranges, that short trainings of the baseline
    encodings gave the losses that the protocol stores (if it stores any), and, for encodings of the package, the form of
    the spec and the family. Code that an entry names is not imported. The checks find damaged files and mistakes; made-up
    numbers are only found by running the same seeds again.

    Raises:
        InputError: With the file, the value that is wrong and the remedy, in one line.
    """

    def refuse(reason: str) -> InputError:
        return InputError(f"{path} is not a valid entry: {reason}")

    content = read_content(path, refuse)
    protocol = check_protocol(content, refuse)
    check_texts(content, refuse)
    check_numbers(content, protocol, refuse)
    check_encoding(content, refuse)
    check_training(content, protocol, refuse)
    numbers = {key: {int(seed): float(v) for seed, v in by.items()} for key, by in content["numbers"].items()}
    return Entry(**{f.name: content[f.name] for f in fields(Entry) if f.name in content} | {"numbers": numbers})


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
