import numpy as np
import pytest
import torch
from PIL import Image

from vitpos.data.dataset import load
from vitpos.errors import InputError, RunError


@pytest.fixture
def tree(tmp_path):
    """Class folders with images of every kind: grayscale, with alpha, wide, tall, tiny."""

    def make(path, size, mode, color):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, color).save(path)

    for n in range(10):
        make(tmp_path / "plain" / "cat" / f"{n}.png", (40 + n, 30), "RGB", (200, n, 0))
        make(tmp_path / "plain" / "dog" / "deep" / f"{n}.PNG", (20, 50), "L", 100 + n)
    make(tmp_path / "halves" / "train" / "cat" / "a.jpg", (300, 20), "RGB", (255, 0, 0))
    make(tmp_path / "halves" / "train" / "dog" / "b.png", (1, 1), "RGBA", (0, 255, 0, 255))
    make(tmp_path / "halves" / "val" / "dog" / "c.gif", (64, 64), "P", 0)
    (tmp_path / "halves" / "val" / "cat").mkdir()
    (tmp_path / "halves" / "train" / "dog" / "notes.txt").write_text("not an image")
    return tmp_path


def test_without_train_and_val_every_fifth_image_of_a_class_is_a_test_image(tree):
    data = load(f"image_folder(path={str(tree / 'plain')!r}, size=(16, 24))")
    assert data.classes == ("cat", "dog") and data.shape == (3, 16, 24)
    assert data.train.labels.tolist() == [0] * 8 + [1] * 8 and data.test.labels.tolist() == [0, 0, 1, 1]
    images = data.test.images[:]
    assert images.shape == (4, 3, 16, 24) and images.dtype == torch.uint8
    assert images[:, :, 8, 12].tolist() == [[200, 4, 0], [200, 9, 0], [104] * 3, [109] * 3]
    few = load(f"image_folder(path={str(tree / 'plain')!r}, size=8, limit=5)")
    assert len(few.train) == 5 and len(few.test) == 4
    assert len(load(f"image_folder(path={str(tree / 'plain')!r}) + classes(keep=(1,))").train) == 8


def test_train_and_val_folders_are_the_splits(tree):
    data = load(f"image_folder(path={str(tree / 'halves')!r}, size=8)")
    assert len(data.train) == 2 and data.test.labels.tolist() == [1]
    assert data.train.images[torch.tensor([1])][0, :, 4, 4].tolist() == [0, 255, 0]


def test_training_crops_are_random_and_the_same_for_the_same_seed(tmp_path):
    ramp = torch.arange(64).repeat(64, 1).to(torch.uint8).mul(4)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        for n in range(5):
            Image.fromarray(ramp.numpy()).save(tmp_path / name / f"{n}.png")
    order = torch.tensor([3, 0, 2, 1])

    def seen(crop, mirror=True):
        torch.manual_seed(0)
        train = load(f"image_folder(path={str(tmp_path)!r}, size=16, crop={crop}, mirror={mirror})").train
        return torch.cat([images for images, _ in train.batches(order.split(3))])

    first, again, whole = seen(0.2), seen(0.2), seen(1.0, mirror=False)
    assert torch.equal(first, again) and first.shape == (4, 3, 16, 16)
    assert len({tuple(row.tolist()) for row in first[:, 0, 8]}) == 4, "each image has its own crop"
    rising = first[:, 0, 8].float().diff().mean(1)
    assert rising.abs().max() <= whole[0, 0, 8].float().diff().mean() * 1.15, "no crop is wider than the image"
    assert torch.equal(whole[0], whole[1]) and (whole[0, 0, 8].float().diff() > 0).all()
    assert torch.equal(seen(1.0).sort(3).values, whole), "some are mirrored"


def test_a_test_image_is_the_center_crop_of_torchvision(tmp_path):
    """torchvision resizes the shorter side to 8/7 of the size and crops; we crop first: less than a gray level apart."""
    smooth = np.sin(np.linspace(0, 6, 140))[:, None] * np.cos(np.linspace(0, 4, 210))[None] * 100 + 128
    image = Image.fromarray(smooth.round().astype(np.uint8)).convert("RGB")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for n in range(5):
            image.save(tmp_path / name / f"{n}.png")
    ours = load(f"image_folder(path={str(tmp_path)!r}, size=56)").test.images[:1][0].float()
    resized = image.resize((96, 64), Image.Resampling.BICUBIC).crop((20, 4, 76, 60))
    assert (ours - torch.from_numpy(np.asarray(resized).copy()).permute(2, 0, 1)).abs().mean() < 1


@pytest.mark.parametrize("shape", [(32, 32), (24, 40)])
def test_images_of_the_given_size_are_neither_cropped_nor_rescaled(tmp_path, shape):
    """Also in training with crop=1.0; a random crop or an image of another size is resampled."""
    pixels = np.random.default_rng(0).integers(0, 256, (10, *shape, 3), np.uint8)
    for n, image in enumerate(pixels):
        folder = tmp_path / ("ab"[n // 5])
        folder.mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / f"{n}.{'png' if n % 2 else 'bmp'}")
    stored = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    data = load(f"image_folder(path={str(tmp_path)!r}, size={shape}, crop=1.0, mirror=False)")
    assert torch.equal(data.test.images[:], stored[[4, 9]])
    trained = torch.cat([images for images, _ in data.train.batches([torch.arange(3), torch.arange(3, 8)])])
    assert torch.equal(trained, stored[[0, 1, 2, 3, 5, 6, 7, 8]])
    torch.manual_seed(0)
    (cropped, _), *_ = load(f"image_folder(path={str(tmp_path)!r}, size={shape})").train.batches([torch.arange(8)])
    assert not (cropped == trained).all((1, 2, 3)).any()
    smaller = load(f"image_folder(path={str(tmp_path)!r}, size=({shape[0] - 1}, {shape[1]}))").test.images[:]
    assert smaller.shape[2:] == (shape[0] - 1, shape[1]) and not torch.equal(
        smaller[:, :, 1:-1], stored[[4, 9], :, 1:-2]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "is not a folder"),
        ("path='no/such/folder'", "is not a folder"),
        ("path={plain!r}, crop=0.0", "a fraction above 0"),
        ("path={plain!r}, size=(0, 8)", "a size from 1"),
        ("path={empty!r}", "has no folders"),
        ("path={textual!r}", "found no training images"),
        ("path={strange!r}", "has 'fox', which"),
        ("path={half!r}", "has a folder train but none named val or"),
        ("path={alone!r}", "has one folder, class, and so one class"),
        ("path={above!r}", "contain only folders, no images"),
        ("path={plain!r}) + permute_patches(grid=(2, 2)", "needs images in memory"),
    ],
)
def test_a_wrong_folder_gives_the_value_and_the_remedy(tree, options, message):
    for name in ("textual/class", "textual/other", "alone/class", "above/training/cat", "above/testing/cat"):
        (tree / name).mkdir(parents=True)
    (tree / "empty").mkdir()
    for name in ("strange/train/cat", "strange/train/dog", "strange/val/fox", "strange/val/dog", "half/train/cat"):
        (tree / name).mkdir(parents=True)
    names = {name: str(tree / name) for name in ("plain", "empty", "textual", "strange", "half", "alone", "above")}
    with pytest.raises(InputError, match=message):
        load(f"image_folder({options.format(**names)})")


def test_the_error_for_an_unreadable_image_names_the_file(tree):
    (tree / "plain" / "cat" / "4.png").write_bytes(b"not an image")
    data = load(f"image_folder(path={str(tree / 'plain')!r}, size=8)")
    with pytest.raises(RunError, match=r"4\.png cannot be read.*replace or delete it"):
        data.test.images[:]
