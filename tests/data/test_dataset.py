import pytest
import torch

from vitpos.data.dataset import Split, load
from vitpos.errors import InputError


def test_normalizing_leaves_the_images_unchanged():
    data = load("stripes(count=4)")
    images = data.test.images.float()
    before = images.clone()
    data.normalize(images)
    assert torch.equal(images, before)


def test_the_example_data_set_of_the_contributing_guide_works():
    data = load("stripes(count=64)")
    assert data.shape == (1, 8, 16) and len(data.train) == 64


def test_a_test_sample_depends_on_the_seed_and_keeps_the_order():
    data = load("mnist(limit=8)")
    sample, again, other = (data.sample_test(10, seed=seed).test for seed in (0, 0, 1))
    assert torch.equal(sample.images, again.images) and not torch.equal(sample.images, other.images)
    index = [int((data.test.images == image).flatten(1).all(1).nonzero()[0]) for image in sample.images]
    assert index == sorted(index) and len(set(index)) == 10
    assert data.sample_test(None) is data and data.sample_test(10**6) is data


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("permute_patches + mnist", "must follow its data set"),
        ("permute_patches", "without a data set"),
        ("mnist + mnist", "only a view can be added"),
        ("mnist + subset(fraction=0.0)", "a fraction up to 1"),
        ("mnist + holdout(fraction=1.0)", "fraction=1.0 of 60000 images"),
        ("mnist + permute_patches(grid=(0, 7))", "no grid of 0x7"),
        ("mnist + permute_patches(grid=(5, 5))", "no grid of 5x5"),
        ("mnist + permute_patches(seed=99999999999999999999)", "a seed of"),
        ("mnist + classes(keep=(6, 11))", "from 0 to 9"),
        ("dot_location(grid=(3, 4))", "divide height and width"),
        ("dot_location(grid=(16, 16))", "cells of a patch or more"),
        ("dot_location(grid=(0, 4))", "divide height"),
        ("dot_location(count=4)", "8 images or more"),
        (
            "dot_location(count=999999999999)",
            "count=999999999999 images of 32x32, which are 1024000 GB; take fewer or smaller",
        ),
        ("dot_location(size=(100000, 100000))", "up to 2 GB"),
        ("patch_order(count=9999999999)", "up to 2 GB"),
        ("left_right(size=(28, 10000000))", "up to 2 GB"),
        ("patch_order(seed=-1)", "a seed from 0"),
        ("patch_order(patch=5)", "a patch that divides"),
        ("patch_order(distance=8)", "a distance below"),
        ("left_right(size=(27, 64))", "a height from 28"),
        ("left_right(size=(28, 57))", "an even width"),
        ("left_right(count=60001)", "take fewer"),
    ],
)
def test_wrong_data_sets_and_views_give_the_value_and_the_remedy(spec, message):
    with pytest.raises(InputError, match=message):
        load(spec)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(8, 1, 2, 2, dtype=torch.uint8), 7, "7 labels for 8 images; give one per image"),
        (torch.zeros(8, 1, 2, 2), 8, "images of type torch.float32; give uint8, 0 to 255"),
    ],
)
def test_a_split_that_does_not_fit_is_refused_in_one_line(images, labels, message):
    with pytest.raises(InputError, match=message):
        Split(images, torch.zeros(labels, dtype=torch.long))
