"""What is done to pictures in training: bytes as PIL changes them, mixtures, erased boxes, order and seeds."""

import math
from collections import Counter
from dataclasses import replace

import matplotlib.cbook
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps

from tests.references import peer
from vitpos.data.dataset import load
from vitpos.errors import UserError
from vitpos.experiment import Experiment
from vitpos.lab import check
from vitpos.models import MODELS
from vitpos.shifts import moved as shift
from vitpos.training import AUGMENTS
from vitpos.training.augment import _ops
from vitpos.training.augment.base import augmenting
from vitpos.training.augment.mix import interval
from vitpos.training.augment.randaugment import OPERATIONS
from vitpos.training.fit import fit
from vitpos.training.recipe import Recipe

DIGITS = load("mnist").train.first(64)
PUBLISHED = "flip + randaugment + erase + mix + jigsaw(grid=(7, 7))"


def photographs(height=40, width=56):
    """Four pieces of a photograph, not square, as bytes (4, 3, height, width)."""
    with Image.open(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)) as photograph:
        whole = torch.from_numpy(np.array(photograph.convert("RGB"))).permute(2, 0, 1)
    corners = (80, 150), (200, 220), (20, 20), (420, 300)
    return torch.stack([whole[:, row : row + height, column : column + width] for row, column in corners])


PICTURES = {"colour": photographs(), "grey": DIGITS.images[:4]}


def with_pil(change, images, amount):
    """Bytes (B, C, height, width) changed one by one by a function of a PIL image and an amount."""
    changed = [np.array(change(Image.fromarray(x.permute(1, 2, 0).squeeze(2).numpy()), amount)) for x in images]
    return torch.from_numpy(np.stack(changed)).view(*images[:, 0].shape, -1).permute(0, 3, 1, 2)


def lighten(image, amount):
    return image.point([min(255, i + int(amount)) if i < 128 else i for i in range(256)] * len(image.getbands()))


def enhance(kind):
    return lambda image, amount: getattr(ImageEnhance, kind)(image).enhance(1 + amount)


def affine(coefficients):
    def change(image, amount):
        fill, x, y = (_ops.FILL,) * len(image.getbands()), *image.size
        numbers = coefficients(amount, x, y)
        return image.transform(image.size, Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR, fillcolor=fill)

    return change


def turn(image, amount):
    fill = (_ops.FILL,) * len(image.getbands())
    return image.rotate(amount, Image.Resampling.BILINEAR, fillcolor=fill)


PIL = {  # what each operation is there, and amounts to compare at
    "autocontrast": (lambda image, _: ImageOps.autocontrast(image), (0.0,)),
    "equalize": (lambda image, _: ImageOps.equalize(image), (0.0,)),
    "invert": (lambda image, _: ImageOps.invert(image), (0.0,)),
    "rotate": (turn, (-27.3, 0.0, 8.1, 30.0)),
    "posterize": (lambda image, amount: ImageOps.posterize(image, 8 - int(amount)), (0.0, 1.0, 4.5, 7.6)),
    "solarize": (lambda image, amount: ImageOps.solarize(image, 256 - int(amount)), (0.0, 100.3, 230.4, 256.0)),
    "lighten": (lighten, (0.0, 50.0, 99.7, 110.0)),
    "colour": (enhance("Color"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "contrast": (enhance("Contrast"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "brightness": (enhance("Brightness"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "sharpness": (enhance("Sharpness"), (-0.9, -0.3, 0.0, 0.55, 0.9)),
    "shear_x": (affine(lambda by, x, y: (1, by, 0, 0, 1, 0)), (-0.27, 0.0, 0.13, 0.3)),
    "shear_y": (affine(lambda by, x, y: (1, 0, 0, by, 1, 0)), (-0.27, 0.0, 0.13, 0.3)),
    "translate_x": (affine(lambda by, x, y: (1, 0, by * x, 0, 1, 0)), (-0.41, 0.0, 0.13, 0.45)),
    "translate_y": (affine(lambda by, x, y: (1, 0, 0, 0, 1, by * y)), (-0.41, 0.0, 0.13, 0.45)),
}
EXACT = {"equalize", "invert", "posterize", "solarize", "lighten"}  # whole numbers throughout
NEARLY = {"autocontrast", "colour", "contrast", "brightness", "sharpness"}  # a fraction cut off may be 0 or 0.999…
ROUNDED = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}  # ours to the nearest, PIL's cut off


def test_nothing_is_done_and_labels_stay_numbers_where_nothing_is_asked():
    data = load("mnist")
    inputs, targets = augmenting("").batch(data, DIGITS.images, DIGITS.labels)
    assert torch.equal(inputs, data.inputs(DIGITS.images)) and targets is DIGITS.labels


def test_a_flip_exchanges_left_and_right_in_its_share_of_the_pictures():
    torch.manual_seed(0)
    images = DIGITS.images.repeat(16, 1, 1, 1)
    painted = AUGMENTS.build("flip(probability=0.25)").paint(images)
    flipped = (painted == images.flip(3)).flatten(1).all(1)
    assert torch.equal(painted[~flipped], images[~flipped]) and 0.2 < flipped.float().mean() < 0.3
    assert torch.equal(AUGMENTS.build("flip(probability=1)").paint(images), images.flip(3))


def test_mixup_blends_pictures_and_targets_by_one_share():
    torch.manual_seed(0)
    images, targets = torch.randn(6, 3, 5, 7), F.one_hot(torch.arange(6), 10).float()
    mix, shares = AUGMENTS.build("mix(cutmix=0.0)"), []
    for _ in range(300):
        mixed, wanted = mix(images, targets)
        share = wanted[0, 0]
        assert torch.allclose(mixed, share * images + (1 - share) * images.flip(0), atol=1e-6)
        assert torch.allclose(wanted, share * targets + (1 - share) * targets.flip(0))
        shares.append(share)
    spread = torch.stack(shares).var()
    assert (
        abs(torch.stack(shares).mean() - 0.5) < 0.08 and abs(spread - 1 / 4 / (2 * 0.8 + 1)) < 0.025
    )  # of Beta(.8, .8)


def test_cutmix_gives_each_class_its_share_of_the_pixels():
    torch.manual_seed(0)
    images, targets = torch.arange(6.0).view(6, 1, 1, 1).expand(-1, 2, 9, 13), torch.eye(6)
    mix, shares = AUGMENTS.build("mix(mixup=0.0)"), []
    for _ in range(300):
        mixed, wanted = mix(images, targets)
        pixels = F.one_hot(mixed.long(), 6).float().mean((1, 2, 3))  # (B, classes)
        assert torch.allclose(pixels, wanted, atol=1e-6) and torch.allclose(wanted.sum(1), torch.ones(6))
        rows, columns = ((mixed != images)[0, 0].any(dim) for dim in (1, 0))
        assert (mixed != images)[0, 0].sum() == rows.sum() * columns.sum()  # one box
        shares.append(wanted[0, 0])
    assert min(shares) < 0.3 and max(shares) == 1


@pytest.mark.parametrize("share", [0.0, 0.2, 0.77, 1.0])
def test_boxes_are_those_of_timm(share):
    timm = peer("timm.data.mixup")
    timm.np.random.seed(3)
    for _ in range(50):
        state = timm.np.random.get_state()
        row, column = (timm.np.random.randint(0, side) for side in (17, 23))
        timm.np.random.set_state(state)
        top, bottom, left, right = timm.rand_bbox((1, 1, 17, 23), share)
        side = (1 - share) ** 0.5
        assert interval(17, side, (row + 0.5) / 17) == slice(top, bottom)
        assert interval(23, side, (column + 0.5) / 23) == slice(left, right)


def test_mixing_switches_between_the_two_and_leaves_its_share_of_batches_alone():
    torch.manual_seed(0)
    images, targets = torch.randn(4, 1, 8, 8), torch.eye(4)
    mix, counts = AUGMENTS.build("mix(probability=0.5, switch=0.25)"), {"alone": 0, "blended": 0, "cut": 0}
    for _ in range(400):
        mixed = mix(images, targets)[0]
        kind = "alone" if mixed is images else "cut" if torch.isin(mixed, images).all() else "blended"
        counts[kind] += 1
    assert 170 < counts["alone"] < 230 and 120 < counts["blended"] < 180 and 30 < counts["cut"] < 70
    with pytest.raises(UserError, match=r"mixup=0\.0, cutmix=0"):
        AUGMENTS.build("mix(mixup=0, cutmix=0)")


def erased_boxes(changed):
    """Heights and widths of the boxes that differ, (B, height, width) bool; each difference must be one whole box."""
    heights, widths = changed.any(2).sum(1), changed.any(1).sum(1)
    assert torch.equal(changed.flatten(1).sum(1), heights * widths)
    return heights, widths


def test_erasing_puts_noise_into_one_box_of_the_promised_share_and_size():
    torch.manual_seed(0)
    images, labels = torch.full((4000, 2, 20, 30), 7.0), torch.zeros(4000)
    erased, same = AUGMENTS.build("erase")(images, labels)
    changed = (erased != 7).all(1)
    assert same is labels and torch.equal((erased != 7).any(1), changed)
    noise = erased[(erased != 7)]
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02 and len(noise.unique()) > 0.9 * len(noise)
    heights, widths = erased_boxes(changed)
    some = heights > 0
    assert abs(some.float().mean() - 0.25) < 0.03
    height, width = heights[some].float(), widths[some].float()
    assert height.max() < 20 and width.max() < 30
    rounding = (height + width) / 2 + 0.25  # half a pixel of each side
    assert (height * width + rounding > 0.02 * 600).all() and (height * width - rounding < 600 / 3).all()
    for places in (changed.any(2), changed.any(1)):  # no place is spared
        assert (places[some].float().mean(0) > 0.03).all()


def test_erased_boxes_are_distributed_as_those_of_timm():
    torch.manual_seed(0)
    timm, images = peer("timm.data.random_erasing"), torch.full((1500, 1, 24, 36), 7.0)
    timm.random.seed(0)
    theirs = timm.RandomErasing(1.0, mode="pixel", device="cpu")(images.clone())
    ours = AUGMENTS.build("erase(probability=1.0)")(images, torch.zeros(1500))[0]
    boxes = [erased_boxes((x != 7)[:, 0]) for x in (ours, theirs)]
    for mine, other in zip(*boxes, strict=True):
        mine, other = mine.float(), other.float()
        assert abs(mine.mean() - other.mean()) < 4 * other.std() * (2 / 1500) ** 0.5
        assert abs(mine.std() / other.std() - 1) < 0.08
    covered = [(x != 7).float().mean((0, 1)) for x in (ours, theirs)]
    assert (covered[0] - covered[1]).abs().max() < 5 * (0.18 * 0.82 * 2 / 1500) ** 0.5


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", PICTURES)
def test_an_operation_is_that_of_pil_within_one_grey_level(name, kind):
    images, (change, amounts) = PICTURES[kind], PIL[name]
    for amount in amounts:
        ours = OPERATIONS[name].change(images, torch.full((4,), amount))
        apart = (ours.int() - with_pil(change, images, amount).int()).abs()
        assert ours.dtype == torch.uint8 and apart.max() <= (name not in EXACT)
        assert name in ROUNDED or (apart > 0).float().mean() < 0.005
    assert EXACT | NEARLY | ROUNDED == set(OPERATIONS) == set(PIL)


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"autocontrast", "equalize", "invert"}))
@pytest.mark.parametrize("kind", PICTURES)
def test_an_amount_of_nothing_changes_nothing_and_each_picture_has_its_own(name, kind):
    images, change = PICTURES[kind], OPERATIONS[name].change
    assert torch.equal(change(images, torch.zeros(4)), images)
    amounts = OPERATIONS[name].most * torch.tensor([0.0, 0.4, 0.7, 1.0])
    alone = [change(image[None], amount[None])[0] for image, amount in zip(images, amounts, strict=True)]
    assert torch.equal(change(images, amounts), torch.stack(alone))


def test_plain_pictures_stay_as_they_are():
    plain, amount = torch.full((1, 3, 5, 6), 77, dtype=torch.uint8), torch.tensor([0.5])
    for change in (_ops.autocontrast, _ops.equalize, _ops.colour, _ops.sharpness):
        assert torch.equal(change(plain, amount), plain)
    few = torch.arange(30, dtype=torch.uint8).view(1, 1, 5, 6)  # too few pixels to spread
    assert torch.equal(_ops.equalize(few, amount), few)


def test_pictures_without_any_of_their_bits_are_black():
    assert not _ops.posterize(PICTURES["colour"], torch.full((4,), 8.0)).any()  # PIL may refuse it


def test_magnitudes_mean_what_they_mean_to_timm():
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
        assert (sides[0] == -sides[1]) == (operation.signed or operation.most == 0)


def test_every_operation_is_drawn_as_often_and_done_in_its_share():
    torch.manual_seed(0)
    image = PICTURES["colour"][:1, :, :20, :28]
    level = torch.tensor([0.7])
    made = {
        (name, sign): operation.change(image, operation.amount(level, torch.tensor([sign])))
        for name, operation in OPERATIONS.items()
        for sign in ((-1.0, 1.0) if operation.signed else (1.0,))
    } | {("none", 1.0): image}
    spec = "randaugment(magnitude=7.0, deviation=0.0, operations=1, probability=0.75)"
    painted = AUGMENTS.build(spec).paint(image.expand(3000, -1, -1, -1))
    shares = {key: (painted == one).flatten(1).all(1).float().mean().item() for key, one in made.items()}
    assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
    assert shares.pop(("none", 1.0)) == pytest.approx(0.25, abs=0.03)
    for (name, _), share in shares.items():
        assert share == pytest.approx(0.05 / (1 + OPERATIONS[name].signed), abs=0.016)


def test_rounds_follow_one_another_and_magnitudes_vary():
    torch.manual_seed(0)
    images = PICTURES["colour"][:1].expand(200, -1, -1, -1)
    twice, thrice = (AUGMENTS.build(f"randaugment(operations={n}, probability=1)").paint(images) for n in (2, 3))
    assert len(twice.flatten(1).unique(dim=0)) > 150 and not torch.equal(twice, thrice)
    for spec, message in (
        ("randaugment(magnitude=11)", "magnitudes are from 0 to 10"),
        ("randaugment(operations=-1)", "operations=-1"),
        ("erase(area=(0.5, 0.2))", "the smaller area first"),
        ("flip(probability=2)", "probability=2"),
    ):
        with pytest.raises(UserError, match=message):
            AUGMENTS.build(spec)
    with pytest.raises(UserError, match="not 2 channels"):
        AUGMENTS.build("randaugment").paint(images[:, :2])


def test_a_sum_paints_bytes_and_then_changes_inputs_in_the_order_written():
    data, (images, labels) = load("mnist"), (DIGITS.images, DIGITS.labels)
    names = "flip", "erase(probability=1.0)", "randaugment(probability=1.0)", "mix(mixup=0.0)", "spp(grid=(4, 4))"
    whole, parts = AUGMENTS.build(" + ".join(names)), [AUGMENTS.build(name) for name in names]
    torch.manual_seed(5)
    inputs, targets = whole.batch(data, images, labels)
    torch.manual_seed(5)
    for part in parts:
        images = part.paint(images)
    expected = data.inputs(images), F.one_hot(labels, 10).float()
    for part in parts:
        expected = part(*expected)
    assert torch.equal(inputs, expected[0]) and torch.equal(targets, expected[1])
    torch.manual_seed(5)
    other = AUGMENTS.build(" + ".join(reversed(names))).batch(data, DIGITS.images, labels)
    assert not torch.equal(inputs, other[0]) and targets.shape == (64, 10)


def test_a_seed_tells_all_that_is_drawn():
    data, augment = load("mnist"), AUGMENTS.build(PUBLISHED)
    made = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        made.append(augment.batch(data, DIGITS.images, DIGITS.labels)[0])
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_training_with_all_of_them_is_finite_and_goes_on_bit_for_bit():
    data = replace(load("mnist"), train=load("mnist").train.first(91))  # batches even and odd
    recipe = Recipe(epochs=3, batch=32, smoothing=0.1, augment=PUBLISHED, start=1e-6, end=1e-5)

    def states(resume=None):
        torch.manual_seed(0)
        model = MODELS.build("vit(patch=(7, 7), dim=16, depth=1, heads=2)", data.shape, 10, "learned")
        for state in fit(model, data, recipe, resume=resume):
            yield state.epoch, {name: tensor.clone() for name, tensor in state.tensors.items()}, state.record

    whole = list(states())
    assert all(math.isfinite(record["loss"]) and 0 <= record["accuracy"] <= 1 for _, _, record in whole[1:])
    rest = list(states(resume=whole[1][:2]))
    assert all(torch.equal(tensor, rest[-1][1][name]) for name, tensor in whole[-1][1].items())


def test_augments_are_rehearsed_before_anything_is_trained():
    text = 'data = "mnist"\nmodel = "attention"\nencoding = "none"\ntrain.augment = "%s"'
    origin = {"name": "x", "asked": "", "settings": [], "seeds": None}
    check(Experiment.make(origin | {"text": text % PUBLISHED}).cells)
    with pytest.raises(UserError, match="no grid of 5x5"):
        check(Experiment.make(origin | {"text": text % "mix + jigsaw(grid=(5, 5))"}).cells)


def test_a_crop_moves_each_picture_by_a_few_pixels_of_its_own():
    torch.manual_seed(0)
    images = torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8).repeat(500, 3, 1, 1)
    moved = AUGMENTS.build("crop(pad=2)").paint(images)
    steps = Counter()
    for picture in moved:
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(shift(images[:1], (down, right), "black")[1][0], picture)
        ]
        assert len(found) == 1
        steps[found[0]] += 1
    assert len(steps) == 25 and max(steps.values()) < 50


def test_jitter_changes_light_and_leaves_greys_grey():
    torch.manual_seed(0)
    images = torch.randint(40, 200, (64, 3, 6, 6), dtype=torch.uint8)
    changed = AUGMENTS.build("jitter(strength=0.4)").paint(images)
    ratio = changed.float().mean((1, 2, 3)) / images.float().mean((1, 2, 3))
    assert 0.55 < ratio.min() < 0.75 and 1.2 < ratio.max() < 1.45
    assert torch.equal(AUGMENTS.build("jitter(strength=0.0)").paint(images), images)
    grey = images[:, :1].expand(-1, 3, -1, -1)
    light = AUGMENTS.build("jitter").paint(grey)
    assert torch.equal(light[:, 0], light[:, 1]) and AUGMENTS.build("jitter").paint(images[:, :1]).shape[1] == 1
