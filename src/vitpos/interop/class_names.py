"""Which outputs of a checkpoint the classes of a data set are: by WordNet ids, by names, or by a file of the user."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitpos.errors import InputError
from vitpos.printable import sanitize
from vitpos.regular_files import read_regular

MAX_BYTES, MAX_NAME = 1 << 24, 1000
IMAGENET = 1000  # outputs of a model of ImageNet-1k


@dataclass(frozen=True)
class OutputNames:
    """The names of the outputs of a classifier.

    Args:
        names: The names of each output: any number of them, the first is the one that is shown.
        source: Where they are from, for messages.
    """

    names: tuple[tuple[str, ...], ...]
    source: str

    @property
    def shown(self) -> tuple[str, ...]:
        """Returns one name per output; the index of the output is added to names that occur twice."""
        first = [names[0] if names else f"output {number}" for number, names in enumerate(self.names)]
        return tuple(f"{name} ({n})" if first.count(name) > 1 else name for n, name in enumerate(first))


def read_class_file(path: Path) -> OutputNames:
    """Returns the names in a file: one per line, a JSON list, or a JSON dictionary from the index of an output to a name.

    An entry of a JSON file may be a list of names, such as a WordNet id and a word.
    """
    where = f"the file of classes {path}"
    try:
        text = read_regular(path, max_bytes=MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = sanitize(getattr(error, "strerror", None) or "not text")
        raise InputError(f"{where} cannot be read ({reason}); give a text file with one name per line") from None
    if path.suffix.lower() != ".json" and text.lstrip()[:1] not in ("[", "{"):
        return OutputNames(tuple((line.strip(),) for line in text.splitlines() if line.strip()), where)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON ({sanitize(error)}); write a list of names") from None
    names = _id_to_name(content) if isinstance(content, Mapping) else content
    if isinstance(names, list) and names and all(map(_is_entry, names)):
        return OutputNames(tuple(tuple(one) if isinstance(one, list) else (one,) for one in names), where)
    raise InputError(
        f'{where} holds neither a list of names nor a dictionary from 0, 1, … to names; write ["tench", "goldfish"]'
    )


def config_names(config: Mapping[str, Any]) -> OutputNames | None:
    """Returns the names in a configuration of timm or Hugging Face; None if it has none, or only ``LABEL_0`` and so on."""
    nested = config.get("pretrained_cfg")
    for level in (config, nested if isinstance(nested, Mapping) else {}):
        for key in ("id2label", "label_names"):
            value = level.get(key)
            found = _id_to_name(value) if isinstance(value, Mapping) else value
            if isinstance(found, list | tuple) and found and all(isinstance(one, str) for one in found):
                if all(re.fullmatch(r"LABEL_\d+", one) for one in found):
                    continue
                return OutputNames(tuple((str(one)[:MAX_NAME],) for one in found), "the checkpoint's configuration")
    return None


def imagenet_names(known: OutputNames | None = None) -> OutputNames | None:
    """Returns WordNet id and words of the 1,000 classes of ImageNet; None if timm, which has the list, is not installed.

    Args:
        known: Names of 1,000 outputs, from a configuration; if they are not ImageNet's in this order, they are returned.
    """
    try:
        from timm.data.imagenet_info import ImageNetInfo
    except (ImportError, RuntimeError):  # the second: a torchvision of another build
        return known
    info = ImageNetInfo()
    ids, words = info.label_names(), info.label_descriptions()
    names = tuple((word, number) for word, number in zip(words, ids, strict=True))
    if known is not None:
        same = [bool(_parts(stated) & _parts(imagenet)) for stated, imagenet in zip(known.names, names, strict=False)]
        if len(known.names) != len(names) or sum(same) < 0.95 * len(names):
            return known
        names = tuple((*stated, ids[number]) for number, stated in enumerate(known.names))
    return OutputNames(names, "ImageNet's classes")


def match_classes(classes: Sequence[str], outputs: int, known: OutputNames | None, *, remedy: str) -> list[int]:
    """Returns the index of the output of each class of a data set.

    Without known names, classes and outputs are matched in order, for which there must be equally many. With them, a class
    is found by any name of an output, or by a part of it before or after a comma; differences of case, underscores and
    spaces are ignored. Classes that are all numbers, and no names, are indices of outputs.

    Args:
        classes: Names of the classes, such as those of the folders of images.
        outputs: Number of outputs of the checkpoint.
        known: Names of the outputs.
        remedy: What the user can do, for messages.
    """
    if known is None:
        if len(classes) == outputs:
            return list(range(outputs))
        raise InputError(
            f"the data has {len(classes)} classes ({_listed(classes)}), and the checkpoint has {outputs} outputs "
            f"without names; {remedy}"
        )
    if len(known.names) != outputs:
        raise InputError(
            f"{known.source} has {len(known.names)} names, and the checkpoint has {outputs} outputs; {remedy}"
        )
    full: dict[str, set[int]] = {}
    part: dict[str, set[int]] = {}
    for number, names in enumerate(known.names):
        for name in names:
            full.setdefault(_plain(name), set()).add(number)
        for name in _parts(names):
            part.setdefault(name, set()).add(number)
    candidates = [full.get(_plain(name)) or part.get(_plain(name), set()) for name in classes]
    if not any(candidates) and all(re.fullmatch(r"\d{1,6}", name, re.ASCII) for name in classes):
        candidates = [{int(name)} if int(name) < outputs else set() for name in classes]
    missing = [name for name, found in zip(classes, candidates, strict=True) if not found]
    if missing:
        shown = known.shown
        raise InputError(
            f"{len(missing)} of {len(classes)} classes of the data ({_listed(missing)}) are no names of "
            f"{known.source} ({_listed(shown)}); {remedy}"
        )
    for name, found in zip(classes, candidates, strict=True):
        if len(found) > 1:
            numbers = " and ".join(map(str, sorted(found)[:3]))
            raise InputError(f"the class {sanitize(name)!r} is a name of the outputs {numbers}; {remedy}")
    chosen = [next(iter(found)) for found in candidates]
    if len(set(chosen)) < len(chosen):
        both = next(one for one in chosen if chosen.count(one) > 1)
        same_output = [name for name, one in zip(classes, chosen, strict=True) if one == both]
        raise InputError(f"the classes {_listed(same_output)} are names of one output, {both}; {remedy}")
    return chosen


def _id_to_name(value: Mapping[Any, Any]) -> list[Any] | None:
    """Converts ``id2label`` {0: name, 1: name, …} to a list; None unless the keys are 0 … n−1."""
    try:
        numbered = {int(key): one for key, one in value.items() if len(str(key)) < 9}
    except ValueError:
        return None
    return [numbered[n] for n in range(len(value))] if set(numbered) == set(range(len(value))) else None


def _is_entry(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)
    )


def _parts(names: Sequence[str]) -> set[str]:
    return {_plain(part) for name in names for part in name.split(",") if part.strip()}


def _plain(name: str) -> str:
    return " ".join(name.replace("_", " ").casefold().split())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sanitize(name, limit=40) for name in names[:3]) + (", …" if len(names) > 3 else "")
