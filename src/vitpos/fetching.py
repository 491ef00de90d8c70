"""How the command line follows a download, and what it says of data sets in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vitpos.cells import Cell
from vitpos.data import DATASETS, DOWNLOADS
from vitpos.errors import WorkError
from vitpos.progress import errors
from vitpos.questions import QUESTIONS


def fetch(names: Iterable[str]) -> None:
    """Fetches data sets, with a bar for each transfer; where no one watches, with a line for each source."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    tasks: dict[str, TaskID] = {}

    def hear(what: str, done: int, total: int) -> None:
        if what not in tasks:
            for task in tasks.values():
                bar.update(task, visible=False)
            tasks[what] = bar.add_task(what, total=None)
            if not errors.is_terminal:
                errors.print(what, soft_wrap=True)
        bar.update(tasks[what], completed=done, total=total or None)

    with bar:
        for name in names:
            DOWNLOADS.load(name).read(hear)


def fetch_for(cells: Iterable[Cell]) -> None:
    """Fetches what cells need and is missing or not as published."""
    fetch(missing(cells))


def missing(cells: Iterable[Cell]) -> list[str]:
    """The data sets, not here or not as published, that cells are trained on or evaluations set against them."""
    specs = dict.fromkeys(spec for cell in cells for spec in (cell.data, *filter(None, map(_against, cell.evaluate))))
    named = dict.fromkeys(term.name for spec in specs for term in DATASETS.parse(spec))
    files = {name: DOWNLOADS.load(name) for name in named if name in DOWNLOADS}
    return [name for name, kept in files.items() if kept.sources and kept.problems()]


def _against(evaluation: str) -> str | None:
    """The other data that an evaluation looks at, if it has the option ``against``."""
    (term,) = QUESTIONS.parse(evaluation)
    option = QUESTIONS.describe(term.name).options.get("against")
    return term.options.get("against", option.default) if option else None


def get(names: Sequence[str]) -> None:
    """Fetches data sets and says where they are."""
    for name in names:
        fetch([name])
        print(f"{name}: in {DOWNLOADS.load(name).folder}")


def verify(names: Sequence[str]) -> None:
    """Says of each data set whether its files are what they should be; fails if one is damaged."""
    bad = []
    for name in names:
        problems = DOWNLOADS.load(name).problems()
        if problems and not DOWNLOADS.load(name).present and len(names) > 1:
            print(f"{name}: not here")
        elif problems:
            bad.append(name)
            print(f"{name}: " + "; ".join(problems))
        else:
            print(f"{name}: as published")
    if bad:
        raise WorkError(f"{', '.join(bad)}: not as published; fetch again with 'vitpos data get {' '.join(bad)}'")


def show(names: Sequence[str], as_json: bool) -> None:
    """Prints what there is: whether it is here, where, and where it comes from."""
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
        state = f"here, {entry['bytes'] / 1e6:.0f} MB in {entry['folder']}" if entry["here"] else "not here"
        print(f"{entry['name']:{width}}  {entry['summary']}")
        print(f"{'':{width}}    {state}")
        if entry["sources"]:
            print(f"{'':{width}}    from: {'; else '.join(entry['sources'])}")
