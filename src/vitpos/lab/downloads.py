"""Finds and downloads the data sets that an experiment needs and that are not in the cache."""

from __future__ import annotations

from collections.abc import Iterable

from vitpos.data import DATASETS, DOWNLOADS, SEGMENTATION_SETS
from vitpos.evaluations import EVALUATIONS
from vitpos.lab.cells import Cell
from vitpos.lab.events import Download, Observer
from vitpos.registry.specs import Term


def missing_data(cells: Iterable[Cell]) -> list[str]:
    """Returns the names of downloadable data sets, such as ``cifar10``, whose files are missing or damaged.

    Args:
        cells: trainings; the data sets that they and their evaluations use are checked.
    """
    return missing_downloads(data_terms(cells))


def missing_downloads(terms: Iterable[Term]) -> list[str]:
    """Returns the names of downloadable data sets among the terms of data specs whose files are missing or damaged."""
    files = {term.name: DOWNLOADS.load(term.name) for term in terms if term.name in DOWNLOADS}
    return [name for name, kept in files.items() if kept.sources and kept.problems()]


def data_terms(cells: Iterable[Cell]) -> list[Term]:
    """Returns the terms (name and options) of all data specs that cells (trainings) and their evaluations use.

    The data ``mnist + subset(limit=100)`` has two terms: the data set ``mnist`` and its view ``subset``.
    """
    cells = list(cells)
    return data_terms_of([cell.data for cell in cells], [spec for cell in cells for spec in cell.evaluations])


def data_terms_of(data: Iterable[str], evaluations: Iterable[str]) -> list[Term]:
    """Returns the terms (name and options) of data specs, and of the data sets that evaluations use."""
    specs = dict.fromkeys([*data, *filter(None, map(dataset_option, evaluations))])
    return [term for spec in specs for term in DATASETS.parse(spec)]


def dataset_option(evaluation: str) -> str | None:
    """Returns the option ``dataset`` of an evaluation: ``mnist`` for ``ood(dataset='mnist')``.

    Returns None if the evaluation has no such option, or if it names a data set for segmentation, not classification.
    """
    (term,) = EVALUATIONS.parse(evaluation)
    spec: str | None = EVALUATIONS.with_defaults(term).get("dataset")
    return spec if spec and spec.partition("(")[0].strip() not in SEGMENTATION_SETS else None


def download(names: Iterable[str], observer: Observer) -> None:
    """Downloads data sets, given by name, into the cache; the observer receives Download events with the progress."""
    for name in names:
        DOWNLOADS.load(name).read(lambda what, done, total: observer.on_event(Download(what, done, total)))
