"""Distinct patch embeddings."""

import torch

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import digits
from vitpos.data.dataset import Dataset, Split
from vitpos.models import MODELS


def test_blank_and_distinct_patches_are_counted():
    images = torch.zeros(2, 1, 4, 6, dtype=torch.uint8)
    images[0, 0, 0, 0] = images[0, 0, 0, 4] = images[0, 0, 2, 3] = 9  # patches 2×2: two equal, one other, three blank
    data = Dataset(*[Split(images, torch.tensor([0, 1]))] * 2, ("a", "b"), (0.0,), (1.0,))
    for encoding, after in (("none", 2.0), ("learned(std=1.0)", 6.0)):
        model = MODELS.build("minimal(patch=2)", data.shape, 2, encoding)
        numbers = numbers_of("token_diversity", model, data)
        assert numbers == {"patches": 6, "blank_fraction": 9 / 12, "distinct_before": 2.0, "distinct_after": after}


def test_a_model_without_patches_gets_a_reason():
    result = evaluate("token_diversity", MODELS.build("cnn", (1, 28, 28), 10), digits(2))
    assert not result.numbers and "no patches" in result.reason
