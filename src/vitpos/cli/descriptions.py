"""Descriptions of all registered classes for ``vitpos list``, read from source files without importing torch."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any

from vitpos.data import DATASETS, SEGMENTATION_SETS
from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.evaluations import ATTACKS, EVALUATIONS
from vitpos.lab.experiment import SHIPPED, shipped
from vitpos.models import MODELS
from vitpos.registry import Registry, suggest
from vitpos.registry.descriptions import REQUIRED, Description, Option
from vitpos.registry.source_descriptions import source_constant
from vitpos.training import AUGMENTATIONS, DEFENSES

REGISTRIES: dict[str, Registry] = {
    "encodings": ENCODINGS,
    "models": MODELS,
    "data": DATASETS,
    "augmentations": AUGMENTATIONS,
    "evaluations": EVALUATIONS,
    "attacks": ATTACKS,
    "defenses": DEFENSES,
    "segmentation_sets": SEGMENTATION_SETS,
}
MAX_GEOMETRY = 1 << 36  # width × layers × the larger of width and positions; a ViT-22B has less
KINDS = (*REGISTRIES, "experiments")
ATTACHES = {  # hook that an encoding defines → what it does
    "augment": "changes tokens or positions in training",
    "vectors": "added to tokens",
    "update": "changes tokens before blocks",
    "bias": "added to logits",
    "token_bias": "added to logits, computed from tokens",
    "rotate": "rotates q and k",
    "mix_weights": "changes attention weights",
    "added_values": "added to the output of attention",
}
OTHER_GRIDS = {  # trait → how an encoding serves other grids; the first that applies
    "resizable": "by resampling its table, or by coordinates",
    "permutation_invariant": "any",
    "index_only": "any, by grid cells",
}
GEOMETRY = {"dim": 384, "heads": 6, "depth": 12, "grid": (14, 14), "num_prefix": 1}


def descriptions(kind: str, geometry: str | None = None, only: str | None = None) -> list[dict[str, Any]]:
    """Returns one dictionary per registered class or function, as ``vitpos list --json`` prints it.

    Its keys are ``kind``, ``name``, ``summary`` and ``options``. Encodings also have ``source`` (the paper), ``attaches``
    (where they act in the model), ``resolution`` (how they handle grids of another size), ``translation`` (whether a shift
    of all positions has an effect) and ``traits`` (declared properties, such as ``learnable``).

    Args:
        kind: ``encodings``, ``models``, ``experiments`` or another kind that ``vitpos list`` accepts.
        geometry: size of a model, such as ``dim=384,heads=6,depth=12,grid=14x14``; adds the number of ``parameters`` of
            each encoding in that model.
        only: name of the one class or function to describe; all by default.
    """
    names = [only] if only is not None else shipped() if kind == "experiments" else list(REGISTRIES[kind])
    if kind == "experiments":
        return [{"kind": kind, "name": name, "summary": _question(name), "options": {}} for name in names]
    found = []
    for name in names:
        try:
            described = REGISTRIES[kind].describe(name)
        except InputError as error:  # a broken plug-in does not hide the other entries
            found.append({"kind": kind, "name": name, "summary": f"error: {error}", "options": {}})
            continue
        options = {key: _option(option) for key, option in described.options.items()}
        about = _encoding(described) if kind == "encodings" else {}
        if about and geometry:
            about["parameters"] = _parameters(name, geometry)
        found.append({"kind": kind, "name": name, "summary": described.summary, "options": options} | about)
    return found


def _option(option: Option) -> dict[str, Any]:
    """Returns a dictionary with ``type``, ``default`` and ``choices`` (allowed values) of a class's keyword argument.

    The default is ``required`` if there is none. A default that cannot be written in a spec such as ``rope(base=10)`` is
    given by its repr.
    """
    shown = option.default if option.literal else repr(option.default)
    required = option.default is REQUIRED
    return {"type": str(option), "default": "required" if required else shown, "choices": option.choices}


def _encoding(described: Description) -> dict[str, Any]:
    """Returns the part of the ``vitpos list --json`` dictionary that only encodings have, from the description of one.

    ``source`` is the paper and ``attaches`` where the encoding acts in the model. ``resolution`` says how it handles grids
    of another size, ``translation`` whether a shift of all positions has an effect. ``traits`` are the properties that the
    class declares, such as ``learnable``.
    """
    attaches = [text for method, text in ATTACHES.items() if method in described.methods]
    resolution = next((text for trait, text in OTHER_GRIDS.items() if trait in described.traits), "any, by coordinates")
    shift = "has no effect" if "translation_invariant" in described.traits else "has an effect"
    return {
        "source": described.attributes.get("paper", ""),
        "attaches": attaches or ["no effect on the model"],
        "resolution": resolution,
        "translation": f"a shift of the origin {shift}",
        "traits": list(described.traits),
    }


def _parameters(name: str, geometry: str) -> int | str:
    """Returns the number of parameters of an encoding, or the reason why it cannot be built.

    Args:
        name: name of the encoding.
        geometry: size of the model, such as ``dim=384,heads=6,depth=12,grid=14x14``.
    """
    from vitpos.encodings.base import Geometry

    values: dict[str, Any] = dict(GEOMETRY)
    for part in geometry.split(","):
        key, _, value = part.strip().partition("=")
        sides = value.split("x")
        numbers = all(
            side.isascii() and side.isdecimal() and len(side) < 6 and (int(side) or key == "num_prefix")
            for side in sides
        )
        if key not in GEOMETRY or not numbers or len(sides) != 1 + (key == "grid"):
            raise InputError(f"--geometry {geometry!r} is not valid; write dim=384,heads=6,depth=12,grid=14x14")
        values[key] = tuple(map(int, sides)) if key == "grid" else int(value)
    whole = Geometry(**values)
    if whole.dim * whole.depth * max(whole.dim, math.prod(whole.grid)) > MAX_GEOMETRY:
        raise InputError(f"--geometry {geometry!r} is larger than any model; choose smaller numbers")
    if whole.dim % whole.heads:
        reason = f"{whole.heads} heads do not divide a width of {whole.dim}"
        raise InputError(f"--geometry {geometry!r}: {reason}; choose a multiple")
    try:
        encoding = ENCODINGS.build(name, whole)
    except InputError as error:
        return str(error)
    return sum(parameter.numel() for parameter in encoding.parameters())


def show(kind: str, geometry: str | None = None) -> None:
    """Prints all entries of a kind, such as ``encodings``: name and summary in a line, options and other facts below it.

    Args:
        geometry: size of a model, such as ``dim=384,heads=6,depth=12,grid=14x14``; adds the number of parameters of each
            encoding in that model.
    """
    found = descriptions(kind, geometry)
    print(f"{kind}:")
    width = max(len(described["name"]) for described in found)
    for described in found:
        print(f"  {described['name']:{width}}  {described['summary']}")
        details = [", ".join(f"{key}={_values(option)}" for key, option in described["options"].items())]
        if "traits" in described:
            known = described["source"], ", ".join(described["attaches"]), ", ".join(described["traits"])
            details.append(" · ".join(filter(None, known)))
            details.append(f"other grids: {described['resolution']} · {described['translation']}")
        if "parameters" in described:
            count = described["parameters"]
            details.append(f"{count:,} parameters" if isinstance(count, int) else count)
        for detail in filter(None, details):
            print(f"  {'':{width}}    {detail}")


def explain(kind: str, name: str) -> str:
    """Returns the text that ``vitpos list KIND NAME`` prints.

    It is the docstring of a registered class or function with its options, source and traits, or the header of an
    experiment file.
    """
    if kind not in KINDS:
        raise InputError(f"the kind of {name!r} is missing; write it first, as in 'vitpos list evaluations {name}'")
    if kind == "experiments":
        if name not in shipped():
            raise InputError(f"no experiment {name!r}; {suggest(name, shipped())}")
        lines = (SHIPPED / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        return "\n".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), lines))
    described = REGISTRIES[kind].describe(name)
    lines = [described.prose]
    if described.options:
        lines += ["", "options:", *_aligned({key: _line(key, described) for key in described.options})]
    if described.attributes.get("paper"):
        lines += ["", f"source: {described.attributes['paper']}"]
    if kind == "encodings":
        about = _encoding(described)
        lines += ["", f"in the model: {', '.join(about['attaches'])}", f"other grids: {about['resolution']}"]
    if described.traits:
        meaning = source_constant("vitpos.encodings.base:TRAITS")
        lines += [
            "",
            "traits:",
            *_aligned({trait: meaning.get(trait, "not a documented trait") for trait in described.traits}),
        ]
    return "\n".join(lines)


def _line(key: str, described: Description) -> str:
    """Returns one line of text on an option of a class: its type, its default and its text in the ``Args:`` list.

    Args:
        key: name of the option.
        described: description of the class: its docstring and options.
    """
    option = _option(described.options[key])
    default = option["default"] if option["default"] == "required" else f"= {described.options[key].default!r}"
    return f"{option['type']} {default}" + (f"  {described.arguments[key]}" if key in described.arguments else "")


def _aligned(lines: dict[str, str]) -> list[str]:
    width = max(map(len, lines))
    return [f"  {name:{width}}  {text}" for name, text in lines.items()]


def _values(option: dict[str, Any]) -> str:
    """Returns the default of an option and its other choices, separated by ``|``, such as ``'cls'|'mean'``.

    ``option`` is a dictionary with the keys ``default`` and ``choices``, as returned by `_option`.
    """
    others = [choice for choice in option["choices"] if choice != option["default"]]
    return "|".join(map(repr, [option["default"], *others]))


def _question(name: str) -> str:
    """Returns the first comment line of a shipped experiment file, which states the question of the experiment."""
    with (SHIPPED / f"{name}.toml").open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()
