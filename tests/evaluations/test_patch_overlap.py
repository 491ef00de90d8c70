"""Overlap of the patches of two classes."""

import math

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import digits
from vitpos.data.dataset import Dataset, Split
from vitpos.errors import InputError
from vitpos.models import MODELS

NAMES = ("a", "b", "c", "d")


def images_of(kinds, count, seed, channels=1):
    """(count, channels, 4, 12): six patches of 2×4 of dark noise, or of bright noise where ``kinds[class]`` is False."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % len(kinds)
    images = torch.randint(256, (count, channels, 4, 12), generator=generator, dtype=torch.uint8)
    low = torch.tensor(kinds)[labels][:, None, None, None]
    return Split(torch.where(low, images // 8, 128 + images // 8), labels)


def data_of(kinds, count=120, channels=1):
    """Classes with dark (True) or bright noise."""
    return Dataset(images_of(kinds, count, 0, channels), images_of(kinds, count, 1, channels), NAMES, (0.5,), (0.5,))


def model(shape=(1, 4, 12), classes=4):
    return MODELS.build("minimal(patch=(2, 4), dim=8)", shape, classes)


SPEC = "patch_overlap(pair=(0, 1), other_pair=(2, 3), resamples=200)"


@pytest.mark.parametrize("channels", [1, 3])
def test_equal_distributions_overlap_and_different_ones_do_not(channels):
    numbers = numbers_of(SPEC, model((channels, 4, 12)), data_of([True, True, True, False], channels=channels))
    assert numbers["overlap"] == pytest.approx(1, abs=0.15) and numbers["overlap_low"] < 1 < numbers["overlap_high"]
    assert numbers["other_overlap"] == numbers["other_overlap_high"] == 0
    assert numbers["difference"] == numbers["overlap"] and numbers["difference_low"] > 0.7
    assert numbers["distance_ratio"] == pytest.approx(1, abs=0.05) and numbers["other_distance_ratio"] > 2


def test_the_overlap_is_that_of_a_loop_over_patches():
    torch.manual_seed(0)
    data = data_of([True, True, True, False], 24)
    mixed = data.test.images.where(torch.rand(24, 1, 4, 12) < 0.7, data.test.images[torch.randperm(24)])
    data = Dataset(data.train, Split(mixed, data.test.labels), NAMES, (0.5,), (0.5,))

    def patches(split, label):
        return [
            [image[0, r : r + 2, c : c + 4].double() for r in (0, 2) for c in (0, 4, 8)]
            for image in split.images[split.labels == label]
        ]

    def distance(patch, images):
        return min(((patch - other) ** 2).sum().item() for image in images for other in image)

    total = 0.0
    for own, other in ((2, 3), (3, 2)):
        references = [patches(data.train, label) for label in (own, other)]
        each = []
        for image in patches(data.test, own):
            pairs = [[distance(patch, images) for images in references] for patch in image]
            each.append(sum(1.0 if far < near else 0.5 if far == near else 0.0 for near, far in pairs) / len(pairs))
        total += sum(each) / len(each)
    assert numbers_of(SPEC, model(), data)["other_overlap"] == pytest.approx(total) and 0 < total < 1


def test_blank_patches_are_left_out_unless_they_are_included():
    data = data_of([True, True, True, False])
    for split in (data.train, data.test):
        split.images[..., :8] = 255  # four of six patches are the same in all images
    without, included = (numbers_of(spec, model(), data) for spec in (SPEC, SPEC[:-1] + ", blank=True)"))
    assert without["other_overlap"] == 0
    assert included["other_overlap"] == pytest.approx(2 * 4 / 6 / 2), "ties count one half"


def test_missing_classes_are_undefined_and_unknown_ones_an_error():
    data = data_of([True, False])
    numbers = numbers_of(SPEC, model(), data)
    assert math.isnan(numbers["difference"]) and math.isnan(numbers["other_overlap_low"]) and numbers["overlap"] == 0
    with pytest.raises(InputError, match="give two different classes from 0 to 3"):
        numbers_of("patch_overlap(pair=(1, 1), other_pair=(2, 3))", model(), data)
    result = evaluate("patch_overlap", MODELS.build("cnn", (1, 28, 28), 10), digits(2))
    assert not result.numbers and "no patches" in result.reason
