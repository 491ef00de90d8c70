"""``image_folder``: a tree of class folders, such as ImageNet's; ``photographs``: six photographs of scikit-image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch

from vitpos.data.dataset import Dataset, Split, take_subset
from vitpos.data.image_files import ImageFiles
from vitpos.errors import InputError
from vitpos.patches import to_2tuple

EXTENSIONS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
TEST_NAMES = ("val", "valid", "validation", "test")
PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "retina.jpg")


def image_folder(
    *,
    path: str = "",
    size: int | tuple[int, int] = 224,
    crop: float = 0.08,
    mirror: bool = True,
    test_crop: float = 0.875,
    keep_aspect: bool = True,
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bicubic",
    fraction: float = 1.0,
    limit: int | None = None,
    test_limit: int | None = None,
) -> Dataset:
    """RGB images in a tree of class folders, decoded on demand: ``image_folder(path='…')``.

    ``path`` contains ``train`` and ``val`` (or ``valid``, ``validation``, ``test``), each with one folder per class. Or
    it contains the class folders directly; then every fifth image of a class is a test image. Classes are sorted by name.
    With ``val`` alone there are no training images, and the data can only be evaluated on.

    Args:
        path: The folder.
        size: Height and width of the result. Test images are resized and cropped at the center, as for ImageNet (256 and
            224); images that have this size already are used as they are.
        crop: Minimum area of the random crops of training images, as a fraction of the image; 1.0 reads them as test
            images.
        mirror: Mirrors training images with probability 1/2.
        test_crop: Side of the center crop of test images, as a fraction of the largest crop that fits into the image.
        keep_aspect: Whether that crop has the aspect ratio of ``size``; otherwise that of the image, which is distorted.
        interpolation: How images are resized.
        fraction: Fraction of the training images; the same random sample in every run.
        limit: Maximum number of training images.
        test_limit: Maximum number of test images.
    """
    root = Path(path).expanduser()
    if not path or not root.is_dir():
        raise InputError(
            f"data 'image_folder' got path={path!r}, which is not a folder; give one that has a folder for each class"
        )
    if not 0 < crop <= 1 or min(to_2tuple(size)) < 1:
        raise InputError(
            f"data 'image_folder' got size={size}, crop={crop}; take a size from 1 and a fraction above 0 up to 1"
        )
    if not 0 < test_crop <= 1:
        raise InputError(f"data 'image_folder' got test_crop={test_crop}; take a fraction above 0 up to 1")
    test = next((root / name for name in TEST_NAMES if (root / name).is_dir()), None)
    has_train = (root / "train").is_dir()
    if has_train and test is None:
        lacks = " or ".join(TEST_NAMES)
        raise InputError(
            f"data 'image_folder': {root} has a folder train but none named {lacks}; make it, or rename train"
        )
    if test and not has_train:
        classes = _class_names(test)
        train_files, test_files = {}, {name: _image_files(test / name) for name in classes}
    elif test:
        classes = _class_names(root / "train")
        unknown = sorted(set(_class_names(test)) - set(classes))
        if unknown:
            raise InputError(
                f"data 'image_folder': {test} has {unknown[0]!r}, which {root / 'train'} lacks; add or remove it"
            )
        train_files, test_files = (
            {name: _image_files(half / name) for name in classes} for half in (root / "train", test)
        )
    else:
        classes = _class_names(root)
        every = {name: _image_files(root / name) for name in classes}
        train_files = {name: [f for n, f in enumerate(files) if n % 5 != 4] for name, files in every.items()}
        test_files = {name: files[4::5] for name, files in every.items()}
    read = partial(
        ImageFiles,
        size=to_2tuple(size),
        crop=crop,
        mirror=mirror,
        test_crop=test_crop,
        keep_aspect=keep_aspect,
        interpolation=interpolation,
    )
    data = Dataset(
        train=_split(train_files, "training", read),
        test=_split(test_files, "test", read),
        classes=tuple(classes),
        mean=MEAN,
        std=STD,
    )
    return take_subset(data, fraction, limit, test_limit)


def photographs(*, size: int | tuple[int, int] = 224) -> Dataset:
    """Six photographs that come with scikit-image, one class each, resized to ``size`` (height, width).

    They are both the training and the test images. Use them to look at reconstructions, not to train.
    """
    if min(to_2tuple(size)) < 1:
        raise InputError(f"data 'photographs' got size={size}; take 1 or more")
    package = find_spec("skimage")
    if package is None or package.origin is None:
        raise InputError("data 'photographs' needs scikit-image, which is not installed; pip install scikit-image")
    files = tuple(Path(package.origin).parent / "data" / name for name in PHOTOGRAPHS)
    images = ImageFiles(files, to_2tuple(size), crop=1.0, mirror=False)[:]
    both = Split(images, torch.arange(len(files)))
    return Dataset(both, both, tuple(Path(name).stem for name in PHOTOGRAPHS), MEAN, STD)


def _split(by_class: dict[str, list[Path]], purpose: str, read: Callable[[tuple[Path, ...]], ImageFiles]) -> Split:
    """Returns a split of all image files, which are decoded when they are read; labels number the classes in order.

    Args:
        by_class: Class name → its image files.
        purpose: Name of the split, for error messages.
        read: Returns the `ImageFiles` of some files.
    """
    files = tuple(file for some in by_class.values() for file in some)
    if by_class and not files:
        raise InputError(
            f"data 'image_folder' found no {purpose} images; it looks for {' '.join(sorted(EXTENSIONS))}, "
            "and without folders train and val takes every fifth image of a class for the test"
        )
    labels = torch.repeat_interleave(torch.tensor([len(some) for some in by_class.values()], dtype=torch.long))
    return Split(read(files), labels)


def _class_names(path: Path) -> list[str]:
    """Returns the sorted names of the class folders in ``path``."""
    found = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise InputError(f"data 'image_folder': {path} has no folders; make one for each class")
    if len(found) == 1:
        raise InputError(
            f"data 'image_folder': {path} has one folder, {found[0]}, and so one class; give the folder of two or more"
        )
    entries = [entry for name in found for entry in (path / name).iterdir()]
    if any(entry.is_dir() for entry in entries) and not any(entry.suffix.lower() in EXTENSIONS for entry in entries):
        raise InputError(
            f"data 'image_folder': {found[0]} and the others in {path} contain only folders, no images; "
            "give a folder of classes, or name its splits train and val"
        )
    return found


def _image_files(path: Path) -> list[Path]:
    """Returns the sorted image files below a class folder."""
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in EXTENSIONS) if path.is_dir() else []
