"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017; MIT license)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import torch

from vitpos.data.dataset import Dataset, Split, take_subset
from vitpos.data.download import CachedFiles
from vitpos.data.download_clients import HttpSource, debian, gz, tar

ADDRESS = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def fashion_mnist(*, fraction: float = 1.0, limit: int | None = None, test_limit: int | None = None) -> Dataset:
    """Articles of clothing in ten classes, 28×28 grayscale: 60,000 training and 10,000 test images, downloaded once.

    Args:
        fraction: Fraction of the training images; the same random sample in every run.
        limit: Maximum number of training images.
        test_limit: Maximum number of test images.
    """
    return take_subset(_full(), fraction, limit, test_limit)


def unpack_debian(file: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of the data files in the Debian package, each decompressed by gzip.

    Args:
        file: File name of the package.
        archive: Content of its ``data.tar``.
    """
    for name, content in tar(file, archive):
        if name.removesuffix(".gz") in MD5:
            yield from gz(name, content)


FILES = CachedFiles(
    "fashion_mnist",
    MD5,
    (
        HttpSource(tuple(f"{ADDRESS}/{name}.gz" for name in MD5), gz),
        debian("dataset-fashion-mnist", 30_900_652, unpack_debian),
    ),
)


@cache
def _full() -> Dataset:
    content = FILES.read()

    def split(name: str) -> Split:
        images = np.frombuffer(bytearray(content[f"{name}-images-idx3-ubyte"]), np.uint8, offset=16)
        labels = np.frombuffer(bytearray(content[f"{name}-labels-idx1-ubyte"]), np.uint8, offset=8)
        return Split(torch.from_numpy(images).view(-1, 1, 28, 28), torch.from_numpy(labels).long())

    return Dataset(split("train"), split("t10k"), CLASSES, mean=(0.2860,), std=(0.3530,))
