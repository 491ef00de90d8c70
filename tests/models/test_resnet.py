"""The ResNet keeps the size of small images and starts as the identity."""

import pytest
import torch

from vitpos.models import MODELS


@pytest.mark.parametrize(("stem", "side"), [("large", 7), ("small", 28)])
def test_a_small_stem_keeps_the_size_of_small_images(stem, side):
    model = MODELS.build(f"resnet(depths=(1, 1), width=4, stem={stem!r})", (1, 28, 28), 5)
    images = torch.randn(2, 1, 28, 28)
    assert model.pool(model.conv(images)).shape[2:] == (side, side)
    assert torch.equal(model.eval().head(model.forward_features(images)), model(images))
    assert model.forward_features(images).shape == (2, 32)


def test_a_block_of_a_new_resnet_adds_nothing():
    model = MODELS.build("resnet(depths=(2,), width=4)", (3, 32, 32), 5).train()
    x = torch.rand(2, 16, 8, 8)
    assert torch.equal(model.stages[0][1](x), x)
