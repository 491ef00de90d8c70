"""Time and memory of a training step as functions of the number of patches, with the exponents of power laws."""

from __future__ import annotations

import math
from collections.abc import Mapping

from vitpos.data.image_ops import resize
from vitpos.errors import InputError
from vitpos.evaluations.context import NO_PATCHES, EvalContext
from vitpos.evaluations.cost import measure_cost
from vitpos.evaluations.result import Result
from vitpos.metrics.statistics import log_log_slope
from vitpos.models.base import PatchClassifier

MEASURED = ("step_ms", "step_time_ratio", "peak_memory_mb", "peak_memory_ratio", "macs")


def cost_curve(
    ctx: EvalContext,
    *,
    grids: tuple[tuple[int, int], ...] = ((8, 8), (12, 12), (16, 16), (24, 24), (32, 32)),
    batch_size: int = 4,
    steps: int = 5,
) -> Result:
    """Time, memory and multiply-adds of a training step on grids of different sizes, and how fast they grow.

    step_ms by patches: median time of a forward and backward pass in milliseconds, for each number of patches.
    step_time_ratio by patches: ratio of this time to that of the same model with ``encoding="none"``. peak_memory_mb by
    patches: peak memory of all tensors in megabytes. peak_memory_ratio by patches: its ratio to that of ``none``. macs by
    patches: multiply-adds of a forward pass of one image. All are measured as in ``cost``. time_exponent,
    memory_exponent, macs_exponent: slope of a straight line through log(value) over log(number of patches), by least
    squares; 1 for a linear cost, 2 for a quadratic one. time_overhead_exponent, memory_overhead_exponent: the same for
    what the encoding adds to the model without one; undefined if it does not add to it on every grid.

    Images are resized to each grid, and tables with an entry per position or offset are resampled for it, as if the model
    had been built for the grid. Other tables, such as that of counts of ``sape2``, keep their size.

    Args:
        grids: Rows and columns of patches of each grid.
        batch_size: Number of images in a pass.
        steps: Number of timed passes for each grid, after one pass to warm up.
    """
    model, data = ctx.model, ctx.data
    if not isinstance(model, PatchClassifier):
        return Result(reason=NO_PATCHES)
    counts = sorted(rows * columns for rows, columns in grids)
    if batch_size < 1 or steps < 1 or len(set(counts)) < max(2, len(counts)) or counts[0] < 1:
        raise InputError(
            f"evaluation 'cost_curve' got grids={grids}, batch_size={batch_size}, steps={steps}; "
            "take two grids or more with different numbers of patches, and 1 or more of the others"
        )
    split = data.train if len(data.train) else data.test
    pixels, labels = split.images[:batch_size].to(model.device), split.labels[:batch_size].to(model.device)
    curves: dict[str, dict[float, float]] = {name: {} for name in MEASURED}
    for number, (rows, columns) in enumerate(sorted(grids, key=math.prod)):
        images = resize(pixels, (rows * model.patch[0], columns * model.patch[1]))
        found = measure_cost(_at_grid(model, (rows, columns)), data.normalize(images), labels, steps)
        for name in MEASURED:
            curves[name][float(rows * columns)] = found[name]
        ctx.progress((number + 1) / len(grids))
    values = {
        "time_exponent": curves["step_ms"],
        "memory_exponent": curves["peak_memory_mb"],
        "macs_exponent": curves["macs"],
        "time_overhead_exponent": _overhead(curves["step_ms"], curves["step_time_ratio"]),
        "memory_overhead_exponent": _overhead(curves["peak_memory_mb"], curves["peak_memory_ratio"]),
    }
    return Result({name: log_log_slope(curve) for name, curve in values.items()}, curves=curves)


def _at_grid(model: PatchClassifier, grid: tuple[int, int]) -> PatchClassifier:
    """Returns a copy of a model with the cost of one built for ``grid``: it reads its tables without interpolation."""
    resized = model.resized(grid)
    for module in (resized, *resized.encoding.modules()):
        if hasattr(module, "train_grid"):
            setattr(module, "train_grid", grid)  # noqa: B010 - not declared by every module
    return resized


def _overhead(values: Mapping[float, float], ratios: Mapping[float, float]) -> dict[float, float]:
    """Returns x → value − value / ratio: what is added to the value of a baseline, given the ratio to it."""
    return {x: value - value / ratios[x] for x, value in values.items()}
