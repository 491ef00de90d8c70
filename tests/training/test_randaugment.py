"""RandAugment and its operations, compared with PIL and timm."""

import math

import matplotlib.cbook
import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from tests.references import peer
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.training import AUGMENTATIONS
from vitpos.training.augment import _ops
from vitpos.training.augment.randaugment import OPERATIONS

DIGITS = load("mnist").train.head(64)


def photographs(height=40, width=56):
    """Returns four crops of a photograph, uint8 (4, 3, height, width)."""
    with Image.open(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as photograph:
        image = torch.from_numpy(np.array(photograph.convert("RGB"))).permute(2, 0, 1)
    corners = (80, 150), (200, 220), (20, 20), (420, 300)
    return torch.stack([image[:, row : row + height, column : column + width] for row, column in corners])


IMAGES = {"rgb": photographs(), "gray": DIGITS.images[:4]}


def with_pil(change, images, amount):
    """Applies a function of a PIL image and an amount to each of uint8 images (B, C, height, width)."""
    changed = [np.array(change(Image.fromarray(x.permute(1, 2, 0).squeeze(2).numpy()), amount)) for x in images]
    return torch.from_numpy(np.stack(changed)).view(*images[:, 0].shape, -1).permute(0, 3, 1, 2)


def solarize_add(image, amount):
    return image.point([min(255, i + int(amount)) if i < 128 else i for i in range(256)] * len(image.getbands()))


def enhance(kind):
    return lambda image, amount: getattr(ImageEnhance, kind)(image).enhance(1 + amount)


def affine(coefficients):
    def change(image, amount):
        fill, x, y = (_ops.FILL,) * len(image.getbands()), *image.size
        numbers = coefficients(amount, x, y)
        return image.transform(image.size, Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR, fillcolor=fill)

    return change


def rotate(image, amount):
    fill = (_ops.FILL,) * len(image.getbands())
    return image.rotate(amount, Image.Resampling.BILINEAR, fillcolor=fill)


PIL = {  # the operation of PIL and the amounts to compare at
    "autocontrast": (lambda image, _: ImageOps.autocontrast(image), (0.0,)),
    "equalize": (lambda image, _: ImageOps.equalize(image), (0.0,)),
    "invert": (lambda image, _: ImageOps.invert(image), (0.0,)),
    "rotate": (rotate, (-27.3, 0.0, 8.1, 30.0)),
    "posterize": (lambda image, amount: ImageOps.posterize(image, 8 - int(amount)), (0.0, 1.0, 4.5, 7.6)),
    "solarize": (lambda image, amount: ImageOps.solarize(image, 256 - int(amount)), (0.0, 100.3, 230.4, 256.0)),
    "solarize_add": (solarize_add, (0.0, 50.0, 99.7, 110.0)),
    "saturation": (enhance("Color"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "contrast": (enhance("Contrast"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "brightness": (enhance("Brightness"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "sharpness": (enhance("Sharpness"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "shear_x": (affine(lambda by, x, y: (1, by, 0, 0, 1, 0)), (-0.27, 0.0, 0.13, 0.3)),
    "shear_y": (affine(lambda by, x, y: (1, 0, 0, by, 1, 0)), (-0.27, 0.0, 0.13, 0.3)),
    "translate_x": (affine(lambda by, x, y: (1, 0, by * x, 0, 1, 0)), (-0.41, 0.0, 0.13, 0.45)),
    "translate_y": (affine(lambda by, x, y: (1, 0, 0, 0, 1, by * y)), (-0.41, 0.0, 0.13, 0.45)),
}
EXACT = {"equalize", "invert", "posterize", "solarize", "solarize_add"}  # integer arithmetic
NEARLY = {
    "autocontrast",
    "saturation",
    "contrast",
    "brightness",
    "sharpness",
}  # truncation may differ by a rounding error
ROUNDED = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}  # ours rounds, PIL truncates


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", IMAGES)
def test_an_operation_equals_that_of_pil_within_one_gray_level(name, kind):
    images, (change, amounts) = IMAGES[kind], PIL[name]
    for amount in amounts:
        ours = OPERATIONS[name].apply(images, torch.full((4,), amount))
        error = (ours.int() - with_pil(change, images, amount).int()).abs()
        assert ours.dtype == torch.uint8 and error.max() <= (name not in EXACT)
        assert name in ROUNDED or (error > 0).float().mean() < 0.005
    assert EXACT | NEARLY | ROUNDED == set(OPERATIONS) == set(PIL)


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"autocontrast", "equalize", "invert"}))
@pytest.mark.parametrize("kind", IMAGES)
def test_an_amount_of_0_changes_nothing_and_each_image_has_its_own_amount(name, kind):
    images, change = IMAGES[kind], OPERATIONS[name].apply
    assert torch.equal(change(images, torch.zeros(4)), images)
    amounts = OPERATIONS[name].high * torch.tensor([0.0, 0.4, 0.7, 1.0])
    alone = [change(image[None], amount[None])[0] for image, amount in zip(images, amounts, strict=True)]
    assert torch.equal(change(images, amounts), torch.stack(alone))


def test_flat_images_are_unchanged():
    flat, amount = torch.full((1, 3, 5, 6), 77, dtype=torch.uint8), torch.tensor([0.5])
    for change in (_ops.autocontrast, _ops.equalize, _ops.saturation, _ops.sharpness):
        assert torch.equal(change(flat, amount), flat)
    few = torch.arange(30, dtype=torch.uint8).view(1, 1, 5, 6)  # too few pixels to equalize
    assert torch.equal(_ops.equalize(few, amount), few)


def test_posterizing_all_bits_gives_black():
    assert not _ops.posterize(IMAGES["rgb"], torch.full((4,), 8.0)).any()  # PIL may refuse it


def test_magnitudes_give_the_amounts_of_timm():
    timm = peer("timm.data.auto_augment")
    for name, operation in zip(timm._RAND_INCREASING_TRANSFORMS, OPERATIONS.values(), strict=True):
        for magnitude in (0.0, 3.3, 7.4, 9.0, 9.6, 10.0):
            (theirs,) = timm.LEVEL_TO_ARG[name](magnitude, {}) if timm.LEVEL_TO_ARG[name] else (0.0,)
            ours = operation.amount(torch.tensor(magnitude / 10), torch.tensor(1.0)).item()
            match name:
                case "PosterizeIncreasing":
                    assert 8 - math.floor(ours) == theirs
                case "SolarizeIncreasing":
                    assert 256 - math.floor(ours) == theirs
                case "SolarizeAdd":
                    assert math.floor(ours) == theirs
                case _:
                    assert ours == pytest.approx(abs(theirs - name.startswith(("Color", "Contr", "Bright", "Sharp"))))
        sides = operation.amount(torch.tensor([0.5, 0.5]), torch.tensor([-1.0, 1.0]))
        assert (sides[0] == -sides[1]) == (operation.signed or operation.high == 0)


def test_operations_are_sampled_uniformly_and_applied_with_their_probability():
    torch.manual_seed(0)
    image = IMAGES["rgb"][:1, :, :20, :28]
    level = torch.tensor([0.7])
    results = {
        (name, sign): operation.apply(image, operation.amount(level, torch.tensor([sign])))
        for name, operation in OPERATIONS.items()
        for sign in ((-1.0, 1.0) if operation.signed else (1.0,))
    } | {("none", 1.0): image}
    spec = "randaugment(magnitude=7.0, magnitude_std=0.0, num_ops=1, prob=0.75)"
    changed = AUGMENTATIONS.build(spec).on_uint8(image.expand(3000, -1, -1, -1))
    frequency = {key: (changed == one).flatten(1).all(1).float().mean().item() for key, one in results.items()}
    assert sum(frequency.values()) == pytest.approx(1, abs=1e-4)
    assert frequency.pop(("none", 1.0)) == pytest.approx(0.25, abs=0.03)
    for (name, _), observed in frequency.items():
        assert observed == pytest.approx(0.05 / (1 + OPERATIONS[name].signed), abs=0.016)


def test_operations_are_applied_in_sequence_with_random_magnitudes():
    torch.manual_seed(0)
    images = IMAGES["rgb"][:1].expand(200, -1, -1, -1)
    twice, thrice = (AUGMENTATIONS.build(f"randaugment(num_ops={n}, prob=1)").on_uint8(images) for n in (2, 3))
    assert len(twice.flatten(1).unique(dim=0)) > 150 and not torch.equal(twice, thrice)
    with pytest.raises(InputError, match="not 2 channels"):
        AUGMENTATIONS.build("randaugment").on_uint8(images[:, :2])
