"""What is stored of every case: shapes of its state dict, first weights, logits, penalties, gradients."""

from __future__ import annotations

import numpy as np
import torch

from tests.golden import adapter, values
from tests.golden.cases import BATCH, EVALUATION, PLAIN, TRAINING, Case

Shapes = dict[str, tuple[int, ...]]  # by old names


def situations(case: Case) -> list[tuple[str, float | None, str]]:
    """(mode, progress of training, situation) of each row that is stored."""
    evaluation, training = (EVALUATION, TRAINING) if case.patches else (PLAIN, PLAIN)
    rows: list[tuple[str, float | None, str]] = [("evaluation", None, name) for name in evaluation]
    return rows + [("training", progress, name) for progress in case.progress for name in training]


def with_weights(case: Case, shapes: Shapes) -> torch.nn.Module:
    """The float64 model of a case, all of its values drawn by the old names of its tensors."""
    model = adapter.build_case(case).double()
    adapter.load_state(model, values.weights(shapes))
    return model


def logits(case: Case, shapes: Shapes) -> np.ndarray:
    """(rows, BATCH · CLASSES + 1): logits and penalty of every situation."""
    model = with_weights(case, shapes)
    rows = []
    for mode, progress, situation in situations(case):
        if mode == "training":
            adapter.set_progress(model.train(), progress)
            torch.manual_seed(1)
        else:
            model.eval()
        with torch.no_grad():
            found, penalty = adapter.run(model, situation, batch=BATCH)
        rows.append(torch.cat([found.flatten(), penalty.reshape(1)]).numpy())
    return np.stack(rows)


def gradients(case: Case, shapes: Shapes) -> np.ndarray:
    """(parameters,): of a loss in training mode, one number for each parameter, in the order of old names."""
    model = with_weights(case, shapes).train()
    adapter.set_progress(model, 0.5)
    torch.manual_seed(1)
    found, penalty = adapter.run(model, "shuffled and hidden" if case.patches else "plain", batch=BATCH)
    (found.square().sum() + penalty).backward()
    named = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    buffers = {name for name, _ in model.named_buffers()}
    parameters = [
        name for name in sorted(shapes) if not adapter.state_from({name: torch.zeros(shapes[name])}).keys() & buffers
    ]
    return np.array([adapter.along(name, shapes[name], named) for name in parameters])


def first_weights(case: Case, shapes: Shapes) -> np.ndarray:
    """(tensors,): of the weights that seed 0 gives, one number for each tensor, in the order of old names."""
    state = adapter.build_case(case).state_dict()
    return np.array([adapter.along(name, shapes[name], state) for name in sorted(shapes)])
