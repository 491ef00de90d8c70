"""vitpos: a laboratory for position in Vision Transformers.

The public API on one screen; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Positions": "vitpos.positions",
    "Geometry": "vitpos.encodings.base",
    "PositionEncoding": "vitpos.encodings.base",
    "ENCODINGS": "vitpos.encodings",
    "Classifier": "vitpos.models.base",
    "MODELS": "vitpos.models",
    "Dataset": "vitpos.data.dataset",
    "DATASETS": "vitpos.data",
    "EVALUATIONS": "vitpos.evaluations",
    "Recipe": "vitpos.training.recipe",
    "fit": "vitpos.training.loop",
    "Experiment": "vitpos.experiment",
    "Run": "vitpos.store",
    "run": "vitpos.lab",
    "evaluate": "vitpos.lab",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitpos' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
