"""Fits a data set to a checkpoint of another library: size and cropping of the images, and classes."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from vitpos.data import DATASETS
from vitpos.data.dataset import Dataset, Split, load
from vitpos.errors import InputError
from vitpos.interop.class_names import OutputNames
from vitpos.interop.preprocessing import Preprocessing
from vitpos.models.image_limits import check_image_size
from vitpos.printable import sanitize
from vitpos.registry.specs import Term

MAX_RESIZED = 1 << 34  # numbers in the images of a data set that is resized in memory, one byte each


def fit_data(spec: str, shape: tuple[int, int, int], preprocessing: Preprocessing) -> str:
    """Returns the spec of a data set with the image size, crop and interpolation of a model, unless it states others.

    Args:
        spec: What the user gave, such as ``image_folder(path='…')``.
        shape: Channels, height and width of the images of the model.
        preprocessing: What the checkpoint states.
    """
    terms = DATASETS.parse(spec)
    check_image_size("the checkpoint", shape[1:], channels=shape[0])
    size: int | tuple[int, int] = shape[1] if shape[1] == shape[2] else shape[1:]
    first = terms[0]
    options = DATASETS.describe(first.name).options
    if "size" in options:
        first.options.setdefault("size", size)
    elif "resize" not in {term.name for term in terms} and (data := load(spec)).shape[1:] != shape[1:]:
        count = len(data.train) + len(data.test)
        if count * data.shape[0] * math.prod(shape[1:]) > MAX_RESIZED:
            raise InputError(
                f"the checkpoint takes images of {shape[1]}×{shape[2]} pixels, and {count:,} images of data {spec!r} in "
                "this size are too many for memory; add ' + subset(limit=1000, test_limit=1000)' to the data"
            )
        terms.append(Term("resize", {"size": size}))
    for name, value in preprocessing.folder_options.items():
        if name in options:
            first.options.setdefault(name, value)
    return " + ".join(map(str, terms))


def relabeled(data: Dataset, number: list[int], names: OutputNames | None) -> Dataset:
    """Returns the data set with the outputs of a model as classes.

    Args:
        number: The output of each class.
        names: Names of the outputs; None if they are the classes in order.
    """
    if names is None:
        return data
    index = torch.tensor(number)
    train, test = (Split(split.images, index[split.labels]) for split in (data.train, data.test))
    return replace(data, train=train, test=test, classes=names.shown)


def describe_images(preprocessing: Preprocessing, data: Dataset) -> str:
    """Returns a sentence on the size, normalization and cropping of the images, for the user."""
    height, width = data.shape[1:]
    stated = preprocessing.mean is not None
    mean, std = (preprocessing.mean, preprocessing.std) if stated else (data.mean, data.std)
    values = [
        f"{name} ({', '.join(f'{x:.4g}' for x in value or ())})" for name, value in (("mean", mean), ("std", std))
    ]
    origin = f"from {preprocessing.source}" if stated else "of the data set, because the checkpoint states none"
    text = f"Images: {height}×{width} pixels, {', '.join(values)}, {origin}"
    (first, *_) = DATASETS.parse(data.spec)
    if "test_crop" in (options := DATASETS.with_defaults(first)):
        fit = "" if options["keep_aspect"] else ", aspect ratio not kept"
        text += f"; center crop {options['test_crop']:.4g}, {options['interpolation']}{fit}"
    return text + "."


def describe_classes(data: Dataset, outputs: int, names: OutputNames | None) -> str:
    """Returns a sentence on how the classes of the data correspond to the outputs of the model, for the user."""
    count = len(data.classes)
    if names is None:
        return (
            f"Classes: the {count} classes of the data are the {outputs} outputs in order; the checkpoint names none."
        )
    rest = "" if count == outputs else f" The prediction is the largest of all {outputs} logits."
    return f"Classes: {count} of {outputs} outputs, by the names of {sanitize(names.source)}.{rest}"
