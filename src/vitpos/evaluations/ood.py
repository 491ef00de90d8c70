"""Out-of-distribution detection by confidence, and calibration of the confidence on the test images."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from vitpos.data import DATASETS
from vitpos.data.dataset import Dataset, load
from vitpos.data.image_ops import to_shape
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import fraction_true
from vitpos.evaluations.result import Result
from vitpos.metrics.calibration import calibration_error, response_rate_accuracy
from vitpos.metrics.classification import average_precision, fpr_at_recall, roc_auc


def ood(
    ctx: EvalContext,
    *,
    dataset: str = "fashion_mnist",
    classes: tuple[int, ...] | None = None,
    max_images: int | None = None,
) -> Result:
    """Out-of-distribution detection by confidence, and calibration of the confidence on the test images.

    The metrics are those of ImageNet-O (detection) and ImageNet-A (calibration). Confidence is the largest softmax
    probability; images of another data set, the outliers, should have less of it than the test images.
    aupr: average precision of detecting the outliers by low confidence, without interpolation. aupr_baseline: the same for
    random confidence, which is the fraction of outliers among all images. auroc: probability that an outlier has less
    confidence than a test image (chance: one half). fpr95: fraction of the test images that are detected as outliers at
    the threshold that detects 95 % of the outliers.
    accuracy: fraction of the test images, 0 to 1, that are predicted correctly.
    aurra: area under the response rate accuracy curve, the mean over k of the accuracy on the k most confident test images.
    calibration_error: root mean square of mean confidence − accuracy over bins of 100 test images, sorted by confidence.
    The last bin, of the most confident images, is left out as in the published code, so that fewer than 200 images give
    no value. calibration_error_all_bins: the same with the last bin.

    Args:
        dataset: Spec of the data set whose test images are the outliers: another data set, or other classes of the same
            one, as in ``"mnist + classes(keep=(6, 9))"``. Its images are resized to the model's image size, converted to
            its number of channels, and normalized like the test images.
        classes: Numbers of the classes whose logits and test images are used; all by default.
        max_images: Maximum number of outliers, a random sample; never more than there are test images.
    """
    data = ctx.data
    wanted = tuple(range(len(data.classes))) if classes is None else classes
    if not wanted or not set(wanted) <= set(range(len(data.classes))) or len(set(wanted)) < len(wanted):
        raise InputError(
            f"evaluation 'ood' got classes {classes}; choose different ones from 0 to {len(data.classes) - 1}"
        )
    other, count, chosen = load(dataset), len(data.test), torch.tensor(wanted)
    if _overlaps(data, other):
        raise InputError(
            f"evaluation 'ood' got dataset={dataset!r}, which is the model's own data; choose another set, "
            "or classes of it that the model was not trained on, as in 'mnist + classes(keep=(6, 9))'"
        )
    outlier_split = other.sample_test(count if max_images is None else min(max_images, count)).test

    def convert(images: Tensor, start: int) -> tuple[Tensor, None]:
        return to_shape(images, data.shape), None

    outlier_confidence = _confidence(
        replace(ctx, data=replace(data, test=outlier_split)).predict_logits(convert), chosen
    )[0]
    selected = torch.isin(data.test.labels, chosen)
    confidence, predicted = (x[selected] for x in _confidence(ctx.predict_logits(), chosen))
    correct = predicted == data.test.labels[selected]
    score = -torch.cat([outlier_confidence, confidence])
    is_outlier = torch.arange(len(score)) < len(outlier_confidence)
    return Result(
        {
            "aupr": average_precision(score, is_outlier),
            "aupr_baseline": fraction_true(is_outlier),
            "auroc": roc_auc(score, is_outlier),
            "fpr95": fpr_at_recall(score, is_outlier),
            "accuracy": fraction_true(correct),
            "aurra": response_rate_accuracy(confidence, correct),
            "calibration_error": calibration_error(confidence, correct),
            "calibration_error_all_bins": calibration_error(confidence, correct, all_bins=True),
        }
    )


def _overlaps(data: Dataset, other: Dataset) -> bool:
    """Returns whether two data sets have a class in common and are parts of the same set, such as MNIST.

    Images of ``other`` are then no outliers for ``data``.
    """
    if not data.spec or not set(data.classes) & set(other.classes):
        return False
    one, two = (DATASETS.parse(each.spec)[0] for each in (data, other))
    return (one.name, one.options.get("path")) == (two.name, two.options.get("path"))


def _confidence(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the largest softmax probability (n,) of each image, and the class (n,) that has it.

    The softmax is over the columns ``classes`` (k,) of ``logits`` (n, number of all classes); other classes are ignored.
    """
    best = logits[:, classes].double().softmax(1).max(1)
    return best.values, classes[best.indices]
