"""Pictures of things that the model has never seen: is it less sure of them, and sure of what it has seen by right?"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from vitpos.data import DATASETS
from vitpos.data.dataset import Dataset, load
from vitpos.data.image_ops import to_shape
from vitpos.errors import UserError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result
from vitpos.metrics.classification import (
    average_precision,
    calibration_error,
    fpr_at_recall,
    response_rate_accuracy,
    roc_auc,
)


def outliers(
    ctx: EvalContext,
    *,
    against: str = "fashion_mnist",
    classes: tuple[int, ...] | None = None,
    limit: int | None = None,
) -> Result:
    """Whether little confidence gives away pictures of another data set (as with ImageNet-O), and how far it is deserved
    on the model's own test images (as with ImageNet-A).

    Confidence is the largest softmax probability; the less of it, the more a picture is taken for an outlier.
    aupr: average precision at finding the outliers, with no interpolation; aupr_chance: what it is for a confidence that
    says nothing, the share of outliers among all pictures. auroc: how often an outlier has less confidence than a test
    image (chance: one half). fpr95: share of the test images with no more confidence than the threshold that finds 95 %
    of the outliers.
    accuracy: share of the test images, 0 to 1, answered rightly. aurra: area under the response rate accuracy curve, the
    mean over k of the accuracy on the k most confident images. calibration_error: root mean square, over bins of 100 test
    images in the order of their confidence, of mean confidence − accuracy, without the last bin, of the most confident,
    as in the published code (for fewer than 200 images there is none); calibration_error_whole: with it.
    ``against``: another data set, or other classes of the same, whose test images are the outliers, shown in the shape of
    the model's pictures (stretched; grey or colour as these are) and normalised as these. ``classes``: only these logits
    and only test images of these classes count. ``limit``: so many outliers at most, drawn once; there are never more
    than test images.
    """
    data = ctx.data
    wanted = tuple(range(len(data.classes))) if classes is None else classes
    if not wanted or not set(wanted) <= set(range(len(data.classes))) or len(set(wanted)) < len(wanted):
        raise UserError(
            f"evaluation 'outliers' got classes {classes}; choose different ones from 0 to {len(data.classes) - 1}"
        )
    other, most, chosen = load(against), len(data.test), torch.tensor(wanted)
    if _alike(data, other):
        raise UserError(
            f"evaluation 'outliers' got against={against!r}, which is the model's own data; choose another set, "
            "or classes of it that the model does not know, as in 'mnist + classes(keep=(6, 9))'"
        )
    strange = other.sample_test(most if limit is None else min(limit, most)).test

    def show(images: Tensor, start: int) -> tuple[Tensor, None]:
        return to_shape(images, data.shape), None

    doubted = _confidence(replace(ctx, data=replace(data, test=strange)).predict(show), chosen)[0]
    own = torch.isin(data.test.labels, chosen)
    sure, answers = (x[own] for x in _confidence(ctx.predict(), chosen))
    right = answers == data.test.labels[own]
    doubt = -torch.cat([doubted, sure])
    outlier = torch.arange(len(doubt)) < len(doubted)
    return Result(
        {
            "aupr": average_precision(doubt, outlier),
            "aupr_chance": share(outlier),
            "auroc": roc_auc(doubt, outlier),
            "fpr95": fpr_at_recall(doubt, outlier),
            "accuracy": share(right),
            "aurra": response_rate_accuracy(sure, right),
            "calibration_error": calibration_error(sure, right),
            "calibration_error_whole": calibration_error(sure, right, all_bins=True),
        }
    )


def _alike(data: Dataset, other: Dataset) -> bool:
    """Whether two data sets come from one and have classes in common."""
    if not data.spec or not set(data.classes) & set(other.classes):
        return False
    one, two = (DATASETS.parse(each.spec)[0] for each in (data, other))
    return (one.name, one.options.get("path")) == (two.name, two.options.get("path"))


def _confidence(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """The largest probability among some classes (n,), and the class that has it."""
    best = logits[:, classes].double().softmax(1).max(1)
    return best.values, classes[best.indices]
