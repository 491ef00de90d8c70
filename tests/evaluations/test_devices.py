"""Evaluations transform images on the device of the model; the device is simulated."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.evaluate import numbers_of
from vitpos.data.dataset import Dataset, Split
from vitpos.evaluations.predict import features_and_logits
from vitpos.models.base import Classifier

CARD = torch.device("meta")  # stands for a GPU


IMAGES = torch.randint(256, (5, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
DATA = Dataset(*[Split(IMAGES, torch.arange(5) % 3)] * 2, ("a", "b", "c"), (0.5,), (0.5,))


class OnDevice(torch.Tensor):
    """A tensor on the simulated device."""

    device = CARD


class Card(TorchFunctionMode):
    """A mode in which tensors that are moved to the simulated device cannot be mixed with others."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.to and args[1] == CARD:
            return args[0].as_subclass(OnDevice)
        if func is torch.Tensor.cpu:
            return args[0].as_subclass(torch.Tensor)
        if kwargs.get("device") == CARD:
            return func(*args, **kwargs | {"device": None}).as_subclass(OnDevice)
        tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.ndim]
        assert len({type(x) for x in tensors}) <= 1, f"{func} mixes devices"
        return func(*args, **kwargs)


class Pixels(Classifier):
    """Its logits are three pixels of images on its own device."""

    head = torch.nn.Identity()

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def parameters(self, recurse=True):
        yield torch.zeros(1).as_subclass(self.kind)

    def forward_features(self, images, positions=None):
        assert type(images) is self.kind
        return images.flatten(1)[:, ::100]


@pytest.mark.parametrize(
    "spec",
    [
        "accuracy",
        "jigsaw(grid=(2, 4))",
        "jigsaw(grid=(2, 4), per='image')",
        "shuffle(grid=(2, 4), mask_ratio=0.5, shuffle_pixels=True)",
        "random_shifts",
        "translation(unit='pixels', border='crop')",
        "corruption(severities=(3,))",
        "ood(dataset='left_right(count=8)')",
    ],
)
def test_evaluations_on_another_device_give_the_same_numbers(spec):
    with Card():
        found = numbers_of(spec, Pixels(OnDevice), DATA)
    assert found == numbers_of(spec, Pixels(torch.Tensor), DATA)


def test_images_are_transformed_on_the_device_of_the_model():
    seen = []
    with Card():
        features_and_logits(Pixels(OnDevice), DATA, lambda images, start: (seen.append(type(images)) or images, None))
    assert seen == [OnDevice]
