"""Small models, random images and clients for the tests of attacks."""

import torch

from tests.evaluate import evaluate
from vitpos.data.dataset import Dataset, Split
from vitpos.evaluations.context import EvalContext
from vitpos.models import MODELS
from vitpos.privacy.client import Client

IMAGE = (3, 12, 20)  # neither square
PATCH = (4, 5)
GRID = (3, 4)
ADDS_TRAINED_VECTORS = [  # one equation or more per position
    "learned",
    "learned(per_layer=True)",
    "learned(prefix_embed=True)",
    "fourier(hidden_dim=64)",
    "coordinate_mlp(activation='relu')",
    "learned + rope",
    "learned + cpe",
    "learned + sape2",
    "factorized + learned",
    "learned + mjp",
]
ADDS_NONE = [
    "none",
    "sinusoidal",
    "fourier(learnable=False)",
    "rope",
    "relative",
    "alibi",
    "sape2",
    "cpe",
    "rope + mjp",
]
PLAIN = "vit(patch=(4, 5), dim=32, depth=2, heads=4)"
REGISTER = "vit(patch=(4, 5), dim=32, depth=2, heads=4, registers=1)"
APRIL = "vit(patch=(4, 5), dim=64, depth=2, heads=4, registers=2, april_block=True)"
SMALL_IMAGE = (1, 8, 12)


def build_model(encoding, spec=REGISTER, image=IMAGE):
    """Returns a model for five classes with the weights of seed 0."""
    torch.manual_seed(0)
    return MODELS.build(spec, image, 5, encoding)


def random_data(count=3, image=IMAGE):
    """Returns a data set of random images with labels 0, 1, 2 …"""
    images = torch.randint(256, (count, *image), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    split = Split(images, torch.arange(count) % 5)
    return Dataset(split, split, tuple("abcde"), (0.4,) * image[0], (0.25,) * image[0])


def small(encoding="learned", count=1):
    """Returns a model and images that are small enough for gradient matching."""
    spec = "vit(patch=4, dim=32, depth=1, heads=2, weight_init='xavier', pool='mean')"
    return build_model(encoding, spec, SMALL_IMAGE), random_data(count, SMALL_IMAGE)


def shared_gradients(model, data, *args, **options):
    """Returns all gradients that a client shares."""
    return [*Client(EvalContext(model, data), *args, **options).shared_gradients()]


def closed_form_numbers(attacker, scenario="find_shuffled", encoding="learned + mjp", **options):
    """Returns the numbers of the closed form on three images."""
    more = "".join(f", {key}={value!r}" for key, value in options.items())
    spec = f"closed_form(images=3, scenario={scenario!r}, attacker={attacker!r}{more})"
    return evaluate(spec, build_model(encoding), random_data()).numbers
