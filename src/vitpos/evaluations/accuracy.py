"""Accuracy on the unchanged test images: of all classes, of two classes, and as a confusion matrix."""

from __future__ import annotations

import torch

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import fraction_true
from vitpos.evaluations.result import Result
from vitpos.metrics.classification import confusion_matrix


def accuracy(ctx: EvalContext) -> Result:
    """Accuracy on the unchanged test images.

    accuracy: fraction of the test images, 0 to 1, whose largest logit is that of their label.
    """
    return Result({"accuracy": fraction_true(ctx.predict_logits().argmax(1) == ctx.data.test.labels)})


def confusion(ctx: EvalContext) -> Result:
    """Confusion matrix of the test images.

    confusion: array (classes, classes); row i, column j is the fraction, 0 to 1, of the test images of class i that are
    predicted as class j.
    """
    counts = confusion_matrix(ctx.data.test.labels, ctx.predict_logits().argmax(1), len(ctx.data.classes)).double()
    return Result(arrays={"confusion": counts / counts.sum(1, keepdim=True)})


def two_class(ctx: EvalContext, *, classes: tuple[int, int] = (6, 9)) -> Result:
    """Accuracy of a model of all classes on the test images of two similar classes.

    accuracy_all: fraction of these images, 0 to 1, whose largest logit among all classes is that of their label.
    accuracy_pair: fraction of these images whose logit of their label exceeds that of the other class (chance: one half).
    For a model that is trained on the two classes only, use ``accuracy`` with ``data + classes(keep=…)``.

    Args:
        classes: Numbers of the two classes.
    """
    data = ctx.data
    first, second = classes
    if not 0 <= min(classes) < max(classes) < len(data.classes):
        raise InputError(f"evaluation 'two_class' got classes {classes}; choose two from 0 to {len(data.classes) - 1}")
    selected = torch.isin(data.test.labels, torch.tensor(classes))
    logits, labels = ctx.predict_logits()[selected], data.test.labels[selected]
    of_pair = torch.where(logits[:, first] > logits[:, second], first, second)
    return Result(
        {"accuracy_all": fraction_true(logits.argmax(1) == labels), "accuracy_pair": fraction_true(of_pair == labels)}
    )
