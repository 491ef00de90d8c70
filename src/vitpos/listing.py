"""What there is, read from the sources: no torch, no second list of names."""

from __future__ import annotations

from typing import Any

from vitpos.catalog import Catalog
from vitpos.data import DATASETS
from vitpos.encodings import ENCODINGS
from vitpos.evaluations import EVALUATIONS
from vitpos.experiment import SHIPPED, shipped
from vitpos.models import MODELS

CATALOGS: dict[str, Catalog] = {
    "encodings": ENCODINGS,
    "models": MODELS,
    "data": DATASETS,
    "evaluations": EVALUATIONS,
}
KINDS = (*CATALOGS, "experiments")


def entries(kind: str) -> list[dict[str, Any]]:
    """One object per entry: name, summary, options with their type and default, and traits where it declares some."""
    if kind == "experiments":
        return [{"kind": kind, "name": name, "summary": _question(name), "options": {}} for name in shipped()]
    found = []
    for name in CATALOGS[kind]:
        entry = CATALOGS[kind].describe(name)
        options = {key: {"type": str(option), "default": option.default} for key, option in entry.options.items()}
        traits = {"traits": list(entry.traits)} if kind == "encodings" else {}
        found.append({"kind": kind, "name": name, "summary": entry.summary, "options": options} | traits)
    return found


def show(kind: str) -> None:
    """Prints the entries of a kind, one line each, and below it the options that it takes."""
    print(f"{kind}:")
    found = entries(kind)
    width = max(len(entry["name"]) for entry in found)
    for entry in found:
        print(f"  {entry['name']:{width}}  {entry['summary']}")
        details = [", ".join(f"{key}={option['default']!r}" for key, option in entry["options"].items())]
        details += [", ".join(entry.get("traits", []))]
        for detail in filter(None, details):
            print(f"  {'':{width}}    {detail}")


def _question(name: str) -> str:
    """The first line of an experiment's header."""
    with (SHIPPED / f"{name}.toml").open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()
