"""The data sets that cells need and that are not here yet."""

from __future__ import annotations

from collections.abc import Iterable

from vitpos.data import DATASETS, DOWNLOADS
from vitpos.evaluations import EVALUATIONS
from vitpos.lab.cells import Cell
from vitpos.lab.events import Download, Observer


def missing_data(cells: Iterable[Cell]) -> list[str]:
    """The data sets, not here or not as published, that cells are trained on or that their evaluations use."""
    specs = dict.fromkeys(spec for cell in cells for spec in (cell.data, *filter(None, map(_against, cell.evaluate))))
    named = dict.fromkeys(term.name for spec in specs for term in DATASETS.parse(spec))
    files = {name: DOWNLOADS.load(name) for name in named if name in DOWNLOADS}
    return [name for name, kept in files.items() if kept.sources and kept.problems()]


def _against(evaluation: str) -> str | None:
    """The other data that an evaluation compares with, if it has the option ``against``."""
    (term,) = EVALUATIONS.parse(evaluation)
    option = EVALUATIONS.describe(term.name).options.get("against")
    return term.options.get("against", option.default) if option else None


def download(names: Iterable[str], observer: Observer) -> None:
    """Downloads data sets into the cache."""
    for name in names:
        DOWNLOADS.load(name).read(lambda what, done, total: observer.on_event(Download(what, done, total)))
