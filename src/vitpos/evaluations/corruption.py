"""Pictures under noise, blur, weather and bad compression."""

from __future__ import annotations

from itertools import product
from statistics import fmean
from typing import Literal

from torch import Tensor

from vitpos.data.corruptions import CORRUPTIONS, PROCEDURAL, corrupt
from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import Change, answers, predict, share
from vitpos.models.base import Classifier

ALEXNET = {  # errors on ImageNet-C, means over severities, that other models' errors are divided by (1903.12261)
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
ALL = (1, 2, 3, 4, 5)  # the severities that AlexNet's errors are means of


def corruption(
    model: Classifier,
    data: Dataset,
    *,
    kinds: tuple[str, ...] | None = None,
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    parameters: Literal["imagenet", "cifar"] = "imagenet",
    limit: int | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Wrong answers on test images under ImageNet-C's corruptions, made on the spot.

    error_gaussian_noise and so on: share of the test images, 0 to 1, whose largest logit is not their label's, mean over
    ``severities``. error_severity_1 and so on: mean over ``kinds``. error: mean over both, not normalised, which is what
    CIFAR-10-C is reported by.
    error_without_frost: the same without frost, which is procedural here and photographs in the originals.
    clean_error: share of the same images that are taken wrongly as they are.
    mce: mean over ``kinds``, frost left out, of the error divided by AlexNet's on ImageNet-C; relative_mce: of the error
    above clean_error divided by AlexNet's above its own. Both are shares (published: times 100), and both are given for
    ``parameters="imagenet"`` with all five severities alone. They can be set beside a published mCE only for ImageNet at
    224×224, only as a mean over the same 14 kinds, never with frost, and roughly, as the published pictures were slid by
    ImageMagick and stored as JPEG; elsewhere AlexNet's errors are mere weights.
    ``kinds``: gaussian_noise, fog and so on; without it, all fifteen.
    ``parameters``: how strong the corruptions are, as for ImageNet-C or as for CIFAR-10-C. ``limit``: so many test images,
    drawn by ``seed``; without it, all. Corruptions depend on ``seed`` alone, so that all models see the same.
    """
    kinds = tuple(CORRUPTIONS) if kinds is None else kinds
    _check(kinds, severities)
    few = data.sample_test(limit, seed=seed)

    def under(kind: str, severity: int) -> Change:
        def change(images: Tensor, start: int) -> tuple[Tensor, None]:
            return corrupt(images, kind, severity, parameters=parameters, seed=seed, start=start), None

        return change

    told = answers(model, few, {both: under(*both) for both in product(kinds, severities)})
    each = {both: share(found != few.test.labels) for both, found in told.items()}
    clean = share(predict(model, few).argmax(1) != few.test.labels)
    errors = {kind: fmean(each[kind, severity] for severity in severities) for kind in kinds}
    published = [kind for kind in kinds if kind not in PROCEDURAL]
    found = {f"error_{kind}": errors[kind] for kind in kinds}
    found |= {f"error_severity_{s}": fmean(each[kind, s] for kind in kinds) for s in sorted(severities)}
    found |= {"error": fmean(errors.values()), "clean_error": clean}
    if published:
        found["error_without_frost"] = fmean(errors[kind] for kind in published)
    if published and parameters == "imagenet" and set(severities) == set(ALL):
        found["mce"] = fmean(errors[kind] / ALEXNET[kind] for kind in published)
        found["relative_mce"] = fmean((errors[kind] - clean) / (ALEXNET[kind] - ALEXNET_CLEAN) for kind in published)
    return found


def _check(kinds: tuple[str, ...], severities: tuple[int, ...]) -> None:
    unknown = [kind for kind in kinds if kind not in CORRUPTIONS]
    if unknown or not kinds or len(set(kinds)) < len(kinds):
        raise UserError(
            f"evaluation 'corruption' got kinds={kinds}; choose some of {', '.join(CORRUPTIONS)}, each once"
        )
    if not severities or not set(severities) <= set(ALL) or len(set(severities)) < len(severities):
        raise UserError(f"evaluation 'corruption' got severities={severities}; choose some of 1 to 5, each once")
