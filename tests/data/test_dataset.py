import pytest
import torch

from vitpos.data.dataset import load
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


def test_held_images_are_of_the_training_set_and_not_trained_on():
    def rows(images):
        return sorted(images.flatten(1).numpy().tobytes()[i * 784 : (i + 1) * 784] for i in range(len(images)))

    whole, held = load("mnist(limit=500)"), load("mnist(limit=500) + held(fraction=0.2)")
    assert len(held.train) == 400 and len(held.test) == 100
    assert rows(torch.cat([held.train.images, held.test.images])) == rows(whole.train.images)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mnist + held(fraction=1.0)", "keep some for both"),
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


@pytest.fixture
def tree(tmp_path):
    """Class folders with pictures of every kind: grey, with alpha, wide, high, tiny."""
    from PIL import Image

    def make(path, size, mode, colour):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, colour).save(path)

    for n in range(10):
        make(tmp_path / "plain" / "cat" / f"{n}.png", (40 + n, 30), "RGB", (200, n, 0))
        make(tmp_path / "plain" / "dog" / "deep" / f"{n}.PNG", (20, 50), "L", 100 + n)
    make(tmp_path / "halves" / "train" / "cat" / "a.jpg", (300, 20), "RGB", (255, 0, 0))
    make(tmp_path / "halves" / "train" / "dog" / "b.png", (1, 1), "RGBA", (0, 255, 0, 255))
    make(tmp_path / "halves" / "val" / "dog" / "c.gif", (64, 64), "P", 0)
    (tmp_path / "halves" / "val" / "cat").mkdir()
    (tmp_path / "halves" / "train" / "dog" / "notes.txt").write_text("not a picture")
    return tmp_path


def test_a_folder_of_classes_is_split_by_every_fifth_picture(tree):
    data = load(f"folder(path={str(tree / 'plain')!r}, size=(16, 24))")
    assert data.classes == ("cat", "dog") and data.shape == (3, 16, 24)
    assert data.train.labels.tolist() == [0] * 8 + [1] * 8 and data.test.labels.tolist() == [0, 0, 1, 1]
    images = data.test.images[:]
    assert images.shape == (4, 3, 16, 24) and images.dtype == torch.uint8
    assert images[:, :, 8, 12].tolist() == [[200, 4, 0], [200, 9, 0], [104] * 3, [109] * 3]
    few = load(f"folder(path={str(tree / 'plain')!r}, size=8, limit=5)")
    assert len(few.train) == 5 and len(few.test) == 4
    assert len(load(f"folder(path={str(tree / 'plain')!r}) + only(classes=(1,))").train) == 8


def test_a_folder_with_halves_keeps_them(tree):
    data = load(f"folder(path={str(tree / 'halves')!r}, size=8)")
    assert len(data.train) == 2 and data.test.labels.tolist() == [1]
    assert data.train.images[torch.tensor([1])][0, :, 4, 4].tolist() == [0, 255, 0]


def test_training_reads_random_parts_and_the_same_ones_from_the_same_seed(tmp_path):
    from PIL import Image

    ramp = torch.arange(64).repeat(64, 1).to(torch.uint8).mul(4)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        for n in range(5):
            Image.fromarray(ramp.numpy()).save(tmp_path / name / f"{n}.png")
    order = torch.tensor([3, 0, 2, 1])

    def seen(crop, mirror=True):
        torch.manual_seed(0)
        train = load(f"folder(path={str(tmp_path)!r}, size=16, crop={crop}, mirror={mirror})").train
        return torch.cat([images for images, _ in train.batches(order.split(3))])

    first, again, whole = seen(0.2), seen(0.2), seen(1.0, mirror=False)
    assert torch.equal(first, again) and first.shape == (4, 3, 16, 16)
    assert len({tuple(row.tolist()) for row in first[:, 0, 8]}) == 4, "each has a part of its own"
    rising = first[:, 0, 8].float().diff().mean(1)
    assert rising.abs().max() <= whole[0, 0, 8].float().diff().mean() * 1.15, "no part is wider than the picture"
    assert torch.equal(whole[0], whole[1]) and (whole[0, 0, 8].float().diff() > 0).all()
    assert torch.equal(seen(1.0).sort(3).values, whole), "whole, but some the other way round"


def test_the_middle_of_a_test_picture_is_what_torchvision_cuts_out(tmp_path):
    """Resized to 8/7 of the size by its shorter side, then cut: we cut first, which differs by less than a grey level."""
    import numpy as np
    from PIL import Image

    smooth = np.sin(np.linspace(0, 6, 140))[:, None] * np.cos(np.linspace(0, 4, 210))[None] * 100 + 128
    picture = Image.fromarray(smooth.round().astype(np.uint8)).convert("RGB")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for n in range(5):
            picture.save(tmp_path / name / f"{n}.png")
    ours = load(f"folder(path={str(tmp_path)!r}, size=56)").test.images[:1][0].float()
    resized = picture.resize((96, 64), Image.Resampling.BICUBIC).crop((20, 4, 76, 60))
    assert (ours - torch.from_numpy(np.asarray(resized).copy()).permute(2, 0, 1)).abs().mean() < 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "is no folder"),
        ("path='no/such/place'", "is no folder"),
        ("path={plain!r}, crop=0.0", "a share above 0"),
        ("path={plain!r}, size=(0, 8)", "a size from 1"),
        ("path={empty!r}", "has no folders"),
        ("path={textual!r}", "found no pictures"),
        ("path={strange!r}", "has 'fox', which"),
        ("path={half!r}", "has a folder train but none named val or"),
        ("path={alone!r}", "has one folder, class, and so one class"),
        ("path={above!r}", "hold only folders, no pictures"),
        ("path={plain!r}) + jigsaw(grid=(2, 2)", "needs pictures in memory"),
    ],
)
def test_a_wrong_folder_says_what_to_do(tree, options, message):
    for name in ("textual/class", "textual/other", "alone/class", "above/training/cat", "above/testing/cat"):
        (tree / name).mkdir(parents=True)
    (tree / "empty").mkdir()
    for name in ("strange/train/cat", "strange/train/dog", "strange/val/fox", "strange/val/dog", "half/train/cat"):
        (tree / name).mkdir(parents=True)
    names = {name: str(tree / name) for name in ("plain", "empty", "textual", "strange", "half", "alone", "above")}
    with pytest.raises(UserError, match=message):
        load(f"folder({options.format(**names)})")


def test_a_picture_that_cannot_be_read_is_named(tree):
    (tree / "plain" / "cat" / "4.png").write_bytes(b"not a picture")
    data = load(f"folder(path={str(tree / 'plain')!r}, size=8)")
    with pytest.raises(WorkError, match=r"4\.png cannot be read.*replace or delete it"):
        data.test.images[:]
