"""Any tree of class folders with pictures, such as ImageNet's."""

from __future__ import annotations

from pathlib import Path

import torch

from vitpos.data.dataset import Dataset, Split, shortened
from vitpos.data.image_files import Pictures
from vitpos.errors import UserError
from vitpos.patches import pair

KINDS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's
TESTS = ("val", "valid", "validation", "test")


def folder(
    *,
    path: str = "",
    size: int | tuple[int, int] = 224,
    crop: float = 0.08,
    mirror: bool = True,
    fraction: float = 1.0,
    limit: int | None = None,
) -> Dataset:
    """Pictures of any kind in a tree of class folders, read when they are needed: ``folder(path='…')``.

    ``path`` has folders ``train`` and ``val`` (or ``valid``, ``validation``, ``test``), each with a folder for each
    class; or it has the classes' folders itself, and then every fifth picture of a class is for the test. Classes
    go by name. Pictures are brought to ``size`` (height, width) in colour; in training a random part of at least
    ``crop`` of a picture's area is read (``crop=1.0``: as in the test), mirrored half of the time if ``mirror``.
    ``fraction`` of the training images, or so many at most (``limit``), drawn once.
    """
    root = Path(path).expanduser()
    if not path or not root.is_dir():
        raise UserError(
            f"data 'folder' got path={path!r}, which is no folder; give one that has a folder for each class"
        )
    if not 0 < crop <= 1 or min(pair(size)) < 1:
        raise UserError(f"data 'folder' got size={size}, crop={crop}; take a size from 1 and a share above 0 up to 1")
    test = next((root / name for name in TESTS if (root / name).is_dir()), None)
    halves = (root / "train").is_dir(), test is not None
    if any(halves) and not all(halves):
        has, lacks = ("train", " or ".join(TESTS)) if halves[0] else (test.name if test else "", "train")
        raise UserError(f"data 'folder': {root} has a folder {has} but none named {lacks}; make it, or rename {has}")
    if test:
        classes = _classes(root / "train")
        strangers = sorted(set(_classes(test)) - set(classes))
        if strangers:
            raise UserError(
                f"data 'folder': {test} has {strangers[0]!r}, which {root / 'train'} has not; add or remove it"
            )
        train_files, test_files = ({name: _files(half / name) for name in classes} for half in (root / "train", test))
    else:
        classes = _classes(root)
        every = {name: _files(root / name) for name in classes}
        train_files = {name: [f for n, f in enumerate(files) if n % 5 != 4] for name, files in every.items()}
        test_files = {name: files[4::5] for name, files in every.items()}
    data = Dataset(
        train=_split(train_files, "training", pair(size), crop, mirror),
        test=_split(test_files, "test", pair(size), crop, mirror),
        classes=tuple(classes),
        mean=MEAN,
        std=STD,
    )
    return shortened(data, fraction, limit)


def _split(found: dict[str, list[Path]], purpose: str, size: tuple[int, int], crop: float, mirror: bool) -> Split:
    """The pictures of all classes, one class after the other."""
    files = tuple(file for some in found.values() for file in some)
    if not files:
        raise UserError(
            f"data 'folder' found no pictures for the {purpose}; it looks for {' '.join(sorted(KINDS))}, "
            "and without folders train and val takes every fifth of a class for the test"
        )
    labels = torch.repeat_interleave(torch.tensor([len(some) for some in found.values()]))
    return Split(Pictures(files, size, crop, mirror), labels)


def _classes(path: Path) -> list[str]:
    """The names of the class folders."""
    found = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise UserError(f"data 'folder': {path} has no folders; make one for each class")
    if len(found) == 1:
        raise UserError(
            f"data 'folder': {path} has one folder, {found[0]}, and so one class; give the folder of two or more"
        )
    inside = [entry for name in found for entry in (path / name).iterdir()]
    if any(entry.is_dir() for entry in inside) and not any(entry.suffix.lower() in KINDS for entry in inside):
        raise UserError(
            f"data 'folder': {found[0]} and the others in {path} hold only folders, no pictures; "
            "give a folder of classes, or name its halves train and val"
        )
    return found


def _files(path: Path) -> list[Path]:
    """The pictures below a class folder, in the order of their names."""
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in KINDS) if path.is_dir() else []
