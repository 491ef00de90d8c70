"""What an evaluation or an attack returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Result:
    """The outcome of one evaluation of one model; each field may be empty.

    Args:
        numbers: metric → value. NaN stands for a metric that is undefined here; it is not stored.
        curves: metric → {x: value}, such as accuracy by image size.
        arrays: name → tensor, such as the confusion matrix.
        images: name → (n, C, height, width) in 0…1. Attacks return ``reconstruction``, ``target`` and, if the image
            was found step by step, ``trajectory`` (n, steps, C, height, width).
        reason: why there are no numbers, if the evaluation does not apply to the model.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[float, float]] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)
    images: dict[str, Tensor] = field(default_factory=dict)
    reason: str = ""
