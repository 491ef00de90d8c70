"""Interoperability: models and weights of timm and Hugging Face, and the position encoding in any ViT checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitpos.interop.huggingface import to_huggingface as to_huggingface
    from vitpos.interop.timm import load_timm as load_timm
    from vitpos.interop.timm import to_timm as to_timm

_HOMES = {"to_huggingface": "huggingface", "to_timm": "timm", "load_timm": "timm"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'vitpos.interop' has no attribute {name!r}")
    return getattr(import_module(f"vitpos.interop.{_HOMES[name]}"), name)
