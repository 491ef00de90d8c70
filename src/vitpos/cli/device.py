"""The option ``--device`` of commands that run models."""

from __future__ import annotations

from typing import Annotated

from typer import Option


def _device(name: str | None) -> str | None:
    """Sets the device, and refuses one that is not available, while options are parsed; returns its name."""
    if name is not None:
        from vitpos.lab.device import choose_device, chosen_device

        choose_device(name)
        chosen_device()
    return name


Device = Annotated[
    str | None,
    Option(
        metavar="DEVICE",
        callback=_device,
        help="cpu, cuda, cuda:0, mps or auto (default): CUDA if PyTorch finds it, otherwise the CPU",
    ),
]
