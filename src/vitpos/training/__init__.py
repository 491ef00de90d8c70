"""How models are trained, and what may be done to their pictures meanwhile."""

from vitpos.catalog import Catalog

AUGMENTS = Catalog(
    "augment",
    {
        "crop": "vitpos.training.augment.basic:Crop",
        "flip": "vitpos.training.augment.basic:Flip",
        "jitter": "vitpos.training.augment.basic:Jitter",
        "randaugment": "vitpos.training.augment.randaugment:RandAugment",
        "erase": "vitpos.training.erase:Erase",
        "mix": "vitpos.training.augment.mix:Mix",
        "jigsaw": "vitpos.training.augment.base:Jigsaw",
        "spp": "vitpos.training.augment.base:SPP",
    },
    sums=True,
)
DEFENCES = Catalog(
    "defence",
    {
        "clip": "vitpos.training.defenses:clip",
        "noise": "vitpos.training.defenses:noise",
        "prune": "vitpos.training.defenses:prune",
    },
    sums=True,
)
