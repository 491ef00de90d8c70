"""Parameters, multiply-adds, memory and time of a model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.interop.wrapped_models import WrappedViT
from vitpos.models.attention import double_backward_attention
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.training.loss import loss


def cost(ctx: EvalContext, *, batch_size: int = 64, steps: int = 9, baseline: str = "none") -> Result:
    """Size of the model, and compute, memory and time of a training step.

    parameters: number of parameters. position_parameters: number of parameters of the position encoding.
    macs: multiply-adds of matrix products, attention and convolutions in a forward pass of one image.
    peak_memory_mb: peak memory of all tensors, weights and gradients included, in a forward and backward pass, in megabytes
    (10⁶ bytes). On a CPU the temporary memory inside kernels is not included.
    step_ms: median time of a forward and backward pass in milliseconds; it depends on the machine and its load.
    step_time_ratio: median ratio of the time of a forward and backward pass to that of the same model with the encoding
    ``baseline``, measured alternately. On a CPU it is a ratio of process times, which other processes disturb less, and
    can be compared between runs. peak_memory_ratio: ratio of the peak memory of this pass to that of the same model with
    the encoding ``baseline``. For both ratios Swin is compared with a Swin that keeps its ``window_encoding``. Models
    without tokens and models of other libraries that ``vitpos.load`` does not rebuild have no ratios. The images are
    those of the training, or test images if the data set has no others.

    Args:
        batch_size: Number of images in a pass.
        steps: Number of timed passes, after one pass to warm up.
        baseline: Spec of the encoding that both ratios compare with; no encoding by default.
    """
    if batch_size < 1 or steps < 1:
        raise InputError(f"evaluation 'cost' got batch_size={batch_size}, steps={steps}; take 1 or more of each")
    data, device = ctx.data, ctx.model.device
    split = data.train if len(data.train) else data.test
    images = data.normalize(split.images[:batch_size].to(device))
    return Result(measure_cost(ctx.model, images, split.labels[:batch_size].to(device), steps, baseline))


def measure_cost(
    model: Classifier, images: Tensor, labels: Tensor, steps: int, baseline: str = "none"
) -> dict[str, float]:
    """Returns metric → value: the numbers of the evaluation `cost`, such as ``step_ms`` and ``peak_memory_mb``.

    Args:
        model: The model; it is copied, because batch norms in training mode update their statistics.
        images: (B, C, height, width), normalized, on the model's device.
        labels: (B,), their classes.
        steps: Number of timed passes, after one pass to warm up.
        baseline: Spec of the encoding that the ratios compare with.
    """
    model = deepcopy(model).train()
    encodings = [module for module in model.modules() if isinstance(module, PositionEncoding)]
    position_parameters = {parameter for encoding in encodings for parameter in encoding.parameters()}
    models = [model]
    if isinstance(model, PatchClassifier) and not isinstance(model, WrappedViT):
        models.append(other := deepcopy(model))
        other.encoding = ENCODINGS.build(baseline, model.geometry).train()
    times = [[_step_times(each, images, labels) for each in models] for _ in range(steps + 1)][1:]
    peak = _peak_bytes(model, images, labels)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), double_backward_attention():
        model.eval()(images[:1])
    numbers = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "position_parameters": sum(p.numel() for p in position_parameters),
        "macs": counter.get_total_flops() / 2,
        "peak_memory_mb": peak / 1e6,
        "step_ms": 1000 * statistics.median(own for (own, _), *_ in times),
    }
    if len(models) > 1:
        numbers["peak_memory_ratio"] = peak / _peak_bytes(models[1], images, labels)
        numbers["step_time_ratio"] = statistics.median(own / other for (_, own), (_, other) in times)
    return numbers


def _step_times(model: Classifier, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Returns (wall time, process time) of a forward and backward pass in seconds; on a GPU both are the wall time."""
    wall_start, process_start = time.perf_counter(), time.process_time()
    loss(model, images, labels)[0].backward()
    if images.is_cuda:
        torch.cuda.synchronize()
    wall, process = time.perf_counter() - wall_start, time.process_time() - process_start
    model.zero_grad()
    return wall, wall if images.is_cuda else process


def _peak_bytes(model: Classifier, images: Tensor, labels: Tensor) -> int:
    """Returns the peak memory of all tensors, weights and gradients included, in a forward and backward pass, in bytes."""
    if images.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        loss(model, images, labels)[0].backward()
        peak = torch.cuda.max_memory_allocated()
        model.zero_grad()
        return peak
    with _PeakMemory() as memory:
        memory.update([*model.parameters(), *model.buffers(), images])
        loss(model, images, labels)[0].backward()
    model.zero_grad()
    return memory.peak


class _PeakMemory(TorchDispatchMode):
    """Context manager that measures the peak memory of all live tensors in bytes, as its attribute ``peak``.

    It sums the sizes of the live storages after every operation; tensors that share a storage count once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def update(self, tensors: Sequence[Any]) -> None:
        """Adds the storages of ``tensors`` to the live ones, removes those that were freed, and updates ``peak``."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.live[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
        self.live = {at: (storage, size) for at, (storage, size) in self.live.items() if not storage.expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.update(tree_leaves(out))
        return out
