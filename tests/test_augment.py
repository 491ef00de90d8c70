"""What is done to pictures in training: bytes as PIL changes them, mixtures, erased boxes, order and seeds."""

import torch

from vitpos.data.base import load
from vitpos.training import AUGMENTS
from vitpos.training.augment import augmenting

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
