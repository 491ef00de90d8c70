"""Test accuracy after each epoch of the training."""

from __future__ import annotations

import math

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result


def learning_curve(ctx: EvalContext) -> Result:
    """Accuracy on the test images after each epoch, as the training recorded it (Figure 6 of MJP; Ren et al., CVPR 2023).

    The training must have the option ``train.log_test_accuracy = true``, which changes no other number.

    accuracy by epoch: fraction of the test images, 0 to 1, that the model predicts correctly after each epoch, from 1.
    mean_accuracy: mean of this fraction over the epochs; it is larger if a model learns faster.
    """
    if not ctx.recipe.log_test_accuracy:
        raise InputError(
            "evaluation 'learning_curve' needs a training that records test accuracy; "
            "train with train.log_test_accuracy = true"
        )
    curve = {epoch["epoch"]: epoch["test_accuracy"] for epoch in ctx.log}
    mean = math.fsum(curve.values()) / len(curve) if curve else math.nan
    return Result({"mean_accuracy": mean}, curves={"accuracy": curve})
