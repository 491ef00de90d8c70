"""Small models and random data sets for the tests of model inspection."""

import torch

from vitpos.data.dataset import Dataset, Split
from vitpos.models import MODELS

SHAPE = (1, 8, 18)  # with patches of 2×3 pixels, a grid of 4×6
GRID, PATCH = (4, 6), (2, 3)
VIT_SPECS = [
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, weight_init='xavier')",
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, weight_init='xavier', pool='mean')",
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, weight_init='xavier', registers=2)",
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, weight_init='xavier', april_block=True, pool='mean', registers=1)",
]
MODEL_SPECS = [*VIT_SPECS, "minimal(patch=(2, 3), dim=16)", "minimal(patch=(2, 3), dim=16, residual=True)"]


def random_data(count=60, *, shape=SHAPE, seed=0) -> Dataset:
    """Random images, whose patches are independent of each other and of their positions."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.arange(count) % 3)
    return Dataset(split, split, ("a", "b", "c"), (0.5,), (0.25,))


def build(spec=VIT_SPECS[0], encoding="none", *, seed=0, qkv_scale=1.0):
    """A model in eval mode whose qkv weights are multiplied by ``qkv_scale``."""
    torch.manual_seed(seed)
    model = MODELS.build(spec, SHAPE, 3, encoding).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name:
                parameter.mul_(qkv_scale)
    return model


def normalized(data, count=3):
    """The first test images, normalized."""
    return data.normalize(data.test.images[:count])


def without_content(model):
    """Sets the query and key weights to zero, so that logits have no content; returns the model."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name:
                parameter[: 2 * len(parameter) // 3] = 0
    return model
