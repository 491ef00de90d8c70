import pytest
import torch

from vitpos.data.base import load
from vitpos.data.mnist import ARCHIVE, read
from vitpos.errors import UserError, WorkError
from vitpos.patches import permutation, rearrange


def test_mnist_is_all_there():
    data = load("mnist")
    assert data.train.images.shape == (60000, 1, 28, 28) and data.test.images.shape == (10000, 1, 28, 28)
    assert data.train.labels.bincount().tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    inputs = data.inputs(data.train.images[:20000])
    assert inputs.mean().item() == pytest.approx(0, abs=0.01) and inputs.std().item() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_file_is_never_used(tmp_path, damage):
    content = bytearray(ARCHIVE.read_bytes())
    file = tmp_path / "mnist.xz"
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    if damage != "gone":
        file.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    with pytest.raises(WorkError, match="reinstall vitpos"):
        read(file)


def test_another_picture_in_the_file_is_noticed(tmp_path):
    import lzma

    raw = bytearray(lzma.decompress(ARCHIVE.read_bytes()))
    raw[100] ^= 1
    (tmp_path / "mnist.xz").write_bytes(lzma.compress(raw, preset=0))
    with pytest.raises(WorkError, match="damaged"):
        read(tmp_path / "mnist.xz")


def test_reading_inputs_leaves_the_images_as_they_are():
    data = load("stripes(count=4)")
    images = data.test.images.float()
    before = images.clone()
    data.inputs(images)
    assert torch.equal(images, before)


def test_only_keeps_some_classes_and_counts_them_from_zero():
    data, pair = load("mnist"), load("mnist + only(classes=(9, 6))")
    assert pair.classes == ("9", "6")
    assert len(pair.test) == int(((data.test.labels == 6) | (data.test.labels == 9)).sum())
    nines = data.test.images[data.test.labels == 9]
    assert torch.equal(pair.test.images[pair.test.labels == 0], nines)


def test_a_fixed_jigsaw_is_the_same_permutation_in_training_and_test():
    data, moved = load("mnist"), load("mnist + jigsaw(grid=(7, 7))")
    order = permutation(49, seed=0)
    for split, other in ((data.train, moved.train), (data.test, moved.test)):
        assert torch.equal(rearrange(split.images[:100], (7, 7), order), other.images[:100])
        assert torch.equal(split.labels, other.labels)


def test_a_jigsaw_per_image_keeps_pixels_and_repeats_no_permutation():
    data, moved = load("mnist"), load("mnist + jigsaw(grid=(2, 14), per='image')")
    assert torch.equal(moved.test.images.flatten(1).sort(1).values, data.test.images.flatten(1).sort(1).values)
    assert not torch.equal(moved.test.images, data.test.images)


def test_a_part_is_drawn_once_and_leaves_the_test_alone():
    part = load("mnist + part(fraction=0.5, limit=300)")
    assert len(part.train) == 300 and len(part.test) == 10000
    assert torch.equal(part.train.images, load("mnist + part(limit=300)").train.images)
    assert part.train.labels.bincount(minlength=10).min() > 10


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("jigsaw + mnist", "a view comes after"),
        ("jigsaw", "without a data set"),
        ("mnist + mnist", "only a view can be added"),
        ("mnist + jigsaw(grid=(0, 7))", "no grid of 0x7"),
        ("mnist + jigsaw(seed=99999999999999999999)", "a seed of"),
        ("mnist + only(classes=(6, 11))", "from 0 to 9"),
        ("mnist + jigsaw(grid=(5, 5))", "no grid of 5x5"),
        ("mnist + part(fraction=0.0)", "a share up to 1"),
    ],
)
def test_a_wrong_view_says_what_to_write(spec, message):
    with pytest.raises(UserError, match=message):
        load(spec)


def test_the_example_of_a_data_set_works():
    data = load("stripes(count=64)")
    assert data.shape == (1, 8, 16) and len(data.train) == 64
