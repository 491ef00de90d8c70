"""Confidence on images of another data set."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.evaluate import evaluate, numbers_of
from vitpos.data.dataset import Dataset, Split, load
from vitpos.data.image_ops import to_gray, to_shape
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.lab.cells import Cell
from vitpos.models.base import Classifier
from vitpos.training.recipe import Recipe


class Bright(Classifier):
    """As sure of class 0 as the first pixel is bright; ``constant`` ignores it."""

    head = torch.nn.Identity()

    def __init__(self, constant=False):
        super().__init__()
        self.constant = constant

    def forward_features(self, images, positions=None):
        light = images[:, 0, 0, 0] * (0.0 if self.constant else 1.0)
        return torch.stack([light, torch.zeros_like(light), -light], 1)


def small(light, labels) -> Dataset:
    images = torch.zeros(len(light), 1, 16, 24, dtype=torch.uint8)
    images[:, 0] = torch.tensor(light)[:, None, None]
    split = Split(images, torch.tensor(labels))
    return Dataset(split, split, ("a", "b", "c"), (0.0,), (1 / 255 * 100,))


DATA = small([250, 240, 230, 220, 210, 200], [0, 0, 1, 0, 2, 0])
DIM = "left_right(count=96)"  # whose first pixel is black


def test_dim_outliers_are_found_by_who_is_sure_of_bright_pictures():
    numbers = numbers_of(f"outliers(against={DIM!r})", Bright(), DATA)
    assert numbers["aupr"] == numbers["auroc"] == 1 and numbers["fpr95"] == 0
    assert numbers["aupr_chance"] == 1 / 2 and numbers["accuracy"] == 4 / 6, "as many outliers as test images"
    assert numbers["aurra"] == pytest.approx((1 + 1 + 2 / 3 + 3 / 4 + 3 / 5 + 4 / 6) / 6)
    few = numbers_of(f"outliers(against={DIM!r}, limit=2)", Bright(), DATA)
    assert few["aupr_chance"] == 1 / 4


def test_a_constant_model_is_at_chance():
    numbers = numbers_of(f"outliers(against={DIM!r}, limit=3)", Bright(constant=True), DATA)
    assert numbers["aupr"] == pytest.approx(numbers["aupr_chance"]) and numbers["aupr_chance"] == 1 / 3
    assert numbers["auroc"] == 0.5 and numbers["fpr95"] == 1
    assert numbers["aurra"] == pytest.approx(numbers["accuracy"])


def test_of_some_classes_only_their_logits_and_images_count():
    numbers = numbers_of(f"outliers(against={DIM!r}, classes=(2, 1))", Bright(), DATA)
    assert numbers["accuracy"] == 1 / 2, "between b and c the model says b: right for the third picture, not the fifth"
    assert numbers["aupr_chance"] == 6 / 8


def test_a_rehearsal_without_any_image_of_the_classes_ends_well():
    few = replace(DATA, test=DATA.test.head(2))
    assert numbers_of(f"outliers(against={DIM!r}, classes=(1, 2))", Bright(), few).keys()


def test_what_is_remembered_of_the_own_images_is_not_taken_for_the_outliers():
    ctx = EvalContext(Bright(), DATA)
    first, second = (EVALUATIONS.build(f"outliers(against={DIM!r})", ctx) for _ in range(2))
    assert first == second == evaluate(f"outliers(against={DIM!r})", Bright(), DATA)


def test_images_are_converted_to_another_shape():
    gray = torch.arange(4, dtype=torch.uint8).mul(60).view(1, 1, 2, 2)
    color = to_shape(gray, (3, 4, 6))
    assert color.shape == (1, 3, 4, 6) and torch.equal(color[:, 0], color[:, 2])
    assert torch.equal(to_shape(gray, (1, 2, 2)), gray) and torch.equal(
        to_shape(to_shape(gray, (3, 2, 2)), (1, 2, 2)), gray
    )
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8)
    assert to_shape(red, (1, 4, 4)).unique().tolist() == [76]
    stripes = (torch.arange(16) % 2 * 255).to(torch.uint8).expand(1, 1, 16, 16)
    assert (to_shape(stripes, (1, 4, 4)).float() - 127.5).abs().max() < 20, "antialiased"
    with pytest.raises(InputError, match="4 channels cannot be converted to 3"):
        to_shape(torch.zeros(1, 4, 2, 2, dtype=torch.uint8), (3, 2, 2))


def test_colors_are_weighed_as_pillow_weighs_them():
    colors = torch.randint(256, (64, 64, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pillow = torch.from_numpy(np.array(Image.fromarray(colors.numpy()).convert("L"))).float()
    ours = to_gray(colors.permute(2, 0, 1)[None].float())
    assert (ours - pillow).abs().max() <= 0.501 and torch.equal(to_gray(ours), ours)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("classes=(0, 3)", "from 0 to 2"),
        ("classes=()", "choose different ones"),
        ("against='fashon'", "did you mean 'fashion_mnist'"),
        ("against='classes'", "a view without a data set"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        numbers_of(f"outliers({options})", Bright(), DATA)


@pytest.mark.parametrize(
    ("own", "against", "same"),
    [
        ("left_right(count=96)", "left_right(count=96)", True),
        ("left_right(count=96)", "left_right(count=480) + subset(limit=9)", True),
        ("left_right(count=96) + holdout", "left_right(count=96) + classes(keep=(6, 9))", True),
        ("left_right(count=96) + classes(keep=(0, 1, 2))", "left_right(count=96) + classes(keep=(6, 9))", False),
        ("left_right(count=96) + classes(keep=(0, 1, 2))", "dot_location(count=96)", False),
    ],
)
def test_the_models_own_data_are_no_outliers(own, against, same):
    data = replace(load(own), test=load(own).test.head(2))  # as a rehearsal has them
    if same:
        with pytest.raises(InputError, match="is the model's own data; choose another set"):
            numbers_of(f"outliers({against=})", Bright(), data)
    else:
        assert numbers_of(f"outliers({against=})", Bright(), data)["aupr_chance"] == 1 / 2


def test_the_other_data_is_fetched_before_anything_is_trained(monkeypatch, tmp_path):
    from vitpos.lab.downloads import missing_data

    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path))  # nothing is here but what came with the package
    evaluations = ("accuracy", "outliers", "outliers(against='cifar10 + subset(limit=9)', limit=5)")
    assert missing_data([Cell("mnist", "cnn", "none", 0, Recipe(), evaluations)]) == ["fashion_mnist", "cifar10"]
