"""Converts the result of an evaluation to its entry in ``scores.json`` and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from vitpos.evaluations.result import Result

Key = TypeVar("Key")


def to_entry(result: Result) -> dict[str, Any]:
    """Returns the numbers, curves and reason of a result as they are stored, without NaN and infinite values.

    If all numbers are left out and the result has no reason, the stored reason lists them.
    """
    curves = {name: {f"{x!r}": y for x, y in _finite(curve).items()} for name, curve in result.curves.items()}
    numbers, reason = _finite(result.numbers), result.reason
    if result.numbers and not numbers:
        reason = reason or "not finite: " + ", ".join(f"{name} = {x}" for name, x in result.numbers.items())
    return {"numbers": numbers, "curves": curves, "reason": reason}


def from_entry(stored: Mapping[str, Any]) -> Result:
    """Returns the Result of an entry, without arrays and images; missing keys give empty fields."""
    curves = {name: {float(x): float(y) for x, y in curve.items()} for name, curve in stored.get("curves", {}).items()}
    numbers = {name: float(value) for name, value in stored.get("numbers", {}).items()}
    return Result(numbers, curves, reason=str(stored.get("reason", "")))


def _finite(values: Mapping[Key, float]) -> dict[Key, float]:
    return {key: value for key, value in values.items() if math.isfinite(value)}
