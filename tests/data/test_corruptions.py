"""Corruptions: the same pictures as another package makes, the same ones for every batch, and what models make of them."""

import itertools
import math
from typing import ClassVar

import numpy
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from tests.references import peer
from vitpos.data.corruptions import CORRUPTIONS, PARAMETERS, corrupt
from vitpos.data.corruptions._filters import _along, _mixing, bell, gaussian, slid
from vitpos.data.corruptions._random import LEVELS, Draws
from vitpos.data.corruptions.digital import _warped, elastic_transform
from vitpos.data.corruptions.glass import copied
from vitpos.data.corruptions.weather import plasma
from vitpos.data.dataset import Dataset, Split
from vitpos.data.image_files import Pictures
from vitpos.errors import UserError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.corruption import ALEXNET
from vitpos.models.base import Classifier

SEVERITIES = range(1, 6)
EXACT = ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate")  # nothing random in them
CPU = torch.device("cpu")


def pictures(count, height, width, channels=3):
    """Pictures with coarse and fine parts, as bytes."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(count, channels, height, width)
    for cell, weight in ((16, 0.6), (6, 0.3), (2, 0.2)):
        coarse = torch.rand(count, channels, max(height // cell, 2), max(width // cell, 2), generator=generator)
        total += weight * F.interpolate(coarse, size=(height, width), mode="bicubic")
    return (255 * (total - 0.1)).clamp(0, 255).byte()


def theirs(images, kind, severity):
    """What the package makes of pictures (B, C, height, width)."""
    package = peer("imagecorruptions")
    made = [package.corrupt(image.permute(1, 2, 0).contiguous().numpy(), severity, kind) for image in images]
    return torch.tensor(numpy.stack(made)).permute(0, 3, 1, 2)[:, : images.shape[1]]


def distance(first, second):
    return (first.float() - second.float()).abs()


# ---------------------------------------------------------------- another package


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 36, 52), (1, 36, 52)])
def test_what_is_not_random_agrees_with_imagecorruptions(kind, shape):
    images = pictures(4, *shape[1:], shape[0])
    for severity in SEVERITIES:
        # fractions are cut off, so that any rounding error near a whole number is a level; PIL's pixelate rounds twice;
        # scipy's zoom may miss the last row or column by a rounding error and leave it black
        apart = distance(corrupt(images, kind, severity), theirs(images, kind, severity))
        assert apart[:, :, :-1, :-1].max() <= 1 and (apart.max() <= 1 or kind == "zoom_blur"), severity


def test_large_pictures_agree_too():
    images = pictures(1, 224, 224)
    for kind in EXACT:
        assert distance(corrupt(images, kind, 4), theirs(images, kind, 4)).max() <= 1, kind


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 37, 51), (1, 36, 52)])
def test_jpeg_agrees_with_libjpeg(shape):
    images = pictures(4, *shape[1:], shape[0])
    for severity in SEVERITIES:
        ours, others = corrupt(images, "jpeg_compression", severity), theirs(images, "jpeg_compression", severity)
        apart = distance(ours, others)
        # libjpeg's whole-number cosines send a coefficient in some hundred to the other step, which shows in its block
        assert apart.mean() < 0.5 and (apart > 1).float().mean() < 0.1, severity
        assert apart.square().mean() < 0.03 * distance(others, images).square().mean(), severity


@pytest.mark.parametrize("angle", [-45.0, -7.3, 0.0, 20.0, 45.0])
@pytest.mark.parametrize("size", [(32, 32), (36, 52)])
def test_slides_agree_with_imagecorruptions_at_each_angle(angle, size):
    package = peer("imagecorruptions.corruptions")
    images = pictures(2, *size)
    for radius, deviation in PARAMETERS["imagenet"]["motion_blur"]:
        ours = slid(images.float(), torch.full((2,), angle), (-45.0, 45.0), radius=radius, deviation=deviation)
        for mine, image in zip(ours, images, strict=True):
            other = package._motion_blur(image.permute(1, 2, 0).numpy(), radius, deviation, angle)
            assert distance(mine, torch.from_numpy(other).permute(2, 0, 1)).max() < 1e-3


def features(images):
    """Mean, deviation and mean steps down and across: (4,) for each picture."""
    pixels = images.float()
    steps = (pixels.diff(dim=side).abs().mean((1, 2, 3)) for side in (2, 3))
    return torch.stack((pixels.mean((1, 2, 3)), pixels.std((1, 2, 3)), *steps), 1)


@pytest.mark.parametrize(
    "kind",
    ["gaussian_noise", "shot_noise", "impulse_noise", "glass_blur", "motion_blur", "snow", "fog", "elastic_transform"],
)
def test_what_is_random_has_the_statistics_of_imagecorruptions(kind):
    peer("imagecorruptions")
    numpy.random.seed(0)
    images = pictures(32, 32, 40)
    for severity in (1, 3, 5):
        if kind == "elastic_transform":  # of which the package has its own parameters
            farthest = 0.005 * 250 * (0.05, 0.065, 0.085, 0.1, 0.12)[severity - 1]
            ours = elastic_transform(images, Draws("any", len(images), CPU), farthest, 0.01, 0)
        else:
            ours = corrupt(images, kind, severity)
        ours, others = features(ours), features(theirs(images, kind, severity))
        spread = ((ours.var(0) + others.var(0)) / len(images)).sqrt()
        # the pictures are the same on both sides, so that differences are much smaller than this bound for chance alone
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
        assert distance(ours, others).max() < 0.01, value  # the largest distance of two distributions (Kolmogorov)


def test_clouds_have_the_spectrum_of_imagecorruptions():
    package = peer("imagecorruptions.corruptions")
    count = 100
    ours = plasma(Draws("clouds", count, CPU), 32, 1.7)
    others = torch.stack([torch.from_numpy(package.plasma_fractal(32, 1.7)) for _ in range(count)])
    rings = (
        (torch.fft.fftfreq(32)[:, None] ** 2 + torch.fft.rfftfreq(32) ** 2).sqrt().mul(8).round().long().clamp_max(5)
    )
    power = [
        torch.zeros(6).index_add(0, rings.flatten(), torch.fft.rfft2(clouds).abs().square().mean(0).float().flatten())
        for clouds in (ours, others)
    ]
    assert ((power[0] / power[1]).log().abs() < 0.3).all(), power


def test_affine_maps_agree_with_opencv():
    opencv = peer("cv2")
    images = pictures(2, 36, 52)
    moves = torch.tensor([[[2.0, -1], [0.5, 3], [-2, 0]], [[0, 0], [1, 1], [3, -3]]])
    corners = numpy.float32([[26 + 12, 18 + 12], [26 + 12, 18 - 12], [26 - 12, 18 - 12]])
    for ours, image, move in zip(_warped(images.float(), moves), images, moves, strict=True):
        matrix = opencv.getAffineTransform(corners, corners + move.numpy())
        array = image.permute(1, 2, 0).numpy().astype(numpy.float32)
        other = opencv.warpAffine(array, matrix, (52, 36), borderMode=opencv.BORDER_REFLECT_101)
        assert distance(ours, torch.tensor(other).permute(2, 0, 1)).max() < 2  # OpenCV rounds places to 1/32 of a pixel


# ---------------------------------------------------------------- promises


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_pictures_do_not_depend_on_their_batch(kind):
    images = pictures(40, 16, 24)
    severity = 5
    whole = corrupt(images, kind, severity, start=100)  # which lies in two blocks
    assert torch.equal(whole, corrupt(images, kind, severity, start=100))
    for begin, end in ((0, 7), (7, 40)):
        assert torch.equal(whole[begin:end], corrupt(images[begin:end], kind, severity, start=100 + begin))
    if kind not in (*EXACT, "jpeg_compression"):
        assert not torch.equal(whole, corrupt(images, kind, severity, start=100, seed=1))
        assert not torch.equal(whole, corrupt(images, kind, severity, start=500))


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_all_shapes_come_back_as_they_went(kind, parameters):
    for shape in ((2, 1, 16, 16), (1, 3, 16, 33), (2, 3, 47, 20)):
        images = pictures(shape[0], *shape[2:], shape[1])
        kept = images.clone()
        for severity in (1, 2, 5):
            made = corrupt(images, kind, severity, parameters=parameters)
            assert made.shape == images.shape and made.dtype == torch.uint8 and made.is_contiguous()
            assert torch.equal(images, kept)


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_the_severest_is_further_from_the_picture_than_the_mildest(kind, parameters):
    images = pictures(64, 32, 32)
    far = [distance(corrupt(images, kind, s, parameters=parameters), images).mean().item() for s in SEVERITIES]
    assert far[0] > 0
    if kind == "elastic_transform":  # which moves the whole less the more it stirs
        return
    assert far[4] > far[0]
    if kind.endswith("noise") or kind in ("zoom_blur", "defocus_blur", "brightness", "contrast", "jpeg_compression"):
        assert far == sorted(far), far  # of the others, some parameters grow while others shrink


def test_grey_is_colour_of_one_channel():
    grey = pictures(8, 32, 32, 1)
    for kind in ("defocus_blur", "zoom_blur", "fog", "brightness", "contrast", "pixelate", "jpeg_compression"):
        coloured = corrupt(grey.expand(-1, 3, -1, -1).contiguous(), kind, 3, start=0)
        assert distance(coloured[:, :1], coloured[:, 1:]).max() <= 1, kind
        if kind != "fog":  # of which each block of another size has its own
            assert distance(coloured[:, :1], corrupt(grey, kind, 3)).max() <= 1, kind


def test_wrong_wishes_are_named():
    images = pictures(1, 16, 16)
    for wrong, words in (
        (lambda: corrupt(images, "rain", 1), "rain"),
        (lambda: corrupt(images, "snow", 6), "6"),
        (lambda: corrupt(images, "snow", 1, parameters="mnist"), "mnist"),
        (lambda: corrupt(images[..., :15], "snow", 1), "16x15"),
        (lambda: corrupt(images.float(), "snow", 1), "float32"),
        (lambda: corrupt(images[:, :2], "snow", 1), "2 channels"),
    ):
        with pytest.raises(UserError, match=words):
            wrong()


# ---------------------------------------------------------------- by hand


def test_copies_are_those_of_a_loop_from_the_last_pixel_to_the_first():
    generator = torch.Generator().manual_seed(0)
    for reach, height, width in ((1, 7, 9), (2, 12, 10), (4, 16, 23)):
        shape = 3, 2, height - 2 * reach, width - 2 * reach
        steps = torch.randint(-reach, reach, shape, generator=generator, dtype=torch.int)
        pixels = torch.arange(3 * height * width).view(3, height, width)
        slow = pixels.clone()
        for image, (across, down) in zip(slow, steps.tolist(), strict=True):
            for row, column in itertools.product(range(height - reach, reach, -1), range(width - reach, reach, -1)):
                place = row - reach - 1, column - reach - 1
                image[row, column] = image[row + down[place[0]][place[1]], column + across[place[0]][place[1]]]
        assert torch.equal(copied(steps, height, width).view_as(slow), slow.int())


def test_bytes_by_hand():
    flat = torch.tensor([0, 100, 200], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 16, 16).contiguous()
    assert torch.equal(corrupt(flat, "contrast", 3), flat)  # each channel is its own mean
    for kind in ("defocus_blur", "zoom_blur", "pixelate", "elastic_transform"):
        assert distance(corrupt(flat, kind, 3), flat).max() <= 1, kind
    lifted = corrupt(flat, "brightness", 1)[0, :, 0, 0].tolist()
    assert lifted == [0, 112, 225]  # times 225.5 / 200
    assert corrupt(torch.zeros_like(flat), "brightness", 1).unique().tolist() == [25]
    halves = torch.tensor([10, 21], dtype=torch.uint8).repeat(1, 1, 16, 8)
    assert corrupt(halves, "pixelate", 2).unique().tolist() == [16]  # 15.5, rounded up
    noisy = corrupt(flat, "impulse_noise", 5)[:, 1]
    assert noisy.unique().tolist() == [0, 100, 255]


def test_random_numbers_are_what_they_are_called():
    draws = Draws("any", 64, CPU)
    levels = draws.levels(4096)
    assert levels.min() == 0 and levels.max() == LEVELS - 1
    assert abs(draws.uniform(-1, 3, 4096).mean() - 1) < 0.01
    normal = draws.normal(2, 3, 4096)
    assert abs(normal.mean() - 2) < 0.03 and abs(normal.std() - 3) < 0.03
    assert torch.equal(Draws("any", 64, CPU).levels(4096), levels)


def test_a_blur_keeps_what_is_flat_and_spreads_a_point():
    point = torch.zeros(1, 1, 21, 21)
    point[..., 10, 10] = 1
    spread = gaussian(point, (1.0, 2.0), truncate=4.0, border="edge")
    assert math.isclose(spread.sum().item(), 1, abs_tol=1e-5)
    assert math.isclose((spread[0, 0].sum(1) * (torch.arange(21) - 10) ** 2).sum().item(), 1, abs_tol=0.01)
    flat = torch.ones(1, 1, 9, 9)
    for border in ("edge", "mirror"):
        assert distance(gaussian(flat, (1.0, 2.0), truncate=4.0, border=border), flat).max() < 1e-6
        assert distance(gaussian(flat, (9.0, 5.0), truncate=4.0, border=border), flat).max() < 1e-5


def test_a_blur_as_a_matrix_is_the_blur_step_by_step():
    pixels = torch.rand(2, 3, 30, 20, generator=torch.Generator().manual_seed(0))
    for border in ("edge", "mirror"):
        assert distance(_mixing(3.0, 12, 30, border) @ pixels, _along(pixels, bell(3.0, 12), -2, border)).max() < 1e-5


# ---------------------------------------------------------------- the evaluation


class Brightness(Classifier):
    """Answers 1 where a picture is bright."""

    head = torch.nn.Identity()

    def features(self, images, positions=None):
        bright = images.mean((1, 2, 3))
        return torch.stack((0.6 - bright, bright - 0.6), 1)


def dark_and_bright(count=40):
    images = torch.full((count, 3, 16, 16), 100, dtype=torch.uint8)
    labels = torch.arange(count) % 2
    images[labels == 1] = 220
    return Dataset(Split(images, labels), Split(images, labels), ("dark", "bright"), (0.0,), (1.0,))


def test_errors_are_means_over_severities_and_kinds():
    asked = "corruption(kinds=('brightness', 'contrast', 'frost'))"
    found = EVALUATIONS.build(asked, Brightness(), dark_and_bright())
    # 100 + 25.5 s is above 0.6 · 255 = 153 from severity 3 on, and then half of the pictures are taken wrongly
    assert found["clean_error"] == 0 and math.isclose(found["error_brightness"], 0.3)
    assert found["error_contrast"] == 0
    assert math.isclose(found["error"], (0.3 + found["error_frost"]) / 3)
    assert math.isclose(sum(found[f"error_severity_{s}"] for s in range(1, 6)) / 5, found["error"])
    assert math.isclose(found["error_without_frost"], 0.15)
    assert math.isclose(found["mce"], 0.3 / 0.5646 / 2)
    assert math.isclose(found["relative_mce"], 0.3 / (0.5646 - 0.435) / 2)


def test_without_a_choice_all_fifteen_kinds_are_made():
    found = EVALUATIONS.build("corruption(severities=(1,))", Brightness(), dark_and_bright(4))
    kinds = {name.removeprefix("error_") for name in found} & set(CORRUPTIONS)
    assert kinds == set(CORRUPTIONS) == set(ALEXNET) == set(PARAMETERS["imagenet"]) == set(PARAMETERS["cifar"])
    assert len(kinds) == 15


def test_normalised_errors_are_given_only_where_they_mean_something():
    for options in ("parameters='cifar'", "severities=(1, 2)"):
        found = EVALUATIONS.build(f"corruption(kinds=('fog', 'contrast'), {options})", Brightness(), dark_and_bright())
        assert not {"mce", "relative_mce"} & set(found) and "error_without_frost" in found
    alone = EVALUATIONS.build("corruption(kinds=('frost',))", Brightness(), dark_and_bright())
    assert not {"mce", "relative_mce", "error_without_frost"} & set(alone) and alone["error"] == alone["error_frost"]


def test_a_limit_takes_some_images_of_all_classes_and_says_the_same_again():
    asked = "corruption(kinds=('brightness',), severities=(5,), limit=20)"
    first, again = (EVALUATIONS.build(asked, Brightness(), dark_and_bright()) for _ in range(2))
    dark = dark_and_bright().some(20).test.labels == 0  # which are taken for bright ones
    assert first == again and first["error"] == dark.double().mean().item() and dark.any() and not dark.all()


@pytest.mark.parametrize("wrong", ["kinds=('rain',)", "kinds=()", "severities=(0,)", "severities=(1, 1)"])
def test_wrong_options_are_named(wrong):
    with pytest.raises(UserError, match="corruption"):
        EVALUATIONS.build(f"corruption({wrong})", Brightness(), dark_and_bright())


class Read(Pictures):
    """Pictures in files that remember which were read."""

    seen: ClassVar[list[str]] = []

    def _read(self, file, seed=None):
        self.seen.append(file.name)
        return super()._read(file, seed)


def test_errors_are_those_of_each_kind_by_itself_and_pictures_in_files_are_read_once(tmp_path):
    for number, picture in enumerate(pictures(140, 18, 20)):
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(tmp_path / f"{number:03}.png")
    labels = torch.arange(140) % 2
    half = Split(Read(tuple(sorted(tmp_path.iterdir())), (16, 16), 1.0, False), labels)
    data = Dataset(half, half, ("dark", "bright"), (0.0,), (1.0,))
    few = data.some(130, seed=3)  # more than a batch
    images = few.test.images[:]
    Read.seen.clear()
    kinds, severities = ("shot_noise", "fog", "elastic_transform", "brightness"), (2, 5)
    found = EVALUATIONS.build(f"corruption({kinds=}, {severities=}, limit=130, seed=3)", Brightness(), data)
    for kind in kinds:
        bright = [data.inputs(corrupt(images, kind, s, seed=3)).mean((1, 2, 3)) > 0.6 for s in severities]
        expected = sum((b.long() != few.test.labels).double().mean().item() for b in bright) / 2
        assert found[f"error_{kind}"] == expected, kind
    assert sorted(Read.seen) == sorted([file.name for file in few.test.images.files] * 2), "once, and once as they are"
