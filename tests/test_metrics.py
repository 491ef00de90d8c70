"""Image metrics: worked out by hand, against torchmetrics and scikit-image, and what they refuse."""

import math

import numpy
import pytest
import torch
import torch.nn.functional as F

from tests.references import peer
from vitpos.errors import UserError
from vitpos.metrics.image_similarity import fourier, measure, missing, mse, psnr, ssim

METRICS = (mse, psnr, ssim, fourier)
SHAPES = [(3, 32, 32), (1, 28, 28), (3, 24, 41), (1, 57, 33), (3, 11, 11)]
TYPES = [torch.float32, torch.float64]


def pictures(count, channels, height, width, dtype=torch.float64, seed=0):
    """Pictures with coarse and fine parts, and what an attack might have made of them: (found, true)."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.zeros(count, channels, height, width, dtype=torch.float64)
    for cell, weight in ((16, 0.6), (6, 0.3), (2, 0.2)):
        coarse = torch.rand(count, channels, max(height // cell, 2), max(width // cell, 2), generator=draw).double()
        true += weight * F.interpolate(coarse, size=(height, width), mode="bicubic")
    true = (true - 0.1).clamp(0, 1)
    noise = torch.randn(true.shape, generator=draw).double() * torch.linspace(0.02, 0.3, count).view(-1, 1, 1, 1)
    return (true + noise).clamp(0, 1).to(dtype), true.to(dtype)


def pixel_distance(first, second):
    """The cosine distance of pixels."""
    return 1 - F.cosine_similarity(first.flatten(1), second.flatten(1))


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_picture_is_as_near_as_can_be(shape, dtype):
    _, true = pictures(3, *shape, dtype)
    assert (mse(true, true) == 0).all()
    assert (psnr(true, true) == math.inf).all()
    assert ssim(true, true).tolist() == pytest.approx([1] * 3, abs=1e-12)
    assert (fourier(true, true) == 0).all()


def test_differences_by_hand():
    true = torch.zeros(3, 2, 3, 5, dtype=torch.float64)
    found = true.clone()
    found[0] = 1  # white for black
    found[1] = 0.1
    found[2, 1, 0, 4] = 0.3  # one of thirty pixels
    assert mse(found, true).tolist() == pytest.approx([1, 0.01, 0.09 / 30])
    assert psnr(found, true).tolist() == pytest.approx([0, 20, -10 * math.log10(0.003)])


def test_structural_similarity_of_one_window_is_its_formula():
    found, true = pictures(2, 1, 11, 11)
    bell = [[math.exp(-((r - 5) ** 2 + (c - 5) ** 2) / (2 * 1.5**2)) for c in range(11)] for r in range(11)]
    weight = numpy.array(bell) / numpy.sum(bell)
    for index, (x, y) in enumerate(zip(found[:, 0].numpy(), true[:, 0].numpy(), strict=True)):
        a, b = (weight * x).sum(), (weight * y).sum()
        variances = (weight * (x - a) ** 2).sum() + (weight * (y - b) ** 2).sum()
        covariance = (weight * (x - a) * (y - b)).sum()
        expected = (2 * a * b + 1e-4) * (2 * covariance + 9e-4) / ((a**2 + b**2 + 1e-4) * (variances + 9e-4))
        assert ssim(found, true)[index].item() == pytest.approx(expected, abs=1e-12)


def test_structural_similarity_of_flat_pictures_is_that_of_their_brightness():
    found, true = torch.full((1, 3, 16, 20), 0.25), torch.full((1, 3, 16, 20), 0.75)
    assert ssim(found, true).item() == pytest.approx((2 * 0.25 * 0.75 + 1e-4) / (0.25**2 + 0.75**2 + 1e-4), abs=1e-6)


def test_structural_similarity_is_the_mean_over_channels():
    found, true = pictures(2, 3, 20, 26)
    channels = [ssim(found[:, c : c + 1], true[:, c : c + 1]) for c in range(3)]
    assert torch.allclose(ssim(found, true), torch.stack(channels).mean(0), atol=1e-12)


def test_distances_of_magnitudes_by_hand():
    point, flat, black = torch.tensor([[[[1.0, 0.0]]], [[[1.0, 1.0]]], [[[0.0, 0.0]]]])[:, None]
    # magnitudes (1, 1) and (2, 0)
    assert fourier(point, flat).item() == pytest.approx(1 - 1 / math.sqrt(2))
    assert fourier(flat, 0.5 * flat).item() == 0, "brighter is not elsewhere"
    assert fourier(black, flat).item() == fourier(flat, black).item() == 1
    assert fourier(black, black).item() == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_distance_of_magnitudes_is_one_minus_their_cosine(shape):
    found, true = pictures(3, *shape)
    x, y = (numpy.abs(numpy.fft.fft2(p.numpy())).reshape(3, -1) for p in (found, true))
    expected = 1 - (x * y).sum(1) / numpy.sqrt((x**2).sum(1) * (y**2).sum(1))
    assert fourier(found, true).numpy() == pytest.approx(expected, abs=1e-12)


def test_magnitudes_do_not_tell_where_and_complex_transforms_are_no_more_than_pixels():
    found, true = pictures(4, 3, 12, 17)
    moved = true.roll((5, 3), (2, 3))
    assert fourier(moved, true).max() < 1e-12 < 1e-2 < pixel_distance(moved, true).min()
    x, y = (torch.fft.fft2(p).flatten(1) for p in (found, true))
    lengths = x.norm(dim=1) * y.norm(dim=1)
    assert torch.allclose(1 - ((x * y.conj()).sum(1) / lengths).real, pixel_distance(found, true))
    turned = true.flip(2, 3).roll((1, 1), (2, 3))
    assert torch.allclose(1 - ((x * y).sum(1) / lengths).real, pixel_distance(found, turned))


# ---------------------------------------------------------------- others' numbers


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_structural_similarity_is_that_of_scikit_image(shape, dtype):
    theirs = peer("skimage.metrics").structural_similarity
    found, true = pictures(4, *shape, dtype)
    as_published = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    pairs = zip(found.numpy(), true.numpy(), strict=True)
    expected = [theirs(x, y, data_range=1, channel_axis=0, **as_published) for x, y in pairs]
    assert ssim(found, true).numpy() == pytest.approx(expected, abs=1e-4 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_structural_similarity_is_that_of_torchmetrics_inside_the_picture(shape, dtype):
    theirs = peer("torchmetrics.functional.image").structural_similarity_index_measure
    found, true = pictures(4, *shape, dtype)
    _, places = theirs(found, true, data_range=1.0, return_full_image=True)
    expected = places[:, :, 5:-5, 5:-5].mean((1, 2, 3))  # the others are windows across the border
    assert torch.allclose(ssim(found, true), expected, atol=1e-4 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_squares_and_decibels_are_those_of_torchmetrics_and_scikit_image(shape, dtype):
    found, true = pictures(4, *shape, dtype)
    decibels = peer("torchmetrics.functional.image").peak_signal_noise_ratio
    expected = decibels(found, true, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert torch.allclose(psnr(found, true), expected, atol=1e-4)
    library = peer("skimage.metrics")
    for index, (x, y) in enumerate(zip(found.numpy(), true.numpy(), strict=True)):
        assert mse(found, true)[index].item() == pytest.approx(library.mean_squared_error(y, x), rel=1e-4)
        expected = library.peak_signal_noise_ratio(y, x, data_range=1)
        assert psnr(found, true)[index].item() == pytest.approx(expected, abs=1e-4)


def test_single_precision_is_enough_for_bright_flat_pictures():
    found, true = (1 - 1e-3 * p for p in pictures(3, 3, 40, 40))
    assert torch.allclose(ssim(found.float(), true.float()).double(), ssim(found, true), atol=1e-5)


# ---------------------------------------------------------------- batches, types, bad input


@pytest.mark.parametrize("metric", METRICS)
def test_both_pictures_count_alike_and_each_pair_counts_by_itself(metric):
    found, true = pictures(5, 3, 19, 30)
    together = metric(found, true)
    assert together.shape == (5,)
    assert torch.allclose(metric(true, found), together)
    alone = torch.cat([metric(found[i : i + 1], true[i : i + 1]) for i in range(5)])
    assert torch.allclose(alone, together, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_more_noise_is_farther(metric):
    values = metric(*pictures(6, 3, 32, 48))
    assert (values.diff() > 0).all() if metric in (mse, fourier) else (values.diff() < 0).all()


@pytest.mark.parametrize("metric", METRICS)
def test_numbers_have_the_type_of_pictures(metric):
    found, true = pictures(2, 1, 20, 20)
    assert metric(found, true).dtype == metric(found, true.float()).dtype == torch.float64
    assert metric(found.float(), true.float()).dtype == metric(found.half(), true.half()).dtype == torch.float32


@pytest.mark.parametrize("metric", [*METRICS, measure])
def test_what_cannot_be_compared_is_refused(metric):
    found, true = pictures(2, 3, 20, 20)
    with pytest.raises(UserError, match=r"\(2, 3, 20, 20\) and \(1, 3, 20, 20\)"):
        metric(found, true[:1])
    with pytest.raises(UserError, match=r"\(batch, channels, height, width\)"):
        metric(found[0], true[0])
    with pytest.raises(UserError, match="divide bytes by 255"):
        metric(found, (255 * true).byte())


def test_pictures_smaller_than_a_window_have_no_structural_similarity():
    found, true = pictures(2, 1, 10, 40)
    with pytest.raises(UserError, match=r"11×11 pixels, and these pictures have 10×40; enlarge"):
        ssim(found, true)
    assert "ssim" in missing((1, 10, 40)) and "ssim" not in missing((1, 11, 40))
    assert set(measure(found, true)) == {"mse", "psnr", "fourier"}


def test_all_numbers_come_at_once_and_without_a_graph():
    found, true = pictures(2, 3, 40, 33)
    numbers = measure(found.requires_grad_(), true)
    assert set(numbers) | set(missing((3, 40, 33))) == {"mse", "psnr", "ssim", "fourier", "lpips"}
    for metric in METRICS:
        assert torch.equal(numbers[metric.__name__], metric(found, true))
    assert all(value.shape == (2,) and not value.requires_grad for value in numbers.values())
