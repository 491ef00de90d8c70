"""Training: the loop, the recipe, augmentations of batches and defenses of gradients."""

from vitpos.registry import Registry

AUGMENTATIONS = Registry(
    "augmentation",
    {
        "crop": "vitpos.training.augment.basic:Crop",
        "flip": "vitpos.training.augment.basic:Flip",
        "color_jitter": "vitpos.training.augment.basic:ColorJitter",
        "randaugment": "vitpos.training.augment.randaugment:RandAugment",
        "erase": "vitpos.training.augment.basic:Erase",
        "mix": "vitpos.training.augment.mix:Mix",
        "jigsaw": "vitpos.training.augment.patch_shuffle:Jigsaw",
        "patch_pixel_shuffle": "vitpos.training.augment.patch_shuffle:PatchPixelShuffle",
    },
    sums=True,
    group="vitpos.augmentations",
    base="vitpos.training.augment.base:Augment",
)
DEFENSES = Registry(
    "defense",
    {
        "clip": "vitpos.training.defenses:clip",
        "noise": "vitpos.training.defenses:noise",
        "prune": "vitpos.training.defenses:prune",
    },
    sums=True,
    group="vitpos.defenses",
    base="vitpos.training.defenses:Defense",
)
register_augmentation = AUGMENTATIONS.register
register_defense = DEFENSES.register
