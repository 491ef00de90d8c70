"""How models are trained, and what may be done to their pictures meanwhile."""

from vitpos.registry import Registry

AUGMENTS = Registry(
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
    group="vitpos.augmentations",
    base="vitpos.training.augment:Augment",
)
DEFENCES = Registry(
    "defence",
    {
        "clip": "vitpos.training.defences:clip",
        "noise": "vitpos.training.defences:noise",
        "prune": "vitpos.training.defences:prune",
    },
    sums=True,
    group="vitpos.defenses",
    base="vitpos.training.defences:Defence",
)
register_augmentation = AUGMENTS.register
register_defense = DEFENCES.register
