"""How models are trained, and what may be done to their pictures meanwhile."""

from vitpos.catalog import Catalog

AUGMENTS = Catalog(
    "augment",
    {
        "crop": "vitpos.training.everyday:Crop",
        "flip": "vitpos.training.everyday:Flip",
        "jitter": "vitpos.training.everyday:Jitter",
        "randaugment": "vitpos.training.randaugment:RandAugment",
        "erase": "vitpos.training.erase:Erase",
        "mix": "vitpos.training.mix:Mix",
        "jigsaw": "vitpos.training.augment:Jigsaw",
        "spp": "vitpos.training.augment:SPP",
    },
    sums=True,
)
DEFENCES = Catalog(
    "defence",
    {
        "clip": "vitpos.training.defences:clip",
        "noise": "vitpos.training.defences:noise",
        "prune": "vitpos.training.defences:prune",
    },
    sums=True,
)
