"""Data sets and views of them: ``"mnist"``, ``"mnist + jigsaw(grid=(7, 7))"``, ``"mnist + only(classes=(6, 9))"``.

A data set is a function that gives a Dataset; a view is one that gives a View, which makes a Dataset of another.
"""

from vitpos.catalog import Catalog

DATASETS = Catalog(
    "data",
    {
        "mnist": "vitpos.data.mnist:mnist",
        "fashion": "vitpos.data.fashion_mnist:fashion",
        "cifar10": "vitpos.data.cifar:cifar10",
        "cifar100": "vitpos.data.cifar:cifar100",
        "folder": "vitpos.data.image_folder:folder",
        "photographs": "vitpos.data.photographs:photographs",
        "dot": "vitpos.data.synthetic:dot",
        "order": "vitpos.data.synthetic:order",
        "sides": "vitpos.data.synthetic:sides",
        "only": "vitpos.data.views:only",
        "part": "vitpos.data.views:part",
        "held": "vitpos.data.views:held",
        "jigsaw": "vitpos.data.views:jigsaw",
    },
    sums=True,
)
SCENES = Catalog(  # what the evaluation ``dense`` is asked on: functions of a model's picture shape
    "scenes",
    {"digits": "vitpos.data.segmentation_sets:digits", "pairs": "vitpos.data.pairs:pairs"},
)
STORED = Catalog(  # what can be fetched and verified, by the name of its data set
    "stored data",
    {
        "mnist": "vitpos.data.mnist:FILES",
        "fashion": "vitpos.data.fashion_mnist:FILES",
        "cifar10": "vitpos.data.cifar:TEN_FILES",
        "cifar100": "vitpos.data.cifar:HUNDRED_FILES",
    },
)
