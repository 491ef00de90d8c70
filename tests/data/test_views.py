import pytest
import torch

from vitpos.data.dataset import load
from vitpos.data.image_ops import resize
from vitpos.errors import InputError
from vitpos.patches import permute_patches, seeded_permutation


def test_classes_keeps_some_classes_and_relabels_them_in_the_given_order():
    data, two = load("mnist"), load("mnist + classes(keep=(9, 6))")
    assert two.classes == ("9", "6")
    assert len(two.test) == int(((data.test.labels == 6) | (data.test.labels == 9)).sum())
    nines = data.test.images[data.test.labels == 9]
    assert torch.equal(two.test.images[two.test.labels == 0], nines)


def test_permute_patches_uses_one_permutation_for_both_splits():
    data, permuted = load("mnist"), load("mnist + permute_patches(grid=(7, 7))")
    order = seeded_permutation(49, seed=0)
    for split, other in ((data.train, permuted.train), (data.test, permuted.test)):
        assert torch.equal(permute_patches(split.images[:100], (7, 7), order), other.images[:100])
        assert torch.equal(split.labels, other.labels)


def test_permute_patches_per_image_keeps_all_pixels_of_an_image():
    data, permuted = load("mnist"), load("mnist + permute_patches(grid=(2, 14), per='image')")
    assert torch.equal(permuted.test.images.flatten(1).sort(1).values, data.test.images.flatten(1).sort(1).values)
    assert not torch.equal(permuted.test.images, data.test.images)


def test_a_subset_is_always_the_same_and_keeps_the_test_split():
    subset = load("mnist + subset(fraction=0.5, limit=300)")
    assert len(subset.train) == 300 and len(subset.test) == 10000
    assert torch.equal(subset.train.images, load("mnist + subset(limit=300)").train.images)
    assert subset.train.labels.bincount(minlength=10).min() > 10


def test_held_out_images_come_from_the_training_split_and_are_removed_from_it():
    def rows(images):
        return sorted(images.flatten(1).numpy().tobytes()[i * 784 : (i + 1) * 784] for i in range(len(images)))

    whole, split = load("mnist(limit=500)"), load("mnist(limit=500) + holdout(fraction=0.2)")
    assert len(split.train) == 400 and len(split.test) == 100
    assert rows(torch.cat([split.train.images, split.test.images])) == rows(whole.train.images)


def test_resize_gives_every_image_another_size_as_the_evaluation_resolution_does():
    plain, larger = load("stripes(count=20)"), load("stripes(count=20) + resize(size=(12, 20))")
    assert larger.shape == (1, 12, 20) and (larger.mean, larger.std) == (plain.mean, plain.std)
    for split in ("train", "test"):
        before, after = getattr(plain, split), getattr(larger, split)
        assert torch.equal(after.labels, before.labels)
        assert torch.equal(after.images, resize(before.images, (12, 20)))
    assert load("stripes(count=20) + resize(size=4)").shape == (1, 4, 4)
    many = load("stripes(count=1500) + resize(size=(2, 3))").train.images
    assert torch.equal(many, resize(load("stripes(count=1500)").train.images, (2, 3))), "in parts or at once"
    with pytest.raises(InputError, match="view 'resize' got size=0; take 1 pixel or more"):
        load("stripes(count=20) + resize(size=0)")
