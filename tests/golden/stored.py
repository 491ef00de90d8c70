"""The stored values; ``make.py`` wrote them before the redesign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.cases import Case

FOLDER = Path(__file__).parent
LOGITS = FOLDER / "logits.npz"
STATE_DICTS = FOLDER / "state_dicts.json"
TRAINING_STEPS = FOLDER / "training_steps.json"
TINY = FOLDER / "tiny.toml"
TINY_RESULTS = FOLDER / "tiny_results.csv"
TINY_INSPECT = FOLDER / "tiny_inspect.json"
MNIST_JIGSAW = FOLDER / "mnist_jigsaw.csv"


@cache
def arrays() -> Mapping[str, np.ndarray]:
    """All of logits.npz."""
    with np.load(LOGITS) as file:
        return {name: file[name] for name in file.files}


@cache
def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text())


def shapes_of(case: Case) -> dict[str, tuple[int, ...]]:
    """The state dict of a case: shapes by old names."""
    return {name: tuple(shape) for name, shape in read(STATE_DICTS)[case.id].items()}
