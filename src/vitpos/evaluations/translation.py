"""Pictures moved by whole patches."""

from __future__ import annotations

from torch import Tensor

from vitpos.data.base import Dataset
from vitpos.errors import UserError
from vitpos.evaluations.predict import predict, share
from vitpos.models.base import Classifier, PatchClassifier


def translation(model: Classifier, data: Dataset, *, by: tuple[int, int] = (0, 1)) -> dict[str, float]:
    """Right answers on test images moved down and right by whole patches; what leaves is lost, what comes in is black.

    accuracy: share of the moved test images, 0 to 1, whose largest logit is their label's.
    agreement: share answered as the picture in its place is. ``by``: rows and columns of patches, negative for up and left.
    """
    if not isinstance(model, PatchClassifier):
        raise UserError("evaluation 'translation' is for models with patches; leave it out for this one")
    if any(abs(step) >= side for step, side in zip(by, model.geometry.grid, strict=True)):
        raise UserError(
            f"evaluation 'translation' got by={by}, which leaves nothing of {model.geometry.grid} patches; move less"
        )
    down, right = (step * side for step, side in zip(by, model.patch, strict=True))

    def change(images: Tensor, start: int) -> tuple[Tensor, None]:
        moved = images.new_zeros(images.shape)
        height, width = images.shape[2:]
        moved[:, :, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)] = images[
            :, :, max(-down, 0) : height - max(down, 0), max(-right, 0) : width - max(right, 0)
        ]
        return moved, None

    answers, usual = predict(model, data, change).argmax(1), predict(model, data).argmax(1)
    return {"accuracy": share(answers == data.test.labels), "agreement": share(answers == usual)}
