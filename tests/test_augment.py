"""What is done to pictures in training: bytes as PIL changes them, mixtures, erased boxes, order and seeds."""

import pytest
import torch
import torch.nn.functional as F

from tests.references import peer
from vitpos.data.base import load
from vitpos.errors import UserError
from vitpos.training import AUGMENTS
from vitpos.training.augment import augmenting
from vitpos.training.mix import interval

DIGITS = load("mnist").train.first(64)


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
