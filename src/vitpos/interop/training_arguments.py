"""Reads the training arguments that an untrusted checkpoint stores beside its weights."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any


def training_arguments(loaded: Any) -> dict[str, Any]:
    """Returns the training arguments that a checkpoint stores beside its weights; {} if there are none.

    ``loaded`` is what ``torch.load`` returned; its entries ``args``, ``config``, ``cfg`` and ``hyper_parameters`` are used.
    """
    kept: dict[str, Any] = {}
    for key in ("args", "config", "cfg", "hyper_parameters") if isinstance(loaded, Mapping) else ():
        value = loaded.get(key)
        value = vars(value) if isinstance(value, argparse.Namespace) else value
        kept |= _plain_values(value, depth=2)
    return kept


def _plain_values(value: Any, depth: int) -> dict[str, Any]:
    """Returns the entries of a dictionary that are texts, numbers, short lists of numbers, or dictionaries of these.

    Anything else is left out: shared lists in a pickle may be far larger than the file when they are printed.

    Args:
        depth: levels of dictionaries.
    """
    kept: dict[str, Any] = {}
    for key, inner in value.items() if isinstance(value, Mapping) and depth else ():
        if not isinstance(key, str):
            continue
        if isinstance(inner, str | int | float | bool) or (
            isinstance(inner, list | tuple) and len(inner) <= 16 and all(isinstance(one, int) for one in inner)
        ):
            kept[key] = inner
        elif isinstance(inner, Mapping):
            kept[key] = _plain_values(inner, depth - 1)
    return kept
