"""Augmentations: flips, crops, mixtures, erased boxes, colors, their order and their seeds."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tests.references import peer
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.lab.dry_run import dry_run
from vitpos.lab.experiment import Experiment
from vitpos.models import MODELS
from vitpos.shifts import shift_pair as shift
from vitpos.training import AUGMENTATIONS
from vitpos.training.augment.base import build_augment
from vitpos.training.augment.mix import interval
from vitpos.training.loop import fit
from vitpos.training.recipe import Recipe

DIGITS = load("mnist").train.head(64)
PUBLISHED = "flip + randaugment + erase + mix + jigsaw(grid=(7, 7))"


def test_an_empty_spec_normalizes_images_and_keeps_labels():
    data = load("mnist")
    inputs, targets = build_augment("").prepare_batch(data, DIGITS.images, DIGITS.labels)
    assert torch.equal(inputs, data.normalize(DIGITS.images)) and targets is DIGITS.labels


def test_flip_mirrors_images_with_its_probability():
    torch.manual_seed(0)
    images = DIGITS.images.repeat(16, 1, 1, 1)
    changed = AUGMENTATIONS.build("flip(prob=0.25)").on_uint8(images)
    flipped = (changed == images.flip(3)).flatten(1).all(1)
    assert torch.equal(changed[~flipped], images[~flipped]) and 0.2 < flipped.float().mean() < 0.3
    assert torch.equal(AUGMENTATIONS.build("flip(prob=1)").on_uint8(images), images.flip(3))


def test_mixup_blends_inputs_and_targets_with_the_same_weight():
    torch.manual_seed(0)
    images, targets = torch.randn(6, 3, 5, 7), F.one_hot(torch.arange(6), 10).float()
    mix, weights = AUGMENTATIONS.build("mix(cutmix=0.0)"), []
    for _ in range(300):
        mixed, mixed_targets = mix.on_inputs(images, targets)
        weight = mixed_targets[0, 0]
        assert torch.allclose(mixed, weight * images + (1 - weight) * images.flip(0), atol=1e-6)
        assert torch.allclose(mixed_targets, weight * targets + (1 - weight) * targets.flip(0))
        weights.append(weight)
    spread = torch.stack(weights).var()
    assert (
        abs(torch.stack(weights).mean() - 0.5) < 0.08 and abs(spread - 1 / 4 / (2 * 0.8 + 1)) < 0.025
    )  # variance of Beta(.8, .8)


def test_targets_of_cutmix_are_fractions_of_pixels():
    torch.manual_seed(0)
    images, targets = torch.arange(6.0).view(6, 1, 1, 1).expand(-1, 2, 9, 13), torch.eye(6)
    mix, weights = AUGMENTATIONS.build("mix(mixup=0.0)"), []
    for _ in range(300):
        mixed, mixed_targets = mix.on_inputs(images, targets)
        pixels = F.one_hot(mixed.long(), 6).float().mean((1, 2, 3))  # (B, classes)
        assert torch.allclose(pixels, mixed_targets, atol=1e-6) and torch.allclose(mixed_targets.sum(1), torch.ones(6))
        rows, columns = ((mixed != images)[0, 0].any(dim) for dim in (1, 0))
        assert (mixed != images)[0, 0].sum() == rows.sum() * columns.sum()  # one box
        weights.append(mixed_targets[0, 0])
    assert min(weights) < 0.3 and max(weights) == 1


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.77, 1.0])
def test_the_boxes_of_cutmix_are_those_of_timm(weight):
    timm = peer("timm.data.mixup")
    timm.np.random.seed(3)
    for _ in range(50):
        state = timm.np.random.get_state()
        row, column = (timm.np.random.randint(0, side) for side in (17, 23))
        timm.np.random.set_state(state)
        top, bottom, left, right = timm.rand_bbox((1, 1, 17, 23), weight)
        side = (1 - weight) ** 0.5
        assert interval(17, side, (row + 0.5) / 17) == slice(top, bottom)
        assert interval(23, side, (column + 0.5) / 23) == slice(left, right)


def test_mix_chooses_between_mixup_and_cutmix_with_their_probabilities():
    torch.manual_seed(0)
    images, targets = torch.randn(4, 1, 8, 8), torch.eye(4)
    mix, counts = AUGMENTATIONS.build("mix(prob=0.5, switch_prob=0.25)"), {"unchanged": 0, "mixup": 0, "cutmix": 0}
    for _ in range(400):
        mixed = mix.on_inputs(images, targets)[0]
        kind = "unchanged" if mixed is images else "cutmix" if torch.isin(mixed, images).all() else "mixup"
        counts[kind] += 1
    assert 170 < counts["unchanged"] < 230 and 120 < counts["mixup"] < 180 and 30 < counts["cutmix"] < 70
    with pytest.raises(InputError, match=r"mixup=0\.0, cutmix=0"):
        AUGMENTATIONS.build("mix(mixup=0, cutmix=0)")


def erased_boxes(changed):
    """Returns heights and widths (B,) of the True boxes of a mask (B, height, width); each must be one full box."""
    heights, widths = changed.any(2).sum(1), changed.any(1).sum(1)
    assert torch.equal(changed.flatten(1).sum(1), heights * widths)
    return heights, widths


def test_erase_writes_noise_into_one_box_of_the_given_area():
    torch.manual_seed(0)
    images, labels = torch.full((4000, 2, 20, 30), 7.0), torch.zeros(4000)
    erased, same = AUGMENTATIONS.build("erase").on_inputs(images, labels)
    changed = (erased != 7).all(1)
    assert same is labels and torch.equal((erased != 7).any(1), changed)
    noise = erased[(erased != 7)]
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02 and len(noise.unique()) > 0.9 * len(noise)
    heights, widths = erased_boxes(changed)
    has_box = heights > 0
    assert abs(has_box.float().mean() - 0.25) < 0.03
    height, width = heights[has_box].float(), widths[has_box].float()
    assert height.max() < 20 and width.max() < 30
    rounding = (height + width) / 2 + 0.25  # half a pixel of each side
    assert (height * width + rounding > 0.02 * 600).all() and (height * width - rounding < 600 / 3).all()
    for covered in (changed.any(2), changed.any(1)):  # every row and column can be erased
        assert (covered[has_box].float().mean(0) > 0.03).all()


def test_the_boxes_of_erase_are_distributed_as_those_of_timm():
    torch.manual_seed(0)
    timm, images = peer("timm.data.random_erasing"), torch.full((1500, 1, 24, 36), 7.0)
    timm.random.seed(0)
    theirs = timm.RandomErasing(1.0, mode="pixel", device="cpu")(images.clone())
    ours = AUGMENTATIONS.build("erase(prob=1.0)").on_inputs(images, torch.zeros(1500))[0]
    boxes = [erased_boxes((x != 7)[:, 0]) for x in (ours, theirs)]
    for mine, other in zip(*boxes, strict=True):
        mine, other = mine.float(), other.float()
        assert abs(mine.mean() - other.mean()) < 4 * other.std() * (2 / 1500) ** 0.5
        assert abs(mine.std() / other.std() - 1) < 0.08
    covered = [(x != 7).float().mean((0, 1)) for x in (ours, theirs)]
    assert (covered[0] - covered[1]).abs().max() < 5 * (0.18 * 0.82 * 2 / 1500) ** 0.5


def test_a_sum_changes_uint8_images_and_then_inputs_in_order():
    data, (images, labels) = load("mnist"), (DIGITS.images, DIGITS.labels)
    names = "flip", "erase(prob=1.0)", "randaugment(prob=1.0)", "mix(mixup=0.0)", "patch_pixel_shuffle(grid=(4, 4))"
    whole, parts = AUGMENTATIONS.build(" + ".join(names)), [AUGMENTATIONS.build(name) for name in names]
    torch.manual_seed(5)
    inputs, targets = whole.prepare_batch(data, images, labels)
    torch.manual_seed(5)
    for part in parts:
        images = part.on_uint8(images)
    expected = data.normalize(images), F.one_hot(labels, 10).float()
    for part in parts:
        expected = part.on_inputs(*expected)
    assert torch.equal(inputs, expected[0]) and torch.equal(targets, expected[1])
    torch.manual_seed(5)
    other = AUGMENTATIONS.build(" + ".join(reversed(names))).prepare_batch(data, DIGITS.images, labels)
    assert not torch.equal(inputs, other[0]) and targets.shape == (64, 10)


def test_a_seed_determines_all_random_choices():
    data, augment = load("mnist"), AUGMENTATIONS.build(PUBLISHED)
    made = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        made.append(augment.prepare_batch(data, DIGITS.images, DIGITS.labels)[0])
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_a_resumed_training_with_all_augmentations_gives_the_same_bits():
    data = replace(load("mnist"), train=load("mnist").train.head(91))  # batches even and odd
    recipe = Recipe(epochs=3, batch_size=32, label_smoothing=0.1, augment=PUBLISHED, lr_start=1e-6, lr_end=1e-5)

    def states(resume=None):
        torch.manual_seed(0)
        model = MODELS.build("vit(patch=(7, 7), dim=16, depth=1, heads=2)", data.shape, 10, "learned")
        for state in fit(model, data, recipe, resume=resume):
            yield state.epoch, {name: tensor.clone() for name, tensor in state.state.items()}, state.metrics

    whole = list(states())
    assert all(math.isfinite(record["loss"]) and 0 <= record["accuracy"] <= 1 for _, _, record in whole[1:])
    rest = list(states(resume=whole[1][:2]))
    assert all(torch.equal(tensor, rest[-1][1][name]) for name, tensor in whole[-1][1].items())


def test_augmentations_are_tried_before_anything_is_trained():
    text = 'data = "mnist"\nmodel = "minimal"\nencoding = "none"\ntrain.augment = "%s"'
    definition = {"name": "x", "name_given": "", "settings": [], "seeds": None}
    dry_run(Experiment.from_definition(definition | {"text": text % PUBLISHED}).cells)
    with pytest.raises(InputError, match="no grid of 5x5"):
        dry_run(Experiment.from_definition(definition | {"text": text % "mix + jigsaw(grid=(5, 5))"}).cells)


def test_crop_shifts_each_image_by_its_own_random_offset():
    torch.manual_seed(0)
    images = torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8).repeat(500, 3, 1, 1)
    moved = AUGMENTATIONS.build("crop(pad=2)").on_uint8(images)
    steps = Counter()
    for image in moved:
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if torch.equal(shift(images[:1], (down, right), "zeros")[1][0], image)
        ]
        assert len(found) == 1
        steps[found[0]] += 1
    assert len(steps) == 25 and max(steps.values()) < 50


def test_color_jitter_changes_brightness_and_keeps_gray_pixels_gray():
    torch.manual_seed(0)
    images = torch.randint(40, 200, (64, 3, 6, 6), dtype=torch.uint8)
    changed = AUGMENTATIONS.build("color_jitter(strength=0.4)").on_uint8(images)
    ratio = changed.float().mean((1, 2, 3)) / images.float().mean((1, 2, 3))
    assert 0.55 < ratio.min() < 0.75 and 1.2 < ratio.max() < 1.45
    assert torch.equal(AUGMENTATIONS.build("color_jitter(strength=0.0)").on_uint8(images), images)
    gray = images[:, :1].expand(-1, 3, -1, -1)
    jittered = AUGMENTATIONS.build("color_jitter").on_uint8(gray)
    assert (
        torch.equal(jittered[:, 0], jittered[:, 1])
        and AUGMENTATIONS.build("color_jitter").on_uint8(images[:, :1]).shape[1] == 1
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randaugment(magnitude=11)", "a magnitude from 0 to 10"),
        ("randaugment(num_ops=-1)", "num_ops=-1"),
        ("erase(area=(0.5, 0.2))", "the smaller area first"),
        ("flip(prob=2)", "prob=2"),
        ("jigsaw(grid=(0, 7))", "grid="),
        ("jigsaw(mask_ratio=1.5)", "mask_ratio=1.5"),
        ("jigsaw(grid=(2, 2), mask_ratio=0.2)", "masks none of the 4 cells"),
    ],
)
def test_wrong_options_give_the_value_and_the_remedy(spec, message):
    with pytest.raises(InputError, match=message):
        AUGMENTATIONS.build(spec)
