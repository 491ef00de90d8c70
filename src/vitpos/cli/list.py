"""``vitpos list``: prints the registered encodings, models, data sets and so on."""

from __future__ import annotations

import json
from typing import Annotated

from typer import Argument, Option

from vitpos.cli.plugins import Plugins
from vitpos.errors import InputError


def list_entries(
    kind: Annotated[
        str,
        Argument(
            help="one of encodings, models, data, augmentations, evaluations, attacks, defenses, segmentation_sets, "
            "experiments; or all"
        ),
    ] = "all",
    name: Annotated[str | None, Argument(help="name of one entry, to print its full definition")] = None,
    as_json: Annotated[
        bool, Option("--json", help="print JSON: a list of objects with name, summary, options")
    ] = False,
    geometry: Annotated[
        str | None, Option(help="count the parameters of encodings, for dim=384,heads=6,depth=12,grid=14x14")
    ] = None,
    plugins: Plugins = None,
) -> None:
    """List all entries of a kind with their options, or print the full definition of one entry."""
    from vitpos.cli.descriptions import KINDS, REGISTRIES, descriptions, explain, show
    from vitpos.registry import suggest

    if kind not in (*KINDS, "all"):
        home = next((k for k, registry in REGISTRIES.items() if kind in registry), None)
        raise InputError(f"no kind {kind!r}; " + (f"try: vitpos list {home} {kind}" if home else suggest(kind, KINDS)))
    kinds = KINDS if kind == "all" else (kind,)
    text = explain(kind, name) if name is not None else ""
    if as_json:
        found = [described for k in kinds for described in descriptions(k, geometry, name)]
        print(json.dumps(found, indent=1, ensure_ascii=False))
    elif text:
        print(text)
    else:
        for k in kinds:
            show(k, geometry)
