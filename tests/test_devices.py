"""Evaluations work where their model is; to see that, no graphics card is needed."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.evaluate import numbers_of
from vitpos.data.dataset import Dataset, Split
from vitpos.evaluations.predict import features_and_logits
from vitpos.models.base import Classifier

CARD = torch.device("meta")  # stands for a graphics card


IMAGES = torch.randint(256, (5, 1, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
DATA = Dataset(*[Split(IMAGES, torch.arange(5) % 3)] * 2, ("a", "b", "c"), (0.5,), (0.5,))


class There(torch.Tensor):
    """Numbers that are said to lie on the card."""

    device = CARD


class Card(TorchFunctionMode):
    """While this lasts, what is sent to the card is There, and does not mix with what is not."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.to and args[1] == CARD:
            return args[0].as_subclass(There)
        if func is torch.Tensor.cpu:
            return args[0].as_subclass(torch.Tensor)
        if kwargs.get("device") == CARD:
            return func(*args, **kwargs | {"device": None}).as_subclass(There)
        tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.ndim]
        assert len({type(x) for x in tensors}) <= 1, f"{func} is asked of numbers here and there"
        return func(*args, **kwargs)


class Pixels(Classifier):
    """Answers by three pixels, of pictures that are where it is."""

    head = torch.nn.Identity()

    def __init__(self, place):
        super().__init__()
        self.place = place

    def parameters(self, recurse=True):
        yield torch.zeros(1).as_subclass(self.place)

    def forward_features(self, images, positions=None):
        assert type(images) is self.place
        return images.flatten(1)[:, ::100]


@pytest.mark.parametrize(
    "spec",
    [
        "accuracy",
        "jigsaw(grid=(2, 4))",
        "jigsaw(grid=(2, 4), per='image')",
        "shuffle(grid=(2, 4), ratio=0.5, pixels=True)",
        "shifts",
        "translation(unit='pixels', border='crop')",
        "corruption(severities=(3,))",
        "outliers(against='left_right(count=8)')",
    ],
)
def test_an_evaluation_says_the_same_on_another_device_and_leaves_nothing_behind(spec):
    with Card():
        found = numbers_of(spec, Pixels(There), DATA)
    assert found == numbers_of(spec, Pixels(torch.Tensor), DATA)


def test_pictures_are_changed_on_the_device_of_the_model():
    seen = []
    with Card():
        features_and_logits(Pixels(There), DATA, lambda images, start: (seen.append(type(images)) or images, None))
    assert seen == [There]
