"""`vitpos.convert`: another grid, patch size, position encoding or format of a model, with a report of each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

from vitpos.data.dataset import Dataset, load
from vitpos.encodings._table_interpolation import NAMED_MODES
from vitpos.errors import InputError
from vitpos.interop.convert import (
    MODE,
    PATCH_MODE,
    Coords,
    depends_on_coordinates,
    differing_terms,
    loses_mean,
    require_patches,
    resize,
    swap_encoding,
)
from vitpos.interop.grids import format_grid
from vitpos.interop.preprocessing import with_normalization
from vitpos.interop.source_model import SourceModel
from vitpos.interop.step_reports import (
    StepReport,
    difference_at_new_size,
    difference_of_tokens,
    norm_ratio,
    weights_changed,
)
from vitpos.lab.compare_modes import compare_modes, has_tables
from vitpos.lab.conversion import Conversion
from vitpos.lab.conversion_options import ALL, Pair, Size, check_choices, check_onnx_options, to_sizes
from vitpos.lab.conversion_output import Format, check_output, write_model
from vitpos.lab.conversion_source import read_source
from vitpos.lab.device import chosen_device
from vitpos.lab.drift import IMAGES
from vitpos.lab.heal import Healing, heal
from vitpos.lab.trust import trusting
from vitpos.models.base import Classifier

MAX_TOKENS = 4096  # patches of an image on which outputs of original and converted model are compared
DIFFERENCE = "output_difference: from the original model at the new image size (0 only for the same interpolation)"
WORSE = "after healing, predictions differ more from the original's than before (kl); give more images or a lower lr"
SMALLER = "the new patches have fewer pixels: their tokens only approximate the original ones (least squares)"
NO_BIAS = "the mean of the removed vectors is lost: the patch projection of this model has no bias to add it to"
Sizes = tuple[Pair | None, Pair | None, Pair | None]  # grid, patch, window


def convert(
    model: str | Path | nn.Module,
    *,
    grid: tuple[int, int] | None = None,
    patch: Size | None = None,
    window: Size | None = None,
    encoding: str | None = None,
    heal: Dataset | str | None = None,
    to: Format = "vitpos",
    out: str | Path | None = None,
    mode: str = MODE,
    coords: Coords | None = None,
    patch_mode: str = PATCH_MODE,
    data: Dataset | str | None = None,
    images: int = IMAGES,
    healing: Healing | None = None,
    architecture: str | None = None,
    pretrained: bool = True,
    trust: bool = False,
    dynamic_size: bool = False,
    positions_as_inputs: bool = False,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Classifier, list[StepReport]]:
    """Returns a converted model in evaluation mode, and a `StepReport` for each step; the given model does not change.

    The steps are grid and patch size, then the encoding, then healing, then the format.

    Args:
        model: What `vitpos.load` takes: the folder of a cell, a weights file of vitpos, ``timm:NAME``, ``hf:FOLDER``, a
            model of timm or Hugging Face, or a file with ``architecture``; or a model of vitpos that was built from specs,
            such as one that this function returned.
        grid: Rows and columns of patches of the new model. Its images are as large as grid and patch size say.
        patch: Patch size in pixels, one number or (height, width). The projection is resampled by the pseudo-inverse of
            the resizing of patches (FlexiViT). Without ``grid``, images keep their size and the grid changes.
        window: Side of the windows of a Swin Transformer, one number or (rows, columns).
        encoding: Spec of another position encoding. Encodings that occur in the old and the new spec keep their weights.
        heal: A data set or its spec: the model is trained on its training images, without labels, to imitate the
            original.
        to: Format of ``out``: ``vitpos``, ``timm``, ``hf`` (Hugging Face) or ``onnx``.
        out: New file or folder; by default nothing is written.
        mode: Interpolation of stored position tables: ``bicubic``, ``bilinear`` or ``area``, optionally followed by
            ``-antialias``, ``-align_corners``, ``-offset`` (DINO's 0.1) and ``-norm``; or the default of a library,
            ``timm``, ``hf`` or ``dino``. ``all`` compares ten of them, and the choices of ``coords`` unless it is
            given, and takes the one with the lowest KL divergence (``kl``) on ``data``; for a model without tables it
            compares the choices of ``coords`` alone.
        coords: What encodings without a table get: ``interpolate``, coordinates scaled to the range of the old grid (the
            default); ``rebuild``, those of a model built for the new grid, as timm computes them for images of this
            size (the default for ``timm`` and ``hf``); ``ntk``, ``rebuild`` with NTK-scaled rotary frequencies.
        patch_mode: Interpolation by which patches are resized; ``timm`` for that of timm.
        data: A data set or its spec, on whose test images each step is compared with the original; by default ``heal``.
        images: Maximum number of test images for this.
        healing: Options of the healing.
        architecture: Name in timm of the model in a file.
        pretrained: Whether ``timm:`` and ``hf:`` load trained weights.
        trust: As for `vitpos.load`.
        dynamic_size: For ONNX: images may have any height and width of 2 patches or more.
        positions_as_inputs: For ONNX: the positions of the patches are inputs of the graph too, see `vitpos.export_onnx`.
        on_batch: Called after each step of healing with the numbers of steps done and of all.
    """
    check_choices(mode=mode, coords=coords, patch_mode=patch_mode, to=to, encoding=encoding)
    graph = {"dynamic_size": dynamic_size, "positions_as_inputs": positions_as_inputs}
    check_onnx_options(to, **graph)
    sizes = to_sizes(grid, patch, window)
    if heal is not None and encoding is None:
        raise InputError("healing follows a swap of the encoding; give the new encoding too")
    if out is not None:
        check_output(Path(out), to)
    with trusting(trust):
        source = read_source(model, architecture=architecture, pretrained=pretrained)
    shown = _dataset(data if data is not None else heal, source)
    shown = shown.sample_test(images) if shown is not None else None
    state = Conversion(source, source, shown)
    if any(sizes):
        coords = coords or ("rebuild" if to in ("timm", "hf") else None)
        _convert_sizes(state, sizes, mode, coords, patch_mode)
    if encoding is not None:
        _swap(state, encoding)
    if heal is not None:
        _heal(state, _dataset(heal, source), healing, on_batch)
    if out is not None:
        state.reports.append(write_model(state.current, Path(out), to, **graph))
    return state.current.model, state.reports


def _dataset(data: Dataset | str | None, source: SourceModel) -> Dataset | None:
    """Returns a data set with the mean and standard deviation that the checkpoint states, if it states them."""
    data = load(data) if isinstance(data, str) else data
    return None if data is None else with_normalization(data, source.preprocessing)


def _convert_sizes(state: Conversion, sizes: Sizes, mode: str, coords: Coords | None, patch_mode: str) -> None:
    """Converts grid, patch and window at once, and adds a report of the patches and one of the grid."""
    grid, patch, window = sizes

    def make(mode: str, coords: Coords | None) -> SourceModel:
        return resize(
            state.original, grid=grid, patch=patch, window=window, mode=mode, coords=coords, patch_mode=patch_mode
        )

    if mode == ALL:
        mode, coords = compare_modes(state, make, coords)
    before, after = state.original, make(mode, coords)
    old, new = require_patches(before.model), require_patches(after.model)
    numbers: dict[str, float] = weights_changed(old.state_dict(), new.state_dict())
    if new.patch != old.patch:
        difference = {"token_difference": difference_of_tokens(old, new, patch_mode)}
        change = f"patches {format_grid(old.patch)} → {format_grid(new.patch)} pixels, {patch_mode}"
        note = "" if min(a / b for a, b in zip(new.patch, old.patch, strict=True)) >= 1 else SMALLER
        state.reports.append(StepReport("patch", change, difference, note))
    if (new.geometry.grid, new.train_grid) == (old.geometry.grid, old.train_grid) and window is None:
        state.advance(after, StepReport("grid", f"grid {format_grid(new.geometry.grid)} as before", numbers))
        return
    if not math.isnan(ratio := norm_ratio(old, new)):
        numbers["norm_ratio"] = ratio
    if new.patch == old.patch and window is None and math.prod(new.geometry.grid) <= MAX_TOKENS:
        numbers["output_difference"] = difference_at_new_size(old, new, after.spec.image_shape)
    change = f"grid {format_grid(old.geometry.grid)} → {format_grid(new.geometry.grid)}"
    change += f", tables: {NAMED_MODES.get(mode, mode)}" if has_tables(old) else ""
    change += f", windows of {format_grid(window)}" if window else ""
    if depends_on_coordinates(old.encoding):
        change += f", coordinates: {'interpolate' if new.train_grid != new.geometry.grid else coords or 'rebuild'}"
    state.advance(after, StepReport("grid", change, numbers, DIFFERENCE if "output_difference" in numbers else ""))


def _swap(state: Conversion, encoding: str) -> None:
    before = state.current
    after = swap_encoding(before, encoding)
    numbers: dict[str, float] = weights_changed(before.model.state_dict(), after.model.state_dict())
    change = f"encoding {before.spec.encoding} → {after.spec.encoding}"
    notes = [] if state.data is not None else ["accuracy is lost until the model is healed or trained"]
    notes += [NO_BIAS] if loses_mean(before, after) else []
    notes += [
        f"{new} starts with random weights; {old} in its place would keep those of the model"
        for new, old in differing_terms(before.spec.encoding, after.spec.encoding)
    ]
    state.advance(after, StepReport("encoding", change, numbers, "; ".join(notes)))


def _heal(
    state: Conversion, data: Dataset | None, healing: Healing | None, on_batch: Callable[[int, int], None]
) -> None:
    assert data is not None
    swapped = state.reports[-1].numbers
    shapes = {"student_shape": state.current.spec.image_shape, "teacher_shape": state.original.spec.image_shape}
    student, teacher = state.current.model, state.original.model
    device = chosen_device()
    numbers = heal(student.to(device), teacher.to(device), data, healing, on_batch=on_batch, **shapes)
    student.cpu(), teacher.cpu()
    state.advance(
        state.current, StepReport("heal", f"distilled from the original on {data.spec or 'the images'}", numbers)
    )
    found = state.reports[-1].numbers
    extra = {"agreement_before_healing": swapped["agreement"]}
    if found.get("accuracy_before"):
        lost = found["accuracy_before"] - swapped["accuracy_after"]
        extra["accuracy_lost"] = lost
        if lost > 0:
            extra["fraction_of_lost_accuracy_recovered"] = (found["accuracy_after"] - swapped["accuracy_after"]) / lost
    worse = found.get("kl", 0.0) > swapped.get("kl", math.inf)
    state.reports[-1] = replace(state.reports[-1], numbers={**found, **extra}, note=WORSE if worse else "")
