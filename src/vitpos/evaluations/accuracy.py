"""Accuracy and confusion matrix on the unchanged test images."""

from __future__ import annotations

import torch

from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result


def accuracy(ctx: EvalContext) -> Result:
    """Accuracy on the unchanged test images.

    accuracy: fraction of the test images, 0 to 1, whose largest logit is that of their label.
    """
    return Result({"accuracy": share(ctx.predict().argmax(1) == ctx.data.test.labels)})


def confusion(ctx: EvalContext) -> Result:
    """Confusion matrix of the test images.

    confusion: array (classes, classes); row i, column j is the fraction, 0 to 1, of the test images of class i that are
    predicted as class j.
    """
    count = len(ctx.data.classes)
    cells = ctx.data.test.labels * count + ctx.predict().argmax(1)
    table = torch.bincount(cells, minlength=count**2).view(count, count).double()
    return Result(arrays={"confusion": table / table.sum(1, keepdim=True)})
