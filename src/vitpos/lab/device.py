"""The device on which models are trained, evaluated, attacked and inspected: the option ``device``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vitpos.errors import InputError
from vitpos.printable import sanitize

VARIABLE = "VITPOS_DEVICE"  # environment variable that the option sets, which worker processes inherit
_NAME = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


def choose_device(name: str) -> None:
    """Sets the device in this process and those that it starts; `chosen_device` checks that it is available."""
    if not _NAME.fullmatch(name):
        raise InputError(f"got the device {sanitize(name)!r}; choose cpu, cuda, cuda:0, mps or auto")
    os.environ[VARIABLE] = name


@contextmanager
def using_device(name: str | None) -> Iterator[None]:
    """Context manager in which models use a device: ``cpu``, ``cuda``, ``cuda:0``, ``mps`` or ``auto``.

    None keeps the current choice. Raises an InputError if the device is not available.
    """
    before = os.environ.get(VARIABLE)
    try:
        if name is not None:
            choose_device(name)
        chosen_device()
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def chosen_device() -> torch.device:
    """Returns the chosen device; by default (``auto``) a GPU if PyTorch finds one (CUDA), otherwise the CPU."""
    name = os.environ.get(VARIABLE, "auto")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not _NAME.fullmatch(name):
        raise InputError(f"{VARIABLE} is {sanitize(name)!r}; choose cpu, cuda, cuda:0, mps or auto")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise InputError(f"device {name!r} is not available, PyTorch finds {found} CUDA devices; choose cpu or auto")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device {name!r} is not available, PyTorch finds no Apple GPU; choose cpu or auto")
    return device
