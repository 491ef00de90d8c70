"""Out-of-distribution detection and calibration: ``ood``."""

from dataclasses import replace

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from vitpos.data.dataset import Dataset, Split, load
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.lab.cells import Cell
from vitpos.models.base import Classifier
from vitpos.training.recipe import Recipe


class Brightness(Classifier):
    """Its confidence in class 0 grows with the brightness of the first pixel; ``constant`` ignores the pixel."""

    head = torch.nn.Identity()

    def __init__(self, constant=False):
        super().__init__()
        self.constant = constant

    def forward_features(self, images, positions=None):
        brightness = images[:, 0, 0, 0] * (0.0 if self.constant else 1.0)
        return torch.stack([brightness, torch.zeros_like(brightness), -brightness], 1)


def uniform_images(brightness, labels) -> Dataset:
    """Images of a single gray value each."""
    images = torch.zeros(len(brightness), 1, 16, 24, dtype=torch.uint8)
    images[:, 0] = torch.tensor(brightness)[:, None, None]
    split = Split(images, torch.tensor(labels))
    return Dataset(split, split, ("a", "b", "c"), (0.0,), (1 / 255 * 100,))


DATA = uniform_images([250, 240, 230, 220, 210, 200], [0, 0, 1, 0, 2, 0])
DARK = "left_right(count=96)"  # whose first pixel is black


def test_dark_outliers_are_detected_by_a_model_that_is_confident_on_bright_images():
    numbers = numbers_of(f"ood(dataset={DARK!r})", Brightness(), DATA)
    assert numbers["aupr"] == numbers["auroc"] == 1 and numbers["fpr95"] == 0
    assert numbers["aupr_baseline"] == 1 / 2 and numbers["accuracy"] == 4 / 6, "as many outliers as test images"
    assert numbers["aurra"] == pytest.approx((1 + 1 + 2 / 3 + 3 / 4 + 3 / 5 + 4 / 6) / 6)
    few = numbers_of(f"ood(dataset={DARK!r}, max_images=2)", Brightness(), DATA)
    assert few["aupr_baseline"] == 1 / 4


def test_a_constant_model_detects_at_chance():
    numbers = numbers_of(f"ood(dataset={DARK!r}, max_images=3)", Brightness(constant=True), DATA)
    assert numbers["aupr"] == pytest.approx(numbers["aupr_baseline"]) and numbers["aupr_baseline"] == 1 / 3
    assert numbers["auroc"] == 0.5 and numbers["fpr95"] == 1
    assert numbers["aurra"] == pytest.approx(numbers["accuracy"])


def test_classes_selects_logits_and_test_images():
    numbers = numbers_of(f"ood(dataset={DARK!r}, classes=(2, 1))", Brightness(), DATA)
    assert numbers["accuracy"] == 1 / 2, (
        "between b and c the model predicts b, which is correct for the third image and not for the fifth"
    )
    assert numbers["aupr_baseline"] == 6 / 8


def test_a_dry_run_without_any_image_of_the_classes_has_numbers():
    few = replace(DATA, test=DATA.test.head(2))
    assert numbers_of(f"ood(dataset={DARK!r}, classes=(1, 2))", Brightness(), few).keys()


def test_predictions_of_outliers_are_not_those_of_the_test_images():
    ctx = EvalContext(Brightness(), DATA)
    first, second = (EVALUATIONS.build(f"ood(dataset={DARK!r})", ctx) for _ in range(2))
    assert first == second == evaluate(f"ood(dataset={DARK!r})", Brightness(), DATA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("classes=(0, 3)", "from 0 to 2"),
        ("classes=()", "choose different ones"),
        ("dataset='fashon'", "did you mean 'fashion_mnist'"),
        ("dataset='classes'", "a view without a data set"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        numbers_of(f"ood({options})", Brightness(), DATA)


@pytest.mark.parametrize(
    ("own", "dataset", "same"),
    [
        ("left_right(count=96)", "left_right(count=96)", True),
        ("left_right(count=96)", "left_right(count=480) + subset(limit=9)", True),
        ("left_right(count=96) + holdout", "left_right(count=96) + classes(keep=(6, 9))", True),
        ("left_right(count=96) + classes(keep=(0, 1, 2))", "left_right(count=96) + classes(keep=(6, 9))", False),
        ("left_right(count=96) + classes(keep=(0, 1, 2))", "dot_location(count=96)", False),
    ],
)
def test_the_data_of_the_model_is_refused_as_outliers(own, dataset, same):
    data = replace(load(own), test=load(own).test.head(2))  # as in a dry run
    if same:
        with pytest.raises(InputError, match="own data"):
            numbers_of(f"ood({dataset=})", Brightness(), data)
    else:
        assert numbers_of(f"ood({dataset=})", Brightness(), data)["aupr_baseline"] == 1 / 2


def test_data_sets_of_evaluations_are_downloaded_before_training(monkeypatch, tmp_path):
    from vitpos.lab.downloads import missing_data

    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path))  # only the data in the package
    evaluations = ("accuracy", "segmentation", "ood", "ood(dataset='cifar10 + subset(limit=9)', max_images=5)")
    assert missing_data([Cell("mnist", "cnn", "none", 0, Recipe(), evaluations)]) == ["fashion_mnist", "cifar10"]
