"""Noise in place of data sets whose files are not on this machine, so that the rest of an experiment can be tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vitpos.data import DATASETS
from vitpos.lab.cells import Cell
from vitpos.lab.downloads import data_terms, missing_data
from vitpos.patches import to_2tuple
from vitpos.registry.specs import Term

SHAPES = {  # image shape and number of classes of data sets that are downloaded
    "fashion_mnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
}
FOLDER_CLASSES = 1000  # of an image folder that does not exist; as many as ImageNet has


def stand_ins(cells: Iterable[Cell]) -> dict[str, str]:
    """Returns replacements of data sets whose files are missing: data spec → spec of ``noise`` with the same image shape.

    Args:
        cells: trainings; the data sets that they and their evaluations use are checked.
    """
    cells, found = list(cells), {}
    downloads = missing_data(cells)
    for term in data_terms(cells):
        if term.name in downloads:
            shape, classes = SHAPES[term.name]
        elif term.name == "image_folder" and _is_missing(term.options.get("path", "")):
            shape, classes = (3, *to_2tuple(DATASETS.with_defaults(term)["size"])), FOLDER_CLASSES
        else:
            continue
        options = {"shape": shape, "classes": classes, "count": max(64, classes), "name": term.name}
        found[str(term)] = str(Term("noise", options))
    return found


def substitute(spec: str, stand_ins: Mapping[str, str]) -> str:
    """Returns a data spec with the data sets in ``stand_ins`` (spec → spec) replaced.

    The views of the data set stay, such as ``subset`` in ``cifar10 + subset(limit=100)``.
    """
    return " + ".join(stand_ins.get(str(term), str(term)) for term in DATASETS.parse(spec))


def _is_missing(path: str) -> bool:
    return bool(path) and not Path(path).expanduser().exists()
