"""The return value of evaluations and attacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Result:
    """The result of one evaluation of one model; each field may be empty.

    Args:
        numbers: Metric → value. NaN marks an undefined metric, which is not stored.
        curves: Metric → {x: value}, such as accuracy by image size.
        arrays: Name → tensor, such as the confusion matrix.
        images: Name → images (n, C, height, width) with values 0 to 1. Attacks return ``reconstruction``, ``target`` and,
            if they are iterative, ``trajectory`` (n, snapshots, C, height, width).
        reason: Why the evaluation does not apply to the model, if there are no numbers.
    """

    numbers: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[float, float]] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)
    images: dict[str, Tensor] = field(default_factory=dict)
    reason: str = ""
