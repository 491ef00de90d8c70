"""``vitpos data list``, ``get`` and ``verify``: data sets that are stored in files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from vitpos.errors import InputError, RunError

if TYPE_CHECKING:
    from vitpos.data.download import CachedFiles


def data(
    action: Annotated[
        str, Argument(metavar="list|get|verify", help="list data sets, download them, or verify their checksums")
    ],
    names: Annotated[
        list[str] | None, Argument(metavar="NAME…", help="data sets, such as cifar10; default for list and verify: all")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="for list: print JSON, a list of objects")] = False,
) -> None:
    """List, download or verify the data sets that can be downloaded, such as cifar10."""
    from vitpos.data import DOWNLOADS
    from vitpos.registry import suggest

    actions = ("list", "get", "verify")
    if action not in actions:
        raise InputError(f"no 'data {action}'; {suggest(action, actions)}")
    for name in names or ():
        if name not in DOWNLOADS:
            raise InputError(f"no downloadable data set {name!r}; {suggest(name, DOWNLOADS)}")
    if action == "get" and not names:
        example = f"vitpos data get {list(DOWNLOADS)[-1]}"
        raise InputError(f"the data sets to download are missing; write for example '{example}'")
    wanted = {name: DOWNLOADS.load(name) for name in names or DOWNLOADS}
    if action == "list":
        _show(wanted, as_json)
    else:
        (_get if action == "get" else _verify)(wanted)


def _get(wanted: Mapping[str, CachedFiles]) -> None:
    """Downloads data sets, given as name → files, and prints their folders."""
    from vitpos.lab.console import Console
    from vitpos.lab.downloads import download

    for name, files in wanted.items():
        with Console() as console:
            download([name], console)
        print(f"{name}: in {files.folder}")


def _verify(wanted: Mapping[str, CachedFiles]) -> None:
    """Prints for each data set whether its files match the published checksums; raises a RunError if one does not."""
    bad = []
    for name, files in wanted.items():
        problems = files.problems()
        if problems and not files.present and len(wanted) > 1:
            print(f"{name}: not downloaded")
            continue
        bad += [name] if problems else []
        print(f"{name}: {'; '.join(problems) or 'matches the published checksums'}")
    if bad:
        remedy = f"download again with 'vitpos data get {' '.join(bad)}'"
        raise RunError(f"{', '.join(bad)}: files differ from the published ones; {remedy}")


def _show(wanted: Mapping[str, CachedFiles], as_json: bool) -> None:
    """Prints for each data set its name, summary, size on disk (or ``not downloaded``), folder and download URLs.

    Args:
        wanted: name of the data set → its files.
        as_json: whether to print the same facts as a JSON list, with one object per data set.
    """
    from vitpos.data import DATASETS

    found: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": DATASETS.describe(name).summary,
            "here": files.present,
            "bytes": sum((files.folder / file).stat().st_size for file in files.md5) if files.present else 0,
            "folder": str(files.folder),
            "sources": [str(source) for source in files.sources],
        }
        for name, files in wanted.items()
    ]
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    width = max(map(len, wanted))
    for entry in found:
        state = f"{entry['bytes'] / 1e6:.0f} MB in {entry['folder']}" if entry["here"] else "not downloaded"
        print(f"{entry['name']:{width}}  {entry['summary']}\n{'':{width}}    {state}")
        if entry["sources"]:
            print(f"{'':{width}}    from: {'; or '.join(entry['sources'])}")
