"""Limits what a model that an untrusted file describes may allocate while it is built, before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vitpos.errors import InputError

FACTOR, SPARE_NUMBERS = 8, 1 << 25  # numbers that may be created: FACTOR × those of the file, and some for tables
CALLS, SPARE_CALLS = 300, 30_000  # calls of torch per tensor of the file, and for everything else
FACTORIES = {
    getattr(torch, name) for name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "eye", "arange")
} | {torch.linspace, torch.logspace, torch.tril_indices, torch.triu_indices, torch.randperm, torch.empty_strided}


class ModelLimit(TorchFunctionMode):
    """Context manager in which a model is built; raises an InputError before it exceeds the size of stored weights.

    Args:
        weights: the tensors that the model is built for, by name.
        what: the model and the file, for the message.
    """

    def __init__(self, weights: Mapping[str, Tensor], what: str):
        super().__init__()
        self.numbers = FACTOR * sum(tensor.numel() for tensor in weights.values()) + SPARE_NUMBERS
        self.calls = CALLS * len(weights) + SPARE_CALLS
        self.what = what

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of torch, after the numbers that it creates are subtracted from what is left."""
        if func is torch._C._set_grad_enabled:  # called when no_grad() ends, also after an error
            return func(*args, **(kwargs or {}))
        self.calls -= 1
        if func in FACTORIES:
            self.numbers -= _count(func, args, kwargs or {})
        elif func is F.interpolate:  # of a stored table, for another grid
            self.numbers -= math.prod(args[0].shape[:2]) * math.prod(_integers((kwargs or {}).get("size", ())))
        elif func in (Tensor.repeat, Tensor.new_zeros, Tensor.new_empty, Tensor.new_ones, Tensor.new_full):
            self.numbers -= math.prod(_integers(args[1:]))
        if self.numbers < 0 or self.calls < 0:
            raise InputError(
                f"{self.what} is larger than the stored tensors; is the file damaged, or of another architecture?"
            )
        return func(*args, **(kwargs or {}))


def _count(func: Any, args: Iterable[Any], kwargs: Mapping[str, Any]) -> int:
    """Returns an upper bound of how many numbers a function such as ``torch.empty`` creates."""
    sizes = _integers([*args, *(kwargs.get(name, ()) for name in ("size", "end", "steps", "n", "m", "row", "col"))])
    if func in (torch.linspace, torch.logspace):
        return sizes[-1] if sizes else 0
    if func in (torch.randint, torch.full, torch.empty_strided):  # their size is a tuple, and other numbers are values
        shapes = [one for one in (*args, kwargs.get("size")) if isinstance(one, list | tuple)]
        return math.prod(_integers(shapes[0])) if shapes else 0
    if func is torch.arange:
        return max(sizes, default=0) - min([*sizes, 0])
    if func is torch.eye and len(sizes) == 1:
        return sizes[0] ** 2
    return math.prod(sizes)


def _integers(values: Any) -> list[int]:
    if isinstance(values, list | tuple):
        return [number for one in values for number in _integers(one)]
    return [values] if isinstance(values, int) and not isinstance(values, bool) else []
