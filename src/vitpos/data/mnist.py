"""MNIST, all 70,000 images, inside the package (see MNIST-LICENSE.md)."""

from __future__ import annotations

import hashlib
import lzma
from functools import cache
from pathlib import Path

import numpy as np
import torch

from vitpos.data.dataset import Dataset, Split, take_subset
from vitpos.errors import RunError

ARCHIVE = Path(__file__).with_name("mnist.xz")
PARTS = {  # name: bytes of the IDX header, shape, md5 of the published IDX file
    "train-images": (16, (60000, 1, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels": (8, (60000,), "a25bea736e30d166cdddb491f175f624"),
    "t10k-images": (16, (10000, 1, 28, 28), "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels": (8, (10000,), "27ae3e4e09519cfbb04c329615203637"),
}


def mnist(*, fraction: float = 1.0, limit: int | None = None, test_limit: int | None = None) -> Dataset:
    """Handwritten digits 0–9, 28×28 grayscale: 60,000 training and 10,000 test images, inside the package.

    Args:
        fraction: Fraction of the training images; the same random sample in every run.
        limit: Maximum number of training images.
        test_limit: Maximum number of test images.
    """
    return take_subset(_full(), fraction, limit, test_limit)


@cache
def _full() -> Dataset:
    parts = {name: torch.from_numpy(array) for name, array in read(ARCHIVE).items()}
    return Dataset(
        train=Split(parts["train-images"], parts["train-labels"].long()),
        test=Split(parts["t10k-images"], parts["t10k-labels"].long()),
        classes=tuple("0123456789"),
        mean=(0.1307,),
        std=(0.3081,),
    )


def read(archive: Path) -> dict[str, np.ndarray]:
    """Unpacks the MNIST archive of the package: returns a dictionary of four uint8 arrays.

    These are ``train-images`` (60000, 1, 28, 28), ``train-labels`` (60000,), ``t10k-images`` (10000, 1, 28, 28) and
    ``t10k-labels`` (10000,), where t10k is the test split. Each is checked against its published hash.
    """
    remedy = "reinstall vitpos (pip install --force-reinstall)"
    try:
        raw = bytearray(lzma.decompress(archive.read_bytes()))
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise RunError(f"the MNIST file {archive.name} inside the package cannot be read ({error}); {remedy}") from None
    parts, start = {}, 0
    for name, (header, shape, md5) in PARTS.items():
        end = start + header + int(np.prod(shape))
        if hashlib.md5(memoryview(raw)[start:end], usedforsecurity=False).hexdigest() != md5:
            raise RunError(
                f"the MNIST file {archive.name} inside the package is damaged ({name} has another md5); {remedy}"
            )
        parts[name] = np.frombuffer(raw, np.uint8)[start + header : end].reshape(shape)
        start = end
    return parts


class BundledFiles:
    """The MNIST archive inside the package, from which MNIST is read; nothing is downloaded.

    It has the methods of :class:`~vitpos.data.download.CachedFiles`, the downloaded files of other data sets.
    """

    folder = ARCHIVE.parent
    md5 = (ARCHIVE.name,)  # the hashes of its parts are in PARTS
    sources = ()
    present = True

    def problems(self) -> list[str]:
        """Returns one line of text per damaged file; an empty list if there is none."""
        try:
            read(ARCHIVE)
        except RunError as error:
            return [str(error)]
        return []

    def read(self, on_progress: object = None) -> dict[str, np.ndarray]:
        """Returns the arrays ``train-images``, ``train-labels``, ``t10k-images`` and ``t10k-labels`` as a dictionary.

        ``on_progress`` is not called, because nothing is downloaded.
        """
        return read(ARCHIVE)


FILES = BundledFiles()
