"""What a model costs."""

from __future__ import annotations

import statistics
import time
from copy import deepcopy

import torch
import torch.nn.functional as F

from vitpos.data.base import Dataset
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import UserError
from vitpos.models.base import Classifier


def cost(model: Classifier, data: Dataset, *, batch: int = 64, steps: int = 9) -> dict[str, float]:
    """The size of the model and the time of a training step.

    parameters: trained numbers in the model. position_parameters: those of them that belong to its encodings.
    step_milliseconds: median time of a pass forward and back on ``batch`` images, of ``steps`` after one to warm up. It
    is this machine's, at this moment; only numbers of one quiet run can be compared.
    """
    if batch < 1 or steps < 1:
        raise UserError(f"evaluation 'cost' got batch={batch}, steps={steps}; take 1 or more of each")
    model = deepcopy(model).train()  # a copy: batch norms learn from every picture they see in training
    encodings = [module for module in model.modules() if isinstance(module, PositionEncoding)]
    places = {parameter for encoding in encodings for parameter in encoding.parameters()}
    device = next(model.parameters()).device
    images = data.inputs(data.train.images[:batch].to(device))
    labels = data.train.labels[:batch].to(device)
    taken = []
    for _ in range(steps + 1):
        began = time.perf_counter()
        logits, penalty = model.step(images)
        (F.cross_entropy(logits, labels) + penalty).backward()
        if images.is_cuda:
            torch.cuda.synchronize()
        taken.append(1000 * (time.perf_counter() - began))
        model.zero_grad()
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "position_parameters": sum(p.numel() for p in places),
        "step_milliseconds": statistics.median(taken[1:]),
    }
