"""How often the model is right, and what it takes for what."""

from __future__ import annotations

import torch

from vitpos.data.dataset import Dataset
from vitpos.evaluations.predict import predict, share
from vitpos.models.base import Classifier


def accuracy(model: Classifier, data: Dataset) -> dict[str, float]:
    """Right answers on the test images as they are.

    accuracy: share of test images, 0 to 1, whose largest logit is their label's.
    """
    return {"accuracy": share(predict(model, data).argmax(1) == data.test.labels)}


def confusion(model: Classifier, data: Dataset) -> dict[str, float]:
    """What each class is taken for.

    "6 as 9": share, 0 to 1, of the test images of class 6 whose largest logit is that of class 9.
    """
    count = len(data.classes)
    cells = data.test.labels * count + predict(model, data).argmax(1)
    table = torch.bincount(cells, minlength=count**2).view(count, count).double()
    rows = (table / table.sum(1, keepdim=True)).tolist()
    names = data.classes
    return {f"{names[i]} as {names[j]}": rows[i][j] for i in range(count) for j in range(count)}
