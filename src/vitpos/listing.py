"""What there is, read from the sources: no torch, no second list of names."""

from __future__ import annotations

import inspect
from itertools import takewhile
from typing import Any

from vitpos.attacks import ATTACKS
from vitpos.catalog import Catalog, Entry, suggest
from vitpos.data import DATASETS, SEGMENTATION
from vitpos.encodings import ENCODINGS
from vitpos.errors import UserError
from vitpos.evaluations import EVALUATIONS
from vitpos.experiment import SHIPPED, shipped
from vitpos.models import MODELS
from vitpos.training import AUGMENTS, DEFENSES

CATALOGS: dict[str, Catalog] = {
    "encodings": ENCODINGS,
    "models": MODELS,
    "data": DATASETS,
    "augmentations": AUGMENTS,
    "evaluations": EVALUATIONS,
    "attacks": ATTACKS,
    "defenses": DEFENSES,
    "segmentation": SEGMENTATION,
}
KINDS = (*CATALOGS, "experiments")
ATTACHES = {  # by the hook that an encoding defines
    "arrange": "arranges tokens or places",
    "embed": "added to tokens",
    "refresh": "added before blocks",
    "bias": "added to logits",
    "turn": "rotates q and k",
    "prepare": "rescales q and k",
}


def entries(kind: str, geometry: str | None = None) -> list[dict[str, Any]]:
    """One object per entry: name, summary, options with type and default; for encodings also what they are and do.

    With a ``geometry`` such as ``dim=384,heads=6,depth=12,grid=14x14``, encodings are built and their parameters counted.
    """
    if kind == "experiments":
        return [{"kind": kind, "name": name, "summary": _question(name), "options": {}} for name in shipped()]
    found = []
    for name in CATALOGS[kind]:
        entry = CATALOGS[kind].describe(name)
        options = {
            key: {"type": str(option), "default": option.default, "choices": option.choices}
            for key, option in entry.options.items()
        }
        about = _encoding(entry) if kind == "encodings" else {}
        if about and geometry:
            about["parameters"] = _parameters(name, geometry)
        found.append({"kind": kind, "name": name, "summary": entry.summary, "options": options} | about)
    return found


def _encoding(entry: Entry) -> dict[str, Any]:
    """Where an encoding comes from, where it attaches, and what it does on other grids and under a shift."""
    attaches = [text for method, text in ATTACHES.items() if method in entry.methods]
    traits = set(entry.traits)
    if "stored" in traits:
        resolution = "by resampling its table, or by coordinates"
    elif "permutation-blind" in traits:
        resolution = "any"
    elif "by-cell" in traits:
        resolution = "any, by cells"
    else:
        resolution = "any, by coordinates"
    shift = "changes nothing" if "relative" in traits else "changes it"
    return {
        "source": entry.facts.get("source", ""),
        "attaches": attaches or ["nowhere"],
        "resolution": resolution,
        "translation": f"a shift of the origin {shift}",
        "traits": list(entry.traits),
    }


def _parameters(name: str, geometry: str) -> int | str:
    """How many, or why there can be none."""
    from vitpos.encodings.base import Geometry

    values: dict[str, Any] = {}
    for part in geometry.split(","):
        key, _, value = part.strip().partition("=")
        sides = value.split("x") if key == "grid" else [value]
        numbers = all(side.isdecimal() and (int(side) or key == "prefix") for side in sides)
        if key not in ("dim", "heads", "depth", "grid", "prefix") or not numbers or len(sides) != 1 + (key == "grid"):
            raise UserError(f"--geometry {geometry!r} is not understood; write dim=384,heads=6,depth=12,grid=14x14")
        values[key] = tuple(map(int, sides)) if key == "grid" else int(value)
    usual: dict[str, Any] = {"dim": 384, "heads": 6, "depth": 12, "grid": (14, 14), "prefix": 1}
    whole = Geometry(**(usual | values))
    if whole.dim % whole.heads:
        raise UserError(f"--geometry {geometry!r}: {whole.heads} heads cannot share a width of {whole.dim}")
    try:
        encoding = ENCODINGS.build(name, whole)
    except UserError as error:
        return str(error)
    return sum(parameter.numel() for parameter in encoding.parameters())


def show(kind: str, geometry: str | None = None) -> None:
    """Prints the entries of a kind, one line each, and below it what else there is to say."""
    found = entries(kind, geometry)
    print(f"{kind}:")
    width = max(len(entry["name"]) for entry in found)
    for entry in found:
        print(f"  {entry['name']:{width}}  {entry['summary']}")
        details = [", ".join(f"{key}={_values(option)}" for key, option in entry["options"].items())]
        if "traits" in entry:
            known = entry["source"], ", ".join(entry["attaches"]), ", ".join(entry["traits"])
            details.append(" · ".join(filter(None, known)))
            details.append(f"other grids: {entry['resolution']} · {entry['translation']}")
        if "parameters" in entry:
            count = entry["parameters"]
            details.append(f"{count:,} parameters" if isinstance(count, int) else count)
        for detail in filter(None, details):
            print(f"  {'':{width}}    {detail}")


def explain(kind: str, name: str) -> str:
    """All that an entry says of itself: its docstring, or the header of an experiment."""
    if kind not in KINDS:
        raise UserError(f"say of which kind {name!r} is, as in 'vitpos list evaluations {name}'")
    if kind == "experiments":
        if name not in shipped():
            raise UserError(f"no experiment {name!r}; {suggest(name, shipped())}")
        lines = (SHIPPED / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        return "\n".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    return inspect.cleandoc(CATALOGS[kind].describe(name).definition)


def _values(option: dict[str, Any]) -> str:
    """The default, and what else there is to choose."""
    others = [choice for choice in option["choices"] if choice != option["default"]]
    return "|".join(map(repr, [option["default"], *others]))


def _question(name: str) -> str:
    """The first line of an experiment's header."""
    with (SHIPPED / f"{name}.toml").open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()
