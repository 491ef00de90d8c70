import math

import pytest
import torch

from tests.evaluate import evaluate
from tests.privacy.models import IMAGE, build_model, closed_form_numbers, random_data, small
from vitpos.data.dataset import Dataset, Split
from vitpos.privacy.reconstruction import patch_metrics


def test_diagnostics_are_means_over_the_images():
    spec = "gradient_matching(images=5, steps=1, defense='noise(std=1.0)', seed=3)"
    accuracy = evaluate(spec, build_model("learned"), random_data(5)).numbers["label_accuracy"]
    assert 0 < accuracy < 1 and (5 * accuracy) % 1 == pytest.approx(0)


def test_the_psnr_of_a_perfect_reconstruction_is_finite():
    black, data = Split(torch.zeros(1, *IMAGE, dtype=torch.uint8), torch.tensor([0])), random_data()
    result = evaluate(
        "closed_form(images=1)", build_model("learned"), Dataset(black, black, data.classes, data.mean, data.std)
    )
    assert 200 < result.numbers["psnr"] <= 320


def test_the_baseline_of_each_image_is_its_own_mean_color():
    data = random_data()
    pixels = data.test.images.double() / 255
    baseline = [-10 * math.log10(((image - image.mean((1, 2), keepdim=True)) ** 2).mean().item()) for image in pixels]
    for encoding in ("learned", "factorized"):
        numbers = evaluate("closed_form(images=3)", build_model(encoding), data).numbers
        assert numbers["psnr_own_mean"] == pytest.approx(sum(baseline) / 3) and baseline[0] > numbers["psnr_mean_image"]
        assert numbers["psnr_gain"] == pytest.approx(numbers["psnr"] - sum(baseline) / 3)


def test_the_baseline_of_a_constant_image_is_finite():
    gray, data = Split(torch.full((1, *IMAGE), 100, dtype=torch.uint8), torch.tensor([0])), random_data()
    numbers = evaluate(
        "closed_form(images=1)", build_model("learned"), Dataset(gray, gray, data.classes, data.mean, data.std)
    ).numbers
    assert numbers["psnr_own_mean"] == 320


def test_without_hidden_positions_all_patches_are_visible():
    numbers = closed_form_numbers("null_space", "plain")
    assert numbers["psnr_visible"] == pytest.approx(numbers["psnr"])


def test_if_all_positions_are_hidden_no_patch_is_visible():
    model, data = small("learned + mjp")
    spec = "gradient_matching(images=1, steps=1, scenario='find_shuffled', mask_ratio=1.0)"
    numbers = evaluate(spec, model, data).numbers
    assert "psnr_visible" not in numbers and all(map(math.isfinite, numbers.values()))


def test_patches_are_exact_or_in_their_place():
    target = torch.rand(2, 3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    same = patch_metrics(target, target, (2, 3))
    assert same == {"patches_exact": 1.0, "patches_placed": 1.0}
    near = patch_metrics(target + 0.01, target, (2, 3))
    assert near == {"patches_exact": 0.0, "patches_placed": 1.0}
    swapped = target.roll(3, 3)  # the two columns of patches change places
    assert patch_metrics(swapped, target, (2, 3)) == {"patches_exact": 0.0, "patches_placed": 0.0}
    constant = torch.zeros_like(target)
    assert patch_metrics(constant, constant, (2, 3))["patches_placed"] == 1.0, "equal patches are in each other's place"
