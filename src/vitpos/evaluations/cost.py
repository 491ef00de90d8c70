"""What a model costs."""

from __future__ import annotations

from vitpos.data.base import Dataset
from vitpos.models.base import Classifier, PatchClassifier


def cost(model: Classifier, data: Dataset) -> dict[str, float]:
    """The size of the model.

    parameters: trained numbers in the model. position_parameters: those of them that belong to its encoding.
    """
    encoding = model.encoding.parameters() if isinstance(model, PatchClassifier) else []
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "position_parameters": sum(p.numel() for p in encoding),
    }
