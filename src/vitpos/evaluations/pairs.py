"""Two classes that look alike, in two readings of one model."""

from __future__ import annotations

import torch

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import predict, share
from vitpos.models.base import Classifier


def pairs(model: Classifier, data: Dataset, *, classes: tuple[int, int] = (6, 9)) -> dict[str, float]:
    """Right answers of a model of all classes on the test images of two of them.

    all_classes: share, 0 to 1, of these images whose largest logit, among all classes, is their label's.
    two_logits: share whose logit for their label is above that for the other of the two (chance: one half).
    The third reading, a model trained on the two classes alone, is ``accuracy`` on ``data + classes(keep=…)``.
    """
    first, second = classes
    if not 0 <= min(classes) < max(classes) < len(data.classes):
        raise UserError(f"evaluation 'pairs' got classes {classes}; choose two from 0 to {len(data.classes) - 1}")
    of_pair = torch.isin(data.test.labels, torch.tensor(classes))
    logits, labels = predict(model, data)[of_pair], data.test.labels[of_pair]
    chosen = torch.where(logits[:, first] > logits[:, second], first, second)
    return {"all_classes": share(logits.argmax(1) == labels), "two_logits": share(chosen == labels)}
