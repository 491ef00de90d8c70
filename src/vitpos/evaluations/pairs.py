"""Accuracy on the test images of two classes, among all logits and among two."""

from __future__ import annotations

import torch

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.predict import share
from vitpos.evaluations.result import Result


def pairs(ctx: EvalContext, *, classes: tuple[int, int] = (6, 9)) -> Result:
    """Accuracy of a model of all classes on the test images of two similar classes.

    all_classes: fraction of these images, 0 to 1, whose largest logit among all classes is that of their label.
    two_logits: fraction of these images whose logit of their label exceeds that of the other class (chance: one half).
    For a model that is trained on the two classes only, use ``accuracy`` with ``data + classes(keep=…)``.

    Args:
        classes: Numbers of the two classes.
    """
    data = ctx.data
    first, second = classes
    if not 0 <= min(classes) < max(classes) < len(data.classes):
        raise InputError(f"evaluation 'pairs' got classes {classes}; choose two from 0 to {len(data.classes) - 1}")
    of_pair = torch.isin(data.test.labels, torch.tensor(classes))
    logits, labels = ctx.predict()[of_pair], data.test.labels[of_pair]
    chosen = torch.where(logits[:, first] > logits[:, second], first, second)
    return Result({"all_classes": share(logits.argmax(1) == labels), "two_logits": share(chosen == labels)})
