"""What a model costs."""

from __future__ import annotations

import statistics
import time
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from vitpos.data.base import Dataset
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import UserError
from vitpos.models.attend import twice_differentiable
from vitpos.models.base import Classifier


def cost(model: Classifier, data: Dataset, *, batch: int = 64, steps: int = 9) -> dict[str, float]:
    """The size of the model, and the work, memory and time of a training step.

    parameters: trained numbers in the model. position_parameters: those of them that belong to its encodings.
    multiply_adds: of matrix products, attention and convolutions in a pass forward for one image.
    kept_megabytes: what a pass forward on ``batch`` images keeps for the way back, weights not counted.
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
    kept = _kept(model, images)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), twice_differentiable():
        model.eval()(images[:1])
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "position_parameters": sum(p.numel() for p in places),
        "multiply_adds": counter.get_total_flops() / 2,
        "kept_megabytes": kept / 1e6,
        "step_milliseconds": statistics.median(taken[1:]),
    }


def _kept(model: Classifier, images: Tensor) -> int:
    """Bytes that a training pass keeps for its way back, each storage once, parameters left out."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        held = model.step(images)  # as long as it is held, no storage is used twice
    del held
    return sum(storages.values())
