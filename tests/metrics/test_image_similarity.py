"""Image metrics against values computed by hand, torchmetrics and scikit-image, and the input they reject."""

import math

import numpy
import pytest
import torch

from tests.metrics.images import image_pair
from tests.references import peer
from vitpos.errors import InputError
from vitpos.metrics.image_similarity import (
    fft2d,
    fft2d_code,
    fourier,
    image_metrics,
    mse,
    psnr,
    ssim,
    unavailable_metrics,
)

METRICS = (mse, psnr, ssim, fourier, fft2d, fft2d_code)
SHAPES = [(3, 32, 32), (1, 28, 28), (3, 24, 41), (1, 57, 33), (3, 11, 11)]
TYPES = [torch.float32, torch.float64]


# ---------------------------------------------------------------- by hand


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_images_have_the_best_value_of_every_metric(shape, dtype):
    _, targets = image_pair(3, *shape, dtype)
    assert (mse(targets, targets) == 0).all()
    assert (psnr(targets, targets) == math.inf).all()
    assert ssim(targets, targets).tolist() == pytest.approx([1] * 3, abs=1e-12)
    assert all((metric(targets, targets) == 0).all() for metric in (fourier, fft2d, fft2d_code))


def test_mse_and_psnr_match_values_computed_by_hand():
    targets = torch.zeros(3, 2, 3, 5, dtype=torch.float64)
    images = targets.clone()
    images[0] = 1  # white for black
    images[1] = 0.1
    images[2, 1, 0, 4] = 0.3  # one of thirty pixels
    assert mse(images, targets).tolist() == pytest.approx([1, 0.01, 0.09 / 30])
    assert psnr(images, targets).tolist() == pytest.approx([0, 20, -10 * math.log10(0.003)])


def test_ssim_of_one_window_is_its_formula():
    images, targets = image_pair(2, 1, 11, 11)
    bell = [[math.exp(-((r - 5) ** 2 + (c - 5) ** 2) / (2 * 1.5**2)) for c in range(11)] for r in range(11)]
    weight = numpy.array(bell) / numpy.sum(bell)
    for index, (x, y) in enumerate(zip(images[:, 0].numpy(), targets[:, 0].numpy(), strict=True)):
        a, b = (weight * x).sum(), (weight * y).sum()
        variances = (weight * (x - a) ** 2).sum() + (weight * (y - b) ** 2).sum()
        covariance = (weight * (x - a) * (y - b)).sum()
        expected = (2 * a * b + 1e-4) * (2 * covariance + 9e-4) / ((a**2 + b**2 + 1e-4) * (variances + 9e-4))
        assert ssim(images, targets)[index].item() == pytest.approx(expected, abs=1e-12)


def test_ssim_of_constant_images_is_the_luminance_term():
    images, targets = torch.full((1, 3, 16, 20), 0.25), torch.full((1, 3, 16, 20), 0.75)
    assert ssim(images, targets).item() == pytest.approx(
        (2 * 0.25 * 0.75 + 1e-4) / (0.25**2 + 0.75**2 + 1e-4), abs=1e-6
    )


def test_ssim_is_the_mean_over_channels():
    images, targets = image_pair(2, 3, 20, 26)
    channels = [ssim(images[:, c : c + 1], targets[:, c : c + 1]) for c in range(3)]
    assert torch.allclose(ssim(images, targets), torch.stack(channels).mean(0), atol=1e-12)


def test_fourier_distance_matches_values_computed_by_hand():
    point, flat, black = torch.tensor([[[[1.0, 0.0]]], [[[1.0, 1.0]]], [[[0.0, 0.0]]]])[:, None]
    # magnitudes (1, 1) and (2, 0)
    assert fourier(point, flat).item() == pytest.approx(1 - 1 / math.sqrt(2))
    assert fourier(flat, 0.5 * flat).item() == 0, "overall brightness does not matter"
    assert fourier(black, flat).item() == fourier(flat, black).item() == 1
    assert fourier(black, black).item() == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_fourier_distance_is_one_minus_the_cosine_of_the_magnitudes(shape):
    images, targets = image_pair(3, *shape)
    x, y = (numpy.abs(numpy.fft.fft2(p.numpy())).reshape(3, -1) for p in (images, targets))
    expected = 1 - (x * y).sum(1) / numpy.sqrt((x**2).sum(1) * (y**2).sum(1))
    assert fourier(images, targets).numpy() == pytest.approx(expected, abs=1e-12)


def test_fourier_distance_ignores_cyclic_shifts_and_fft2d_does_not():
    _, targets = image_pair(4, 3, 12, 17)
    moved = targets.roll((5, 3), (2, 3))
    assert fourier(moved, targets).max() < 1e-12 < 1e-2 < fft2d(moved, targets).min()


@pytest.mark.parametrize("shape", SHAPES)
def test_fft2d_is_the_cosine_distance_of_complex_transforms_and_of_pixels(shape):
    images, targets = image_pair(3, *shape)
    x, y = (numpy.fft.fft2(p.numpy()).reshape(3, -1) for p in (images, targets))
    expected = 1 - (x * y.conj()).sum(1).real / numpy.sqrt((abs(x) ** 2).sum(1) * (abs(y) ** 2).sum(1))
    assert fft2d(images, targets).numpy() == pytest.approx(expected, abs=1e-12)
    cosine = peer("scipy.spatial.distance").cosine
    pixels = [cosine(p.numpy().ravel(), q.numpy().ravel()) for p, q in zip(images, targets, strict=True)]
    assert fft2d(images, targets).numpy() == pytest.approx(pixels, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_fft2d_of_the_code_is_the_cosine_distance_without_conjugation(shape):
    images, targets = image_pair(3, *shape)
    for index, (p, q) in enumerate(zip(images.numpy(), targets.numpy(), strict=True)):
        u, v = numpy.fft.fft2(p).ravel(), numpy.fft.fft2(q).ravel()
        uv, uu, vv = numpy.average(u * v), numpy.average(numpy.square(u)), numpy.average(numpy.square(v))
        expected = abs(1 - uv / numpy.sqrt(uu * vv))  # as SciPy 1.5
        assert fft2d_code(images, targets)[index].item() == pytest.approx(expected, abs=1e-12)


def test_fft2d_of_the_code_can_be_zero_for_different_images_and_is_bounded():
    first, second, both, last = torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 1, 0], [0.1, 0, 1]]).view(4, 1, 1, 1, 3)
    assert fft2d_code(both, first).item() == 0 < 0.2 < fft2d(both, first).item()
    assert fft2d_code(first, second).item() == 1, "one pixel, which its rotation does not meet"
    assert fft2d_code(second, second).item() == 0
    assert fft2d_code(last, 0.1 * first + second).item() == 2, "products above those of each image with itself"


# ---------------------------------------------------------------- others' numbers


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_ssim_equals_scikit_image(shape, dtype):
    theirs = peer("skimage.metrics").structural_similarity
    images, targets = image_pair(4, *shape, dtype)
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    pairs = zip(images.numpy(), targets.numpy(), strict=True)
    expected = [theirs(x, y, data_range=1, channel_axis=0, **options) for x, y in pairs]
    assert ssim(images, targets).numpy() == pytest.approx(expected, abs=1e-4 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_ssim_equals_torchmetrics_on_windows_inside_the_image(shape, dtype):
    theirs = peer("torchmetrics.functional.image").structural_similarity_index_measure
    images, targets = image_pair(4, *shape, dtype)
    _, full = theirs(images, targets, data_range=1.0, return_full_image=True)
    expected = full[:, :, 5:-5, 5:-5].mean((1, 2, 3))  # the rest are windows across the border
    assert torch.allclose(ssim(images, targets), expected, atol=1e-4 if dtype == torch.float32 else 1e-10)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_mse_and_psnr_equal_torchmetrics_and_scikit_image(shape, dtype):
    images, targets = image_pair(4, *shape, dtype)
    decibels = peer("torchmetrics.functional.image").peak_signal_noise_ratio
    expected = decibels(images, targets, data_range=1.0, reduction="none", dim=(1, 2, 3))
    assert torch.allclose(psnr(images, targets), expected, atol=1e-4)
    library = peer("skimage.metrics")
    for index, (x, y) in enumerate(zip(images.numpy(), targets.numpy(), strict=True)):
        assert mse(images, targets)[index].item() == pytest.approx(library.mean_squared_error(y, x), rel=1e-4)
        expected = library.peak_signal_noise_ratio(y, x, data_range=1)
        assert psnr(images, targets)[index].item() == pytest.approx(expected, abs=1e-4)


def test_ssim_in_float32_is_accurate_for_bright_flat_images():
    images, targets = (1 - 1e-3 * p for p in image_pair(3, 3, 40, 40))
    assert torch.allclose(ssim(images.float(), targets.float()).double(), ssim(images, targets), atol=1e-5)


# ---------------------------------------------------------------- batches, types, bad input


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_are_symmetric_and_independent_of_the_batch(metric):
    images, targets = image_pair(5, 3, 19, 30)
    together = metric(images, targets)
    assert together.shape == (5,)
    assert torch.allclose(metric(targets, images), together)
    alone = torch.cat([metric(images[i : i + 1], targets[i : i + 1]) for i in range(5)])
    assert torch.allclose(alone, together, atol=1e-12)


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric != fft2d_code])
def test_metrics_are_monotonic_in_the_noise_level(metric):
    values = metric(*image_pair(6, 3, 32, 48))
    assert (values.diff() > 0).all() if metric in (mse, fourier, fft2d) else (values.diff() < 0).all()


def test_fft2d_of_the_code_can_fall_as_noise_increases():
    assert (fft2d_code(*image_pair(6, 3, 32, 48)).diff() < 0).any()


@pytest.mark.parametrize("metric", METRICS)
def test_results_have_the_common_dtype_of_both_batches(metric):
    images, targets = image_pair(2, 1, 20, 20)
    assert metric(images, targets).dtype == metric(images, targets.float()).dtype == torch.float64
    assert metric(images.float(), targets.float()).dtype == metric(images.half(), targets.half()).dtype == torch.float32


@pytest.mark.parametrize("metric", [*METRICS, image_metrics])
def test_batches_that_cannot_be_compared_are_rejected(metric):
    images, targets = image_pair(2, 3, 20, 20)
    with pytest.raises(InputError, match=r"\(2, 3, 20, 20\) and \(1, 3, 20, 20\)"):
        metric(images, targets[:1])
    with pytest.raises(InputError, match=r"\(batch, channels, height, width\)"):
        metric(images[0], targets[0])
    with pytest.raises(InputError, match="divide bytes by 255"):
        metric(images, (255 * targets).byte())


def test_ssim_rejects_images_smaller_than_its_window():
    images, targets = image_pair(2, 1, 10, 40)
    with pytest.raises(InputError, match=r"11×11 pixels, and these have 10×40"):
        ssim(images, targets)
    assert "ssim" in unavailable_metrics((1, 10, 40)) and "ssim" not in unavailable_metrics((1, 11, 40))
    assert set(image_metrics(images, targets)) == {"mse", "psnr", "fourier", "fft2d", "fft2d_code"}


def test_image_metrics_returns_every_available_metric_without_a_graph():
    images, targets = image_pair(2, 3, 40, 33)
    numbers = image_metrics(images.requires_grad_(), targets)
    assert set(numbers) | set(unavailable_metrics((3, 40, 33))) == {metric.__name__ for metric in METRICS} | {"lpips"}
    for metric in METRICS:
        assert torch.equal(numbers[metric.__name__], metric(images, targets))
    assert all(value.shape == (2,) and not value.requires_grad for value in numbers.values())
