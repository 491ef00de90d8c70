"""Data sets and views of them: ``"mnist"``, ``"mnist + permute_patches(grid=(7, 7))"``, ``"mnist + classes(keep=(6, 9))"``.

A data set is a function that returns a :class:`~vitpos.data.dataset.Dataset`. A view is a function that returns a
:class:`~vitpos.data.dataset.View`, which changes the data set that it is added to.
"""

from vitpos.registry import Registry

DATASETS = Registry(
    "data",
    {
        "mnist": "vitpos.data.mnist:mnist",
        "fashion_mnist": "vitpos.data.fashion_mnist:fashion_mnist",
        "cifar10": "vitpos.data.cifar:cifar10",
        "cifar100": "vitpos.data.cifar:cifar100",
        "image_folder": "vitpos.data.image_folder:image_folder",
        "photographs": "vitpos.data.image_folder:photographs",
        "dot_location": "vitpos.data.synthetic:dot_location",
        "patch_order": "vitpos.data.synthetic:patch_order",
        "left_right": "vitpos.data.synthetic:left_right",
        "unlike_pair": "vitpos.data.pair_tasks:unlike_pair",
        "near_pair": "vitpos.data.pair_tasks:near_pair",
        "diagonal_pair": "vitpos.data.pair_tasks:diagonal_pair",
        "noise": "vitpos.data.noise:noise",
        "classes": "vitpos.data.views:classes",
        "subset": "vitpos.data.views:subset",
        "holdout": "vitpos.data.views:holdout",
        "permute_patches": "vitpos.data.views:permute_patches",
        "resize": "vitpos.data.views:resize",
    },
    sums=True,
    group="vitpos.data",
)
register_dataset = DATASETS.register
SEGMENTATION_SETS = Registry(  # image-mask sets; each is a function of the (channels, height, width) that a model takes
    "segmentation",
    {
        "digit_scenes": "vitpos.data.segmentation_sets:digit_scenes",
        "mask_folder": "vitpos.data.segmentation_sets:mask_folder",
    },
    positional=1,
)
DOWNLOADS = Registry(  # the files of data sets, which ``vitpos data`` downloads and verifies
    "stored data",
    {
        "mnist": "vitpos.data.mnist:FILES",
        "fashion_mnist": "vitpos.data.fashion_mnist:FILES",
        "cifar10": "vitpos.data.cifar:CIFAR10_FILES",
        "cifar100": "vitpos.data.cifar:CIFAR100_FILES",
    },
)
