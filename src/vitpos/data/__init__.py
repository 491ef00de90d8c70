"""Data sets and views of them: ``"mnist"``, ``"mnist + jigsaw(grid=(7, 7))"``, ``"mnist + only(classes=(6, 9))"``.

A data set is a function that gives a Dataset; a view is one that gives a View, which makes a Dataset of another.
"""

from vitpos.catalog import Catalog

DATASETS = Catalog(
    "data",
    {
        "mnist": "vitpos.data.mnist:mnist",
        "only": "vitpos.data.views:only",
        "part": "vitpos.data.views:part",
        "jigsaw": "vitpos.data.views:jigsaw",
    },
    sums=True,
)
