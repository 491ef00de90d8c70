"""The evaluation ``corruption``: errors on corrupted test images."""

import math
from typing import ClassVar

import pytest
import torch
from PIL import Image

from tests.evaluate import evaluate, numbers_of
from vitpos.data.corruptions import CORRUPTIONS, PARAMETERS, corrupt
from vitpos.data.dataset import Dataset, Split
from vitpos.data.image_files import ImageFiles
from vitpos.errors import InputError
from vitpos.evaluations.corruption import ALEXNET
from vitpos.models.base import Classifier


class Brightness(Classifier):
    """Predicts class 1 for bright images."""

    head = torch.nn.Identity()

    def forward_features(self, images, positions=None):
        bright = images.mean((1, 2, 3))
        return torch.stack((0.6 - bright, bright - 0.6), 1)


def dark_and_bright(count=40):
    images = torch.full((count, 3, 16, 16), 100, dtype=torch.uint8)
    labels = torch.arange(count) % 2
    images[labels == 1] = 220
    return Dataset(Split(images, labels), Split(images, labels), ("dark", "bright"), (0.0,), (1.0,))


def test_errors_are_means_over_severities_and_corruptions():
    spec = "corruption(corruptions=('brightness', 'contrast', 'frost'))"
    result = evaluate(spec, Brightness(), dark_and_bright())
    found, by_severity = result.numbers, result.curves["error"]
    # 100 + 25.5 s is above 0.6 · 255 = 153 from severity 3 on, where half of the images are misclassified
    assert found["clean_error"] == 0 and math.isclose(found["error_brightness"], 0.3)
    assert found["error_contrast"] == 0
    assert math.isclose(found["error"], (0.3 + found["error_frost"]) / 3)
    assert list(by_severity) == [1, 2, 3, 4, 5] and math.isclose(sum(by_severity.values()) / 5, found["error"])
    assert math.isclose(found["error_without_frost"], 0.15)
    assert math.isclose(found["mce"], 0.3 / 0.5646 / 2)
    assert math.isclose(found["relative_mce"], 0.3 / (0.5646 - 0.435) / 2)


def test_all_fifteen_corruptions_are_the_default():
    found = numbers_of("corruption(severities=(1,))", Brightness(), dark_and_bright(4))
    names = {name.removeprefix("error_") for name in found} & set(CORRUPTIONS)
    assert names == set(CORRUPTIONS) == set(ALEXNET) == set(PARAMETERS["imagenet"]) == set(PARAMETERS["cifar"])
    assert len(names) == 15


def test_normalized_errors_need_the_parameters_and_severities_of_imagenet_c():
    for options in ("parameters='cifar'", "severities=(1, 2)"):
        found = numbers_of(f"corruption(corruptions=('fog', 'contrast'), {options})", Brightness(), dark_and_bright())
        assert not {"mce", "relative_mce"} & set(found) and "error_without_frost" in found
    alone = numbers_of("corruption(corruptions=('frost',))", Brightness(), dark_and_bright())
    assert not {"mce", "relative_mce", "error_without_frost"} & set(alone) and alone["error"] == alone["error_frost"]


def test_max_images_samples_images_of_all_classes_reproducibly():
    spec = "corruption(corruptions=('brightness',), severities=(5,), max_images=20)"
    first, again = (numbers_of(spec, Brightness(), dark_and_bright()) for _ in range(2))
    dark = dark_and_bright().sample_test(20).test.labels == 0  # misclassified as bright
    assert first == again and first["error"] == dark.double().mean().item() and dark.any() and not dark.all()


@pytest.mark.parametrize("wrong", ["corruptions=('rain',)", "corruptions=()", "severities=(0,)", "severities=(1, 1)"])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(InputError, match="corruption"):
        numbers_of(f"corruption({wrong})", Brightness(), dark_and_bright())


class CountingFiles(ImageFiles):
    """Image files that record which were read."""

    seen: ClassVar[list[str]] = []

    def _read(self, file, seed=None):
        self.seen.append(file.name)
        return super()._read(file, seed)


def test_each_image_file_is_read_once_for_all_corruptions(tmp_path):
    noise = torch.randint(-15, 16, (140, 3, 18, 20), generator=torch.Generator().manual_seed(0))
    levels = torch.linspace(60, 240, 140).view(-1, 1, 1, 1)
    for number, image in enumerate((levels + noise).byte()):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{number:03}.png")
    labels = torch.arange(140) % 2
    half = Split(CountingFiles(tuple(sorted(tmp_path.iterdir())), (16, 16), 1.0, False), labels)
    data = Dataset(half, half, ("dark", "bright"), (0.0,), (1.0,))
    few = data.sample_test(130, seed=3)  # more than a batch
    images = few.test.images[:]
    CountingFiles.seen.clear()
    corruptions, severities = ("shot_noise", "fog", "elastic_transform", "brightness"), (2, 5)
    found = numbers_of(f"corruption({corruptions=}, {severities=}, max_images=130, seed=3)", Brightness(), data)
    for name in corruptions:
        bright = [data.normalize(corrupt(images, name, s, seed=3)).mean((1, 2, 3)) > 0.6 for s in severities]
        expected = sum((b.long() != few.test.labels).double().mean().item() for b in bright) / 2
        assert found[f"error_{name}"] == expected, name
    assert sorted(CountingFiles.seen) == sorted([file.name for file in few.test.images.files] * 2), (
        "once for all corruptions, and once uncorrupted"
    )
