"""``vitpos data list``, ``get`` and ``verify``: data sets that are stored in files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitpos.data import DATASETS, DOWNLOADS
from vitpos.errors import RunError
from vitpos.lab.console import Console
from vitpos.lab.downloads import download


def get(names: Sequence[str]) -> None:
    """Downloads data sets and prints their folders."""
    for name in names:
        with Console() as console:
            download([name], console)
        print(f"{name}: in {DOWNLOADS.load(name).folder}")


def verify(names: Sequence[str]) -> None:
    """Prints for each data set whether its files match the published checksums; raises a RunError if one does not."""
    bad = []
    for name in names:
        problems = DOWNLOADS.load(name).problems()
        if problems and not DOWNLOADS.load(name).present and len(names) > 1:
            print(f"{name}: not downloaded")
        elif problems:
            bad.append(name)
            print(f"{name}: " + "; ".join(problems))
        else:
            print(f"{name}: matches the published checksums")
    if bad:
        raise RunError(
            f"{', '.join(bad)}: files differ from the published ones; download again with 'vitpos data get {' '.join(bad)}'"
        )


def show(names: Sequence[str], as_json: bool) -> None:
    """Prints name, summary, state, folder and sources of data sets."""
    found: list[dict[str, Any]] = []
    for name in names:
        files = DOWNLOADS.load(name)
        here = files.present
        size = sum((Path(files.folder) / file).stat().st_size for file in files.md5) if here else 0
        found.append(
            {
                "name": name,
                "summary": DATASETS.describe(name).summary,
                "here": here,
                "bytes": size,
                "folder": str(files.folder),
                "sources": [str(source) for source in files.sources],
            }
        )
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    width = max(map(len, names))
    for entry in found:
        state = f"{entry['bytes'] / 1e6:.0f} MB in {entry['folder']}" if entry["here"] else "not downloaded"
        print(f"{entry['name']:{width}}  {entry['summary']}")
        print(f"{'':{width}}    {state}")
        if entry["sources"]:
            print(f"{'':{width}}    from: {'; or '.join(entry['sources'])}")
