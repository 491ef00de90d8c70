"""Classification error on images with ImageNet-C's corruptions: noise, blur, weather and compression."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Literal

from torch import Tensor

from vitpos.data.corruptions import CORRUPTIONS, PROCEDURAL, corrupt
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import Transform, share
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
ALL = (1, 2, 3, 4, 5)  # the severities that AlexNet's errors are averaged over


def corruption(
    ctx: EvalContext,
    *,
    kinds: tuple[str, ...] | None = None,
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    parameters: Literal["imagenet", "cifar"] = "imagenet",
    limit: int | None = None,
    seed: int = 0,
) -> Result:
    """Classification error on test images with ImageNet-C's corruptions, which are computed during the evaluation.

    error_gaussian_noise and so on: fraction of the test images, 0 to 1, that are misclassified under one corruption, mean
    over ``severities``. error by severity: mean over ``kinds`` at each severity. error: mean over kinds and severities,
    not normalized, as reported for CIFAR-10-C.
    error_without_frost: the same mean without frost, which is procedural here and uses photographs in ImageNet-C.
    clean_error: fraction of the same images that are misclassified without corruption.
    mce: mean over ``kinds`` without frost of the error divided by AlexNet's error on ImageNet-C.
    relative_mce: mean over the same kinds of error − clean_error, divided by the same difference of AlexNet.
    Both are fractions (papers multiply them by 100) and are computed only for ``parameters="imagenet"`` with all five
    severities. Compare them only with an mCE of ImageNet at 224×224 over the same 14 kinds, and only roughly, because the
    published images use ImageMagick's motion blur and are stored as JPEG. On other data AlexNet's errors are mere weights.

    Args:
        kinds: Names of corruptions, such as ``("gaussian_noise", "fog")``; all fifteen by default.
        severities: Severities from 1 to 5.
        parameters: Strength of the corruptions, as in ImageNet-C or as in CIFAR-10-C.
        limit: Number of random test images; all by default.
        seed: Seed of the sample and of the corruptions, which are the same for all models.
    """
    kinds = tuple(CORRUPTIONS) if kinds is None else kinds
    _check(kinds, severities)
    sample = ctx.sample(limit, seed=seed)
    labels = sample.data.test.labels

    def corruption_of(kind: str, severity: int) -> Transform:
        def transform(images: Tensor, start: int) -> tuple[Tensor, None]:
            return corrupt(images, kind, severity, parameters=parameters, seed=seed, start=start), None

        return transform

    predicted = sample.predict_classes({key: corruption_of(*key) for key in product(kinds, severities)})
    each = {key: share(classes != labels) for key, classes in predicted.items()}
    clean = share(sample.predict().argmax(1) != labels)
    errors = {kind: fmean(each[kind, severity] for severity in severities) for kind in kinds}
    published = [kind for kind in kinds if kind not in PROCEDURAL]
    numbers = {f"error_{kind}": errors[kind] for kind in kinds}
    numbers |= {"error": fmean(errors.values()), "clean_error": clean}
    if published:
        numbers["error_without_frost"] = fmean(errors[kind] for kind in published)
    if published and parameters == "imagenet" and set(severities) == set(ALL):
        numbers["mce"] = fmean(errors[kind] / ALEXNET[kind] for kind in published)
        numbers["relative_mce"] = fmean((errors[kind] - clean) / (ALEXNET[kind] - ALEXNET_CLEAN) for kind in published)
    by_severity = {float(s): fmean(each[kind, s] for kind in kinds) for s in sorted(severities)}
    return Result(numbers, curves={"error": by_severity})


def _check(kinds: tuple[str, ...], severities: tuple[int, ...]) -> None:
    unknown = [kind for kind in kinds if kind not in CORRUPTIONS]
    if unknown or not kinds or len(set(kinds)) < len(kinds):
        raise InputError(
            f"evaluation 'corruption' got kinds={kinds}; choose some of {', '.join(CORRUPTIONS)}, each once"
        )
    if not severities or not set(severities) <= set(ALL) or len(set(severities)) < len(severities):
        raise InputError(f"evaluation 'corruption' got severities={severities}; choose some of 1 to 5, each once")
