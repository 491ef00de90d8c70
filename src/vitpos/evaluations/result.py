"""The return value of evaluations and attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vitpos.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Result:
    """The result of one evaluation of one model; each field may be empty.

    Numbers may be NumPy scalars or tensors without dimensions, which become Python numbers. A value of a wrong type raises
    an InputError when the Result is made.

    Args:
        numbers: Metric → value. NaN marks an undefined metric. Only finite values are stored in files. If all values are
            NaN or infinite, the file has the metrics and their values as text in ``reason`` instead.
        curves: Metric → {x: value}, such as accuracy by image size; x is a number.
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

    def __post_init__(self) -> None:
        numbers = {name: _number(value, f"numbers[{name!r}]") for name, value in _items("numbers", self.numbers)}
        curves = {name: _curve(curve, f"curves[{name!r}]") for name, curve in _items("curves", self.curves)}
        object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "curves", curves)
        for kind, tensors in (("arrays", self.arrays), ("images", self.images)):
            for name, tensor in _items(kind, tensors):
                _check_tensor(tensor, f"{kind}[{name!r}]")


def _items(kind: str, values: Any) -> list[tuple[str, Any]]:
    """Returns the (name, value) pairs of a dictionary; raises an InputError if ``values`` is no dictionary with text keys.

    ``kind`` is the name of ``values`` in the message, such as ``"numbers"``.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise InputError(f"a Result got {kind}={_short(values)}; give a dictionary with texts as keys")
    return list(values.items())


def _curve(curve: Any, what: str) -> dict[float, float]:
    if not isinstance(curve, Mapping):
        raise InputError(f"a Result got {what} = {_short(curve)}; give a dictionary x → value")
    return {_number(x, f"a key of {what}"): _number(y, f"{what}[{x!r}]") for x, y in curve.items()}


def _number(value: Any, what: str) -> float:
    """Returns a value as an int or float; raises an InputError if it is no number. ``what`` names it in the message."""
    found = value.item() if getattr(value, "ndim", None) == 0 else value  # of NumPy or PyTorch
    if isinstance(found, int | float):
        return found
    raise InputError(f"a Result got {what} = {_short(value)}; give a number, such as tensor.mean().item()")


def _check_tensor(value: Any, what: str) -> None:
    from torch import Tensor

    if not isinstance(value, Tensor):
        raise InputError(f"a Result got {what} = {_short(value)}; give a tensor, as by torch.as_tensor(…)")


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:60]
