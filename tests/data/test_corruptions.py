"""Corruptions: the same images as another package makes, the same ones for every batch, and how models score on them."""

import itertools
import math

import numpy
import pytest
import torch

from tests.data.images import random_images
from tests.references import peer
from vitpos.data.corruptions import CORRUPTIONS, PARAMETERS, corrupt
from vitpos.data.corruptions._filters import blur_along_line, correlate1d, gaussian, gaussian_kernel1d, gaussian_matrix
from vitpos.data.corruptions._random import LEVELS, BlockRandom
from vitpos.data.corruptions.blur import copy_sources
from vitpos.data.corruptions.digital import affine_warp, elastic_transform
from vitpos.data.corruptions.weather import plasma
from vitpos.errors import InputError

SEVERITIES = range(1, 6)
EXACT = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate")  # without random numbers
CPU = torch.device("cpu")


def theirs(images, kind, severity):
    """Applies the corruption of the package imagecorruptions to images (B, C, height, width)."""
    package = peer("imagecorruptions")
    made = [package.corrupt(image.permute(1, 2, 0).contiguous().numpy(), severity, kind) for image in images]
    return torch.tensor(numpy.stack(made)).permute(0, 3, 1, 2)[:, : images.shape[1]]


def distance(first, second):
    return (first.float() - second.float()).abs()


# ---------------------------------------------------------------- against other packages


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 36, 52), (1, 36, 52)])
def test_corruptions_without_random_numbers_agree_with_imagecorruptions(kind, shape):
    images = random_images(4, *shape[1:], shape[0])
    for severity in SEVERITIES:
        # values are truncated, so that a rounding error near an integer is one level; PIL's pixelate rounds twice;
        # scipy's zoom may leave the last row or column black because of a rounding error
        error = distance(corrupt(images, kind, severity), theirs(images, kind, severity))
        assert error[:, :, :-1, :-1].max() <= 1 and (error.max() <= 1 or kind == "zoom_blur"), severity


def test_large_images_agree_with_imagecorruptions():
    images = random_images(1, 224, 224)
    for kind in EXACT:
        assert distance(corrupt(images, kind, 4), theirs(images, kind, 4)).max() <= 1, kind


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 37, 51), (1, 36, 52)])
def test_jpeg_agrees_with_libjpeg(shape):
    images = random_images(4, *shape[1:], shape[0])
    for severity in SEVERITIES:
        ours, others = corrupt(images, "jpeg_compression", severity), theirs(images, "jpeg_compression", severity)
        error = distance(ours, others)
        # libjpeg's integer transform rounds one coefficient in some hundred to the other step, which changes its block
        assert error.mean() < 0.5 and (error > 1).float().mean() < 0.1, severity
        assert error.square().mean() < 0.03 * distance(others, images).square().mean(), severity


@pytest.mark.parametrize("angle", [-45.0, -7.3, 0.0, 20.0, 45.0])
@pytest.mark.parametrize("size", [(32, 32), (36, 52)])
def test_motion_blur_agrees_with_imagecorruptions_at_each_angle(angle, size):
    package = peer("imagecorruptions.corruptions")
    images = random_images(2, *size)
    for radius, std in PARAMETERS["imagenet"]["motion_blur"]:
        ours = blur_along_line(images.float(), torch.full((2,), angle), (-45.0, 45.0), radius=radius, std=std)
        for mine, image in zip(ours, images, strict=True):
            other = package._motion_blur(image.permute(1, 2, 0).numpy(), radius, std, angle)
            assert distance(mine, torch.from_numpy(other).permute(2, 0, 1)).max() < 1e-3


def features(images):
    """Returns the mean, the std and the mean vertical and horizontal steps of each image: (B, 4)."""
    pixels = images.float()
    steps = (pixels.diff(dim=side).abs().mean((1, 2, 3)) for side in (2, 3))
    return torch.stack((pixels.mean((1, 2, 3)), pixels.std((1, 2, 3)), *steps), 1)


@pytest.mark.parametrize(
    "kind",
    ["gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "fog", "elastic_transform"],
)
def test_random_corruptions_have_the_statistics_of_imagecorruptions(kind):
    peer("imagecorruptions")
    numpy.random.seed(0)
    images = random_images(32, 32, 40)
    for severity in (1, 3, 5):
        if kind == "elastic_transform":  # for which the package has other parameters
            max_shift = 0.005 * 250 * (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1]
            ours = elastic_transform(images, BlockRandom("any", len(images), CPU), max_shift, 0.01, 0)
        else:
            ours = corrupt(images, kind, severity)
        ours, others = features(ours), features(theirs(images, kind, severity))
        spread = ((ours.var(0) + others.var(0)) / len(images)).sqrt()
        # both sides use the same images, so that random differences are much smaller than this bound
        assert ((ours.mean(0) - others.mean(0)).abs() < 4 * spread + 0.1).all(), (
            severity,
            ours.mean(0),
            others.mean(0),
        )


@pytest.mark.parametrize("kind", ["gaussian_noise", "shot_noise", "impulse_noise"])
def test_noise_has_the_histogram_of_imagecorruptions(kind):
    peer("imagecorruptions")
    for value in (20, 128, 250):
        images = torch.full((8, 3, 64, 64), value, dtype=torch.uint8)
        ours, others = (
            torch.bincount(made(images, kind, 4).flatten().int(), minlength=256).cumsum(0) / images.numel()
            for made in (corrupt, theirs)
        )
        assert distance(ours, others).max() < 0.01, value  # Kolmogorov-Smirnov distance


def test_plasma_clouds_have_the_spectrum_of_imagecorruptions():
    package = peer("imagecorruptions.corruptions")
    count = 100
    ours = plasma(BlockRandom("clouds", count, CPU), 32, 1.7)
    others = torch.stack([torch.from_numpy(package.plasma_fractal(32, 1.7)) for _ in range(count)])
    rings = (
        (torch.fft.fftfreq(32)[:, None] ** 2 + torch.fft.rfftfreq(32) ** 2).sqrt().mul(8).round().long().clamp_max(5)
    )
    power = [
        torch.zeros(6).index_add(0, rings.flatten(), torch.fft.rfft2(clouds).abs().square().mean(0).float().flatten())
        for clouds in (ours, others)
    ]
    assert ((power[0] / power[1]).log().abs() < 0.3).all(), power


def test_affine_warps_agree_with_opencv():
    opencv = peer("cv2")
    images = random_images(2, 36, 52)
    shifts = torch.tensor([[[2.0, -1], [0.5, 3], [-2, 0]], [[0, 0], [1, 1], [3, -3]]])
    corners = numpy.float32([[26 + 12, 18 + 12], [26 + 12, 18 - 12], [26 - 12, 18 - 12]])
    for ours, image, shift in zip(affine_warp(images.float(), shifts), images, shifts, strict=True):
        matrix = opencv.getAffineTransform(corners, corners + shift.numpy())
        array = image.permute(1, 2, 0).numpy().astype(numpy.float32)
        other = opencv.warpAffine(array, matrix, (52, 36), borderMode=opencv.BORDER_REFLECT_101)
        assert (
            distance(ours, torch.tensor(other).permute(2, 0, 1)).max() < 2
        )  # OpenCV rounds coordinates to 1/32 of a pixel


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_the_result_for_an_image_does_not_depend_on_its_batch(kind):
    images = random_images(40, 16, 24)
    severity = 5
    whole = corrupt(images, kind, severity, start=100)  # spans two blocks
    assert torch.equal(whole, corrupt(images, kind, severity, start=100))
    for begin, end in ((0, 7), (7, 40)):
        assert torch.equal(whole[begin:end], corrupt(images[begin:end], kind, severity, start=100 + begin))
    if kind not in (*EXACT, "jpeg_compression"):
        assert not torch.equal(whole, corrupt(images, kind, severity, start=100, seed=1))
        assert not torch.equal(whole, corrupt(images, kind, severity, start=500))


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_shape_and_dtype_are_kept_and_the_input_is_not_modified(kind, parameters):
    for shape in ((2, 1, 16, 16), (1, 3, 16, 33), (2, 3, 47, 20)):
        images = random_images(shape[0], *shape[2:], shape[1])
        kept = images.clone()
        for severity in (1, 2, 5):
            made = corrupt(images, kind, severity, parameters=parameters)
            assert made.shape == images.shape and made.dtype == torch.uint8 and made.is_contiguous()
            assert torch.equal(images, kept)


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_severity_5_changes_images_more_than_severity_1(kind, parameters):
    images = random_images(64, 32, 32)
    far = [distance(corrupt(images, kind, s, parameters=parameters), images).mean().item() for s in SEVERITIES]
    assert far[0] > 0
    if kind == "elastic_transform":  # whose affine part gets weaker with severity
        return
    assert far[4] > far[0]
    if kind.endswith("noise") or kind in ("zoom_blur", "defocus_blur", "brightness", "contrast", "jpeg_compression"):
        assert far == sorted(far), far  # of the others, some parameters grow and some shrink


def test_grayscale_images_are_corrupted_as_rgb_images_of_equal_channels():
    gray = random_images(8, 32, 32, 1)
    for kind in ("defocus_blur", "zoom_blur", "fog", "brightness", "contrast", "pixelate", "jpeg_compression"):
        rgb = corrupt(gray.expand(-1, 3, -1, -1).contiguous(), kind, 3, start=0)
        assert distance(rgb[:, :1], rgb[:, 1:]).max() <= 1, kind
        if kind != "fog":  # whose random numbers depend on the size of a block
            assert distance(rgb[:, :1], corrupt(gray, kind, 3)).max() <= 1, kind


def test_wrong_arguments_are_named():
    images = random_images(1, 16, 16)
    for wrong, message in (
        (lambda: corrupt(images, "rain", 1), "rain"),
        (lambda: corrupt(images, "snow", 6), "6"),
        (lambda: corrupt(images, "snow", 1, parameters="mnist"), "mnist"),
        (lambda: corrupt(images[..., :15], "snow", 1), "16x15"),
        (lambda: corrupt(images.float(), "snow", 1), "float32"),
        (lambda: corrupt(images[:, :2], "snow", 1), "2 channels"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()


# ---------------------------------------------------------------- against plain code


def test_copy_sources_equal_a_loop_from_the_last_pixel_to_the_first():
    generator = torch.Generator().manual_seed(0)
    for reach, height, width in ((1, 7, 9), (2, 12, 10), (4, 16, 23)):
        shape = 3, 2, height - 2 * reach, width - 2 * reach
        shifts = torch.randint(-reach, reach, shape, generator=generator, dtype=torch.int)
        pixels = torch.arange(3 * height * width).view(3, height, width)
        slow = pixels.clone()
        for image, (columns, rows) in zip(slow, shifts.tolist(), strict=True):
            for row, column in itertools.product(range(height - reach, reach, -1), range(width - reach, reach, -1)):
                y, x = row - reach - 1, column - reach - 1
                image[row, column] = image[row + rows[y][x], column + columns[y][x]]
        assert torch.equal(copy_sources(shifts, height, width).view_as(slow), slow.int())


def test_values_of_flat_images_are_as_computed_by_hand():
    flat = torch.tensor([0, 100, 200], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 16, 16).contiguous()
    assert torch.equal(corrupt(flat, "contrast", 3), flat)  # each channel is its own mean
    for kind in ("defocus_blur", "zoom_blur", "pixelate", "elastic_transform"):
        assert distance(corrupt(flat, kind, 3), flat).max() <= 1, kind
    brighter = corrupt(flat, "brightness", 1)[0, :, 0, 0].tolist()
    assert brighter == [0, 112, 225]  # times 225.5 / 200
    assert corrupt(torch.zeros_like(flat), "brightness", 1).unique().tolist() == [25]
    halves = torch.tensor([10, 21], dtype=torch.uint8).repeat(1, 1, 16, 8)
    assert corrupt(halves, "pixelate", 2).unique().tolist() == [16]  # 15.5 is rounded up
    noisy = corrupt(flat, "impulse_noise", 5)[:, 1]
    assert noisy.unique().tolist() == [0, 100, 255]


def test_random_numbers_have_the_named_distributions_and_depend_on_the_name():
    rng = BlockRandom("any", 64, CPU)
    levels = rng.levels(4096)
    assert levels.min() == 0 and levels.max() == LEVELS - 1
    assert abs(rng.uniform(-1, 3, 4096).mean() - 1) < 0.01
    normal = rng.normal(2, 3, 4096)
    assert abs(normal.mean() - 2) < 0.03 and abs(normal.std() - 3) < 0.03
    assert torch.equal(BlockRandom("any", 64, CPU).levels(4096), levels)


def test_a_gaussian_blur_keeps_flat_images_and_has_the_given_std():
    point = torch.zeros(1, 1, 21, 21)
    point[..., 10, 10] = 1
    spread = gaussian(point, (1.0, 2.0), truncate=4.0, border="edge")
    assert math.isclose(spread.sum().item(), 1, abs_tol=1e-5)
    assert math.isclose((spread[0, 0].sum(1) * (torch.arange(21) - 10) ** 2).sum().item(), 1, abs_tol=0.01)
    flat = torch.ones(1, 1, 9, 9)
    for border in ("edge", "mirror"):
        assert distance(gaussian(flat, (1.0, 2.0), truncate=4.0, border=border), flat).max() < 1e-6
        assert distance(gaussian(flat, (9.0, 5.0), truncate=4.0, border=border), flat).max() < 1e-5


def test_the_blur_matrix_equals_the_sum_of_shifted_images():
    pixels = torch.rand(2, 3, 30, 20, generator=torch.Generator().manual_seed(0))
    for border in ("edge", "mirror"):
        assert (
            distance(
                gaussian_matrix(3.0, 12, 30, border) @ pixels,
                correlate1d(pixels, gaussian_kernel1d(3.0, 12), -2, border),
            ).max()
            < 1e-5
        )
