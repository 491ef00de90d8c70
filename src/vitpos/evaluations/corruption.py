"""Classification error on images with ImageNet-C's corruptions: noise, blur, weather and compression."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Literal

from torch import Tensor

from vitpos.data.corruptions import CORRUPTIONS, PROCEDURAL, corrupt
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import Transform, fraction_true
from vitpos.evaluations.result import Result

ALEXNET = {  # AlexNet's errors on ImageNet-C, mean over severities, which normalize mCE (arXiv 1903.12261)
    "gaussian_noise": 0.8864,
    "shot_noise": 0.8945,
    "impulse_noise": 0.9226,
    "defocus_blur": 0.8199,
    "glass_blur": 0.8263,
    "motion_blur": 0.7859,
    "zoom_blur": 0.7984,
    "snow": 0.8668,
    "frost": 0.8266,
    "fog": 0.8193,
    "brightness": 0.5646,
    "contrast": 0.8532,
    "elastic_transform": 0.6461,
    "pixelate": 0.7178,
    "jpeg_compression": 0.6065,
}
ALEXNET_CLEAN = 0.435
SEVERITIES = (1, 2, 3, 4, 5)  # the severities that AlexNet's errors are averaged over


def corruption(
    ctx: EvalContext,
    *,
    corruptions: tuple[str, ...] | None = None,
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    parameters: Literal["imagenet", "cifar"] = "imagenet",
    max_images: int | None = None,
    seed: int = 0,
) -> Result:
    """Classification error on test images with ImageNet-C's corruptions, which are computed during the evaluation.

    error_gaussian_noise and so on: fraction of the test images, 0 to 1, that are misclassified under one corruption, mean
    over ``severities``. error by severity: mean over ``corruptions`` at each severity. error: mean over corruptions and
    severities, not normalized, as reported for CIFAR-10-C.
    error_without_frost: the same mean without frost, which is procedural here and uses photographs in ImageNet-C.
    clean_error: fraction of the same images that are misclassified without corruption.
    mce: mean over ``corruptions`` without frost of the ratio error / AlexNet's error on ImageNet-C.
    relative_mce: mean over the same corruptions of the ratio of error − clean_error to the same difference of AlexNet.
    mce and relative_mce are fractions (papers multiply them by 100) and are computed only for ``parameters="imagenet"``
    with all five severities. Compare them only with an mCE of ImageNet at 224×224 over the same 14 corruptions, and only
    roughly, because the published images use ImageMagick's motion blur and are stored as JPEG. On other data AlexNet's
    errors are mere weights.

    Args:
        corruptions: Names, such as ``("gaussian_noise", "fog")``; all fifteen by default.
        severities: Severities from 1 to 5.
        parameters: Strength of the corruptions, as in ImageNet-C or as in CIFAR-10-C.
        max_images: Number of random test images; all by default.
        seed: Seed of the sample and of the corruptions, which are the same for all models.
    """
    corruptions = tuple(CORRUPTIONS) if corruptions is None else corruptions
    _check(corruptions, severities)
    sample = ctx.sample(max_images, seed=seed)
    labels = sample.data.test.labels

    def corruption_transform(name: str, severity: int) -> Transform:
        def transform(images: Tensor, start: int) -> tuple[Tensor, None]:
            return corrupt(images, name, severity, parameters=parameters, seed=seed, start=start), None

        return transform

    predicted = sample.predict_classes({key: corruption_transform(*key) for key in product(corruptions, severities)})
    each = {key: fraction_true(classes != labels) for key, classes in predicted.items()}
    clean = fraction_true(sample.predict_logits().argmax(1) != labels)
    errors = {name: fmean(each[name, severity] for severity in severities) for name in corruptions}
    published = [name for name in corruptions if name not in PROCEDURAL]
    numbers = {f"error_{name}": errors[name] for name in corruptions}
    numbers |= {"error": fmean(errors.values()), "clean_error": clean}
    if published:
        numbers["error_without_frost"] = fmean(errors[name] for name in published)
    if published and parameters == "imagenet" and set(severities) == set(SEVERITIES):
        numbers["mce"] = fmean(errors[name] / ALEXNET[name] for name in published)
        numbers["relative_mce"] = fmean((errors[name] - clean) / (ALEXNET[name] - ALEXNET_CLEAN) for name in published)
    by_severity = {float(s): fmean(each[name, s] for name in corruptions) for s in sorted(severities)}
    return Result(numbers, curves={"error": by_severity})


def _check(corruptions: tuple[str, ...], severities: tuple[int, ...]) -> None:
    unknown = [name for name in corruptions if name not in CORRUPTIONS]
    if unknown or not corruptions or len(set(corruptions)) < len(corruptions):
        raise InputError(
            f"evaluation 'corruption' got corruptions={corruptions}; choose some of {', '.join(CORRUPTIONS)}, each once"
        )
    if not severities or not set(severities) <= set(SEVERITIES) or len(set(severities)) < len(severities):
        raise InputError(f"evaluation 'corruption' got severities={severities}; choose some of 1 to 5, each once")
