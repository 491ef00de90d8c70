"""What a model costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from vitpos.data.dataset import Dataset
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import UserError
from vitpos.models.attend import twice_differentiable
from vitpos.models.base import Classifier, PatchClassifier


def cost(model: Classifier, data: Dataset, *, batch: int = 64, steps: int = 9) -> dict[str, float]:
    """The size of the model, and the work, memory and time of a training step.

    parameters: trained numbers in the model. position_parameters: those of them that belong to its encodings.
    multiply_adds: of matrix products, attention and convolutions in a pass forward for one image.
    peak_megabytes: the most that tensors took at a time in a pass forward and back on ``batch`` images, weights and their
    gradients counted; on a CPU without what a kernel takes for itself.
    step_milliseconds: median time of such a pass, of ``steps`` after one to warm up; this machine's, at this moment.
    step_ratio: the median ratio of its time to that of the same model without positions, the two taking turns (on a CPU
    processor time, which other work disturbs less); that can be compared between runs. A model without tokens has none.
    """
    if batch < 1 or steps < 1:
        raise UserError(f"evaluation 'cost' got batch={batch}, steps={steps}; take 1 or more of each")
    model = deepcopy(model).train()  # a copy: batch norms learn from every picture they see in training
    encodings = [module for module in model.modules() if isinstance(module, PositionEncoding)]
    places = {parameter for encoding in encodings for parameter in encoding.parameters()}
    device = next(model.parameters()).device
    images = data.normalize(data.train.images[:batch].to(device))
    labels = data.train.labels[:batch].to(device)
    rivals = [model]
    if isinstance(model, PatchClassifier):
        rivals.append(plain := deepcopy(model))
        plain.encoding = ENCODINGS.build("none", model.geometry)
    taken = [[_time(rival, images, labels) for rival in rivals] for _ in range(steps + 1)][1:]
    peak = _peak(model, images, labels)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), twice_differentiable():
        model.eval()(images[:1])
    numbers = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "position_parameters": sum(p.numel() for p in places),
        "multiply_adds": counter.get_total_flops() / 2,
        "peak_megabytes": peak / 1e6,
        "step_milliseconds": 1000 * statistics.median(own for (own, _), *_ in taken),
    }
    if len(rivals) > 1:
        numbers["step_ratio"] = statistics.median(own / other for (_, own), (_, other) in taken)
    return numbers


def _step(model: Classifier, images: Tensor, labels: Tensor) -> None:
    logits, penalty = model.step(images)
    (F.cross_entropy(logits, labels) + penalty).backward()


def _time(model: Classifier, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Seconds of a pass forward and back, and how many of them a processor worked; on a GPU twice the same."""
    began, busy = time.perf_counter(), time.process_time()
    _step(model, images, labels)
    if images.is_cuda:
        torch.cuda.synchronize()
    taken, worked = time.perf_counter() - began, time.process_time() - busy
    model.zero_grad()
    return taken, taken if images.is_cuda else worked


def _peak(model: Classifier, images: Tensor, labels: Tensor) -> int:
    """The most bytes that tensors took at a time in a pass forward and back."""
    if images.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        _step(model, images, labels)
        return torch.cuda.max_memory_allocated()
    with _Watch() as watch:
        watch.count([*model.parameters(), *model.buffers(), images])
        _step(model, images, labels)
    model.zero_grad()
    return watch.peak


class _Watch(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, each storage once, after every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def count(self, tensors: Sequence[Any]) -> None:
        """Takes note of new tensors and forgets those that are gone."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.alive[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {at: (storage, size) for at, (storage, size) in self.alive.items() if not storage.expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.count(tree_leaves(out))
        return out
