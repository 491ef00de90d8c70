"""Parameters, multiply-adds, memory and time."""

import pytest
import torch

from tests.evaluate import numbers_of
from tests.evaluations.models import (
    digits,
    small_vit,
)
from vitpos.models import MODELS
from vitpos.models.base import Classifier


@pytest.mark.parametrize(
    ("spec", "encoding", "positions"),
    [
        ("minimal(dim=8)", "learned", 49 * 8),
        ("swin(dim=8, depths=(1, 1), heads=(1, 2))", "learned", 49 * 8 + 13 * 13 + 7 * 7 * 2),
        ("resnet(depths=(1,), width=4)", "none", 0),
    ],
)
def test_cost_counts_position_parameters_and_does_not_change_the_model(spec, encoding, positions):
    model = MODELS.build(spec, (1, 28, 28), 10, encoding)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = numbers_of("cost(batch_size=4, steps=1)", model, digits(6))
    assert numbers["position_parameters"] == positions and numbers["step_ms"] > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_macs_equal_their_formula_and_memory_grows_with_a_bias():
    data = digits(6)
    found = {
        encoding: numbers_of("cost(batch_size=4, steps=1)", small_vit(encoding).float(), data)
        for encoding in ("none", "learned", "relative")
    }
    # of a ViT on 7×7 patches without CLS, in order: patches, q k v and the output, attention, feed-forward, head
    expected = 49 * 16 * 16 + 2 * (49 * 4 * 16 * 16 + 2 * 49 * 49 * 16 + 49 * 8 * 16 * 16) + 16 * 10
    assert found["none"]["macs"] == found["learned"]["macs"] == expected
    assert found["relative"]["peak_memory_mb"] > found["none"]["peak_memory_mb"] > 4 * 49 * 16 * 4 * 10 / 1e6
    assert all(numbers["step_time_ratio"] > 0 for numbers in found.values())


def test_cost_can_be_compared_with_another_encoding():
    vit, data = small_vit("relative").float(), digits(6)
    memory = {
        baseline: numbers_of(f"cost(batch_size=4, steps=1, baseline={baseline!r})", vit, data)["peak_memory_ratio"]
        for baseline in ("none", "relative")
    }
    assert memory["relative"] == 1 < memory["none"]


def test_peak_memory_counts_live_tensors_only():
    class Wasteful(Classifier):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(784, 10)

        def forward_with_penalty(self, images, positions=None):
            for _ in range(3):
                images = images + (torch.zeros(250_000) + 1).sum()  # two million bytes, freed before the next two
            return self.head(images.flatten(1)), 0.0

        def forward(self, images, positions=None):
            return self.forward_with_penalty(images)[0]

    model, data = Wasteful(), digits(6)
    taken = numbers_of("cost(batch_size=4, steps=1)", model, data)["peak_memory_mb"]
    weights = 4 * 7850 / 1e6
    assert 2 + weights < taken < 2.2 + 2 * weights
    assert "step_time_ratio" not in numbers_of("cost(batch_size=4, steps=1)", model, data)
