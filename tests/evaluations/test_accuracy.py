"""Accuracy, confusion matrix and two-class accuracy."""

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from vitpos.data.dataset import Dataset, Split
from vitpos.errors import InputError
from vitpos.models.base import Classifier


class Oracle(Classifier):
    """Predicts the value of the first pixel, plus one if the second pixel is set."""

    head = torch.nn.Identity()

    def forward_features(self, images, positions=None):
        label = (images[:, 0, 0, 0] + images[:, 0, 0, 1]).long()
        return torch.nn.functional.one_hot(label % 3, 3).float()


def labeled_by_pixel(labels, wrong) -> Dataset:
    """Images whose first pixel is their label; ``Oracle`` misclassifies those that are ``wrong``."""
    images = torch.zeros(len(labels), 1, 4, 6, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = torch.tensor(labels), torch.tensor(wrong)
    split = Split(images, torch.tensor(labels))
    return Dataset(split, split, ("a", "b", "c"), (0.0,), (1 / 255,))


def test_accuracy_confusion_and_two_class_accuracy_of_a_known_classifier():
    data = labeled_by_pixel([0, 0, 1, 1, 2, 2, 2, 2], [0, 1, 0, 0, 0, 0, 0, 1])
    assert numbers_of("accuracy", Oracle(), data) == {"accuracy": 6 / 8}
    confusion = evaluate("confusion", Oracle(), data).arrays["confusion"]
    assert confusion.tolist() == [[0.5, 0.5, 0], [0, 1, 0], [0.25, 0, 0.75]]
    assert numbers_of("two_class(classes=(0, 1))", Oracle(), data) == {"accuracy_all": 3 / 4, "accuracy_pair": 3 / 4}
    assert numbers_of("two_class(classes=(0, 2))", Oracle(), data)["accuracy_all"] == 4 / 6


@pytest.mark.parametrize("classes", [(0, 0), (0, 3), (-1, 1)])
def test_two_class_needs_two_different_classes(classes):
    with pytest.raises(InputError, match="choose two from 0 to 2"):
        numbers_of(f"two_class({classes=})", Oracle(), labeled_by_pixel([0, 1], [0, 0]))
