"""How often the model is right, and what it takes for what."""

from __future__ import annotations

import torch

from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result


def accuracy(ctx: EvalContext) -> Result:
    """Right answers on the test images as they are.

    accuracy: share of test images, 0 to 1, whose largest logit is their label's.
    """
    return Result({"accuracy": share(ctx.predict().argmax(1) == ctx.data.test.labels)})


def confusion(ctx: EvalContext) -> Result:
    """The confusion matrix of the test images.

    confusion: an array (classes, classes): in row i and column j the share, 0 to 1, of the test images of class i whose
    largest logit is that of class j.
    """
    count = len(ctx.data.classes)
    cells = ctx.data.test.labels * count + ctx.predict().argmax(1)
    table = torch.bincount(cells, minlength=count**2).view(count, count).double()
    return Result(arrays={"confusion": table / table.sum(1, keepdim=True)})
