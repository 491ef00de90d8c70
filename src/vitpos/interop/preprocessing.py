"""How a checkpoint wants its test images: size, crop, interpolation, mean and standard deviation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError
from vitpos.interop.hub_access import hub_access
from vitpos.printable import sanitize
from vitpos.regular_files import read_regular

PREPROCESSOR, MAX_BYTES = "preprocessor_config.json", 1 << 20
Numbers = tuple[float, ...]
RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
WHITE = 255  # largest pixel value of an image file
MAX_SIDE = 4096  # pixels; larger sizes in a configuration are ignored
SHORTEST_EDGE = (
    "Bit",
    "CLIP",
    "ChineseCLIP",
    "Levit",
    "MobileNet",
)  # processors whose ``size`` can be that of this edge


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing that a checkpoint's own configuration states; None for what it does not state.

    Args:
        source: Name of the configuration.
        size: Height and width of the images.
        mean: Mean of each channel, of pixel values from 0 to 1.
        std: Standard deviation of each channel.
        crop: Side of the center crop, as a fraction of the largest crop that fits into the image.
        keep_aspect: Whether the crop has the aspect ratio of ``size``.
        interpolation: Name of the interpolation.
    """

    source: str = ""
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: float | None = None
    keep_aspect: bool | None = None
    interpolation: str | None = None

    @property
    def timm_config(self) -> dict[str, Any]:
        """Returns the entries of timm's ``pretrained_cfg`` for what is stated."""
        mode = None if self.keep_aspect is None else "center" if self.keep_aspect else "squash"
        found = {"mean": self.mean, "std": self.std, "crop_pct": self.crop, "interpolation": self.interpolation}
        return {name: value for name, value in (found | {"crop_mode": mode}).items() if value is not None}

    def huggingface_config(self, size: tuple[int, int]) -> dict[str, Any]:
        """Returns the content of a ``preprocessor_config.json`` for images of ``size``; {} if nothing is stated.

        A center crop needs square images, as in ``BitImageProcessor``; otherwise images are resized without a crop.
        """
        found: dict[str, Any] = {}
        if self.mean is not None and self.std is not None:
            found = {"do_normalize": True, "image_mean": self.mean, "image_std": self.std, "do_rescale": True}
        if self.interpolation is not None:
            found["resample"] = next(n for n, name in RESAMPLE.items() if name == self.interpolation)
        sides = {"height": size[0], "width": size[1]}
        if self.crop is not None and self.keep_aspect is not False and size[0] == size[1]:
            found |= {"image_processor_type": "BitImageProcessor", "do_resize": True, "do_center_crop": True}
            found |= {"size": {"shortest_edge": round(size[0] / self.crop)}, "crop_size": sides}
        elif found:
            found |= {"image_processor_type": "ViTImageProcessor", "do_resize": True, "size": sides}
        return found

    @property
    def folder_options(self) -> dict[str, Any]:
        """Returns the options of ``image_folder`` that the configuration states, besides the size."""
        options = {"test_crop": self.crop, "keep_aspect": self.keep_aspect, "interpolation": self.interpolation}
        return {name: value for name, value in options.items() if value is not None}


def timm_preprocessing(config: Any, source: str) -> Preprocessing:
    """Returns the preprocessing of timm's ``pretrained_cfg``; values of another form are ignored.

    Size and crop are those of the training, as in timm's ``resolve_model_data_config``, not ``test_input_size``.

    Args:
        config: The ``pretrained_cfg``, which may be from an untrusted file.
        source: Name of the configuration, for the user.
    """
    config = _mapping(config)
    size = config.get("input_size")
    crop = _number(config.get("crop_pct"))
    mode = config.get("crop_mode")
    interpolation = config.get("interpolation")
    return Preprocessing(
        source,
        _size(size[1:]) if isinstance(size, list | tuple) else None,
        *_mean_and_std(config.get("mean"), config.get("std")),
        crop=crop if crop is not None and 0 < crop <= 1 else None,
        keep_aspect=mode != "squash" if isinstance(mode, str) else None,
        interpolation=interpolation if interpolation in RESAMPLE.values() else None,
    )


def huggingface_preprocessing(config: Any, source: str) -> Preprocessing:
    """Returns the preprocessing of a ``preprocessor_config.json``; values of another form are ignored.

    Args:
        config: The content of that file, which is untrusted.
        source: Its name, for the user.
    """
    config = _mapping(config)
    resized, cropped = _sides(config.get("size")), _sides(config.get("crop_size"))
    crops = config.get("do_center_crop") is True and cropped is not None
    size = cropped if crops else resized
    crop = min(size[0] / resized[0], 1.0) if size and resized else None
    kind = config.get("image_processor_type") or config.get("feature_extractor_type") or ""
    by_edge = crops and (not kind or str(kind).startswith(SHORTEST_EDGE))
    keeps = by_edge if type(config.get("size")) is int else "shortest_edge" in _mapping(config.get("size"))
    normalizes = config.get("do_normalize", True) is True
    channels = config.get("image_mean")
    count = len(channels) if isinstance(channels, list | tuple) else 3
    mean, std = (config.get("image_mean"), config.get("image_std")) if normalizes else ([0.0] * count, [1.0] * count)
    factor = _number(config.get("rescale_factor", 1 / WHITE)) if config.get("do_rescale", True) is True else 1.0
    resample = config.get("resample")
    return Preprocessing(
        source,
        size,
        *_rescaled(*_mean_and_std(mean, std), factor),
        crop=crop,
        keep_aspect=keeps if size else None,
        interpolation=RESAMPLE.get(resample) if type(resample) is int else None,
    )


def stored_preprocessing(config: Any, source: str) -> Preprocessing:
    """Returns the preprocessing that a weights file of vitpos states, without the size; values of another form are ignored.

    Args:
        config: The fields of `Preprocessing` as the file states them; they are untrusted.
        source: Name of the file, for the user.
    """
    config = _mapping(config)
    crop, keeps, interpolation = _number(config.get("crop")), config.get("keep_aspect"), config.get("interpolation")
    return Preprocessing(
        source,
        None,
        *_mean_and_std(config.get("mean"), config.get("std")),
        crop=crop if crop is not None and 0 < crop <= 1 else None,
        keep_aspect=keeps if isinstance(keeps, bool) else None,
        interpolation=interpolation if interpolation in RESAMPLE.values() else None,
    )


def read_huggingface(folder: Path) -> Preprocessing:
    """Returns the preprocessing that a local folder of Hugging Face states in ``preprocessor_config.json``."""
    path = folder / PREPROCESSOR
    if not path.is_file():
        return Preprocessing()
    try:
        config = json.loads(read_regular(path, max_bytes=MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return Preprocessing()
    return huggingface_preprocessing(config, sanitize(PREPROCESSOR))


def stated_preprocessing(name: str, config: Mapping[str, Any]) -> Preprocessing:
    """Returns what a checkpoint states about its images; nothing for a file without configuration.

    Args:
        name: ``timm:NAME``, ``hf:NAME`` or a path, from which the model was opened.
        config: The configuration that `open_module` returned with the model.
    """
    if name.startswith("hf:"):
        return _hub_preprocessing(name.removeprefix("hf:"))
    if "pretrained_cfg" in config:
        return timm_preprocessing(config["pretrained_cfg"], "timm's configuration of the checkpoint")
    return read_huggingface(Path(name)) if Path(name).is_dir() else Preprocessing()


def with_normalization(data: Dataset, preprocessing: Preprocessing) -> Dataset:
    """Returns the data set with the mean and standard deviation that a checkpoint states, if it states them."""
    mean, std = preprocessing.mean, preprocessing.std
    if mean is None or std is None:
        return data
    if len(mean) != len(data.mean):
        raise InputError(
            f"the checkpoint takes images of {len(mean)} channels, and data {data.spec!r} has {len(data.mean)}; "
            "take other data"
        )
    return replace(data, mean=mean, std=std)


def _hub_preprocessing(name: str) -> Preprocessing:
    if Path(name).is_dir():
        return read_huggingface(Path(name))
    from transformers.image_processing_utils import BaseImageProcessor

    try:
        with hub_access(f"hf:{name}"):
            config, _ = BaseImageProcessor.get_image_processor_dict(name)
    except Exception:  # of the hub: any type; a model without preprocessor is usable too
        return Preprocessing()
    return huggingface_preprocessing(config, "preprocessor_config.json")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sides(value: Any) -> tuple[int, int] | None:
    """Returns height and width of a size of Hugging Face: a number or a dictionary with one or two sides."""
    if isinstance(value, Mapping):
        side = value.get("shortest_edge")
        return _size([value.get("height", side), value.get("width", side)])
    return _size(value if isinstance(value, list | tuple) else [value, value])


def _size(value: Any) -> tuple[int, int] | None:
    ok = len(value) == 2 and all(type(side) is int and 0 < side <= MAX_SIDE for side in value)
    return (value[0], value[1]) if ok else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e6 else None


def _rescaled(mean: Numbers | None, std: Numbers | None, factor: float | None) -> tuple[Numbers | None, Numbers | None]:
    """Returns mean and std, which apply to pixel values 0 to 255 times ``factor``, for pixel values from 0 to 1.

    For the x of 0 to 1, (255 · factor · x − mean) / std = (x − mean / (255 · factor)) / (std / (255 · factor)).
    """
    if mean is None or std is None or factor is None or factor <= 0 or not math.isfinite(WHITE * factor):
        return None, None
    if math.isclose(scale := WHITE * factor, 1.0, rel_tol=1e-6):  # usual: 1/255, sometimes rounded
        return mean, std
    return tuple(one / scale for one in mean), tuple(one / scale for one in std)


def _mean_and_std(mean: Any, std: Any) -> tuple[Numbers | None, Numbers | None]:
    """Returns both as tuples of numbers, or (None, None) if they are not one number per channel, stds above 0."""
    if not all(isinstance(one, list | tuple) and 0 < len(one) <= 16 for one in (mean, std)) or len(mean) != len(std):
        return None, None
    means, stds = [_number(one) for one in mean], [_number(one) for one in std]
    found, spread = [one for one in means if one is not None], [one for one in stds if one is not None and one > 1e-6]
    return (tuple(found), tuple(spread)) if len(found) == len(spread) == len(mean) else (None, None)
