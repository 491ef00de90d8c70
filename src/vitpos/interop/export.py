"""Export with ``torch.export``: a model as a graph with dynamic batch and image sizes, and positions as inputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitpos.errors import InputError, RunError
from vitpos.interop.step_reports import largest_difference
from vitpos.models.base import PatchClassifier
from vitpos.positions import Positions
from vitpos.printable import one_line

FROM_LOGITS = ("logits", "image_embeds", "pooler_output")  # outputs of Hugging Face's models, in order of preference
TOLERANCE = 1e-4  # of logits, relative to the largest one if that is above 1


@dataclass(frozen=True)
class ExportSettings:
    """The sizes and inputs of an exported model.

    Args:
        shape: Channels, height and width of the images.
        dynamic_batch: Whether the batch size is dynamic; otherwise it is 1.
        dynamic_size: Whether height and width are dynamic, in multiples of the patch size.
        positions_as_inputs: Whether the positions of the patches are inputs of the graph, beside the images.
    """

    shape: tuple[int, int, int]
    dynamic_batch: bool = True
    dynamic_size: bool = False
    positions_as_inputs: bool = False

    @property
    def input_names(self) -> tuple[str, ...]:
        """Returns the names of the inputs of the graph."""
        return ("images", "coords", "index", "known") if self.positions_as_inputs else ("images",)


def logits_of(output: Any) -> Tensor:
    """Returns what a model returns: a tensor, or the logits or features of an output of Hugging Face."""
    if isinstance(output, Tensor):
        return output
    found = next((one for key in FROM_LOGITS if (one := getattr(output, key, None)) is not None), None)
    if not isinstance(found, Tensor):
        raise InputError(
            f"the model returns a {type(output).__name__}, not logits; give a model that maps images to a tensor"
        )
    return found


class ExportModule(nn.Module):
    """A model as it is exported: maps images, and the positions if they are inputs, to logits."""

    def __init__(self, model: nn.Module, settings: ExportSettings):
        super().__init__()
        self.model, self.settings = model, settings

    def forward(
        self,
        images: Tensor,
        coords: Tensor | None = None,
        index: Tensor | None = None,
        known: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits (B, classes) of images (B, C, height, width).

        Args:
            images: Images, normalized as in training.
            coords: (B, R, C, 2), row and column of the patch in each grid cell, in units of patches of the training grid.
            index: (B, R, C), row-major index of the grid cell whose position the patch has, int64.
            known: (B, R, C), False where the position of the patch is hidden, bool.
        """
        if coords is None or index is None or known is None:
            return logits_of(self.model(images))
        assert isinstance(self.model, PatchClassifier)
        for tensor in (coords, index, known):  # stated at once, so that no guard depends on a difference of their sizes
            torch._check(tensor.shape[0] == images.shape[0])
            for axis, patch in enumerate(self.model.patch):
                torch._check(tensor.shape[axis + 1] * patch == images.shape[axis + 2])
        grid = (index.shape[1], index.shape[2])
        return logits_of(self.model(images, Positions(grid, coords.flatten(1, 2), index.flatten(1), known.flatten(1))))

    def inputs(self, pos: Positions, images: Tensor) -> tuple[Tensor, ...]:
        """Returns the inputs of the graph for images (B, C, height, width) and the positions of their patches."""
        if not self.settings.positions_as_inputs:
            return (images,)
        batch = images.shape[0]
        of_patches = (one.expand(batch, *one.shape[1:]) for one in (pos.coords, pos.index, pos.known))
        return images, *(one.unflatten(1, pos.grid).contiguous() for one in of_patches)


def export_program(
    model: nn.Module,
    *,
    image_size: Sequence[int] | None = None,
    dynamic_batch: bool = True,
    dynamic_size: bool = False,
    positions_as_inputs: bool = False,
) -> torch.export.ExportedProgram:
    """Returns a model as a ``torch.export`` program, in evaluation mode; ``program.module()`` is callable.

    The program is compared with the model on several batch sizes and image sizes; raises a RunError if they differ.

    Args:
        model: A model of this library, or another module that maps images to logits.
        image_size: (height, width), by default those of training; (channels, height, width) for models without patches
            and modules of other libraries.
        dynamic_batch: Makes the batch size dynamic; otherwise it is 1.
        dynamic_size: Makes height and width dynamic: any multiples of the patch size from 2×2 patches on. Positions are
            then those of the model on another grid, as in ``model(images)``.
        positions_as_inputs: Adds the inputs ``coords`` (B, R, C, 2), ``index`` (B, R, C) and ``known`` (B, R, C) to the
            graph, the three tensors of `Positions` on the grid of R×C patches.
    """
    settings = export_settings(
        model,
        image_size,
        dynamic_batch=dynamic_batch,
        dynamic_size=dynamic_size,
        positions_as_inputs=positions_as_inputs,
    )
    module = ExportModule(model, settings)
    program = trace(module)
    compare(module, program.module(), "the exported program")
    return program


def export_settings(
    model: nn.Module,
    image_size: Sequence[int] | None,
    *,
    dynamic_batch: bool,
    dynamic_size: bool,
    positions_as_inputs: bool,
) -> ExportSettings:
    """Returns checked `ExportSettings`; raises an InputError if the model cannot be exported with these options."""
    if not isinstance(model, nn.Module):
        raise InputError(f"got a {type(model).__name__} to export; give a model, such as vitpos.ViT(…)")
    has_patches = isinstance(model, PatchClassifier)
    for option, value in (("dynamic_size", dynamic_size), ("positions_as_inputs", positions_as_inputs)):
        if value and not has_patches:
            raise InputError(f"{option}=True needs a model of vitpos with patches, not a {type(model).__name__}")
    if isinstance(model, PatchClassifier):
        if dynamic_size and model.windowed:
            raise InputError(
                f"dynamic_size=True: the windows of {type(model).__name__} are cut for one grid; leave it out"
            )
        size = [side * patch for side, patch in zip(model.geometry.grid, model.patch, strict=True)]
        shape = (model.channels, *(size if image_size is None else image_size))
    elif image_size is None or len(image_size) != 3:
        raise InputError(
            f"a {type(model).__name__} does not store its image size; give image_size=(channels, height, width)"
        )
    else:
        shape = tuple(image_size)
    if len(shape) != 3 or any(not isinstance(side, int) or side < 1 for side in shape):
        wanted = "(height, width)" if has_patches else "(channels, height, width)"
        raise InputError(f"got image_size={image_size}; give {wanted} in pixels")
    if isinstance(model, PatchClassifier):
        grid = model.positions(torch.empty(1, *shape, device="meta")).grid
        if dynamic_size and min(grid) < 2:
            raise InputError(f"dynamic_size=True needs a grid of 2x2 patches or more, not {grid[0]}x{grid[1]}")
    return ExportSettings(shape, dynamic_batch, dynamic_size, positions_as_inputs)


def trace(module: ExportModule) -> torch.export.ExportedProgram:
    """Returns the ``torch.export`` program of a module; the weights are those of the module, not copies."""
    inputs, shapes = _example(module)
    with evaluating(module):
        return _trace(module, inputs, shapes)


def _trace(module: ExportModule, inputs: tuple[Tensor, ...], shapes: Any) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
    except InputError:
        raise
    except Exception as first:
        try:  # follows the Python code itself, so that code such as len(x) leaves the batch size free
            return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=True)
        except Exception:
            raise InputError(f"torch.export cannot trace this model ({one_line(first)}); {_remedy(module)}") from first


def _remedy(module: ExportModule) -> str:
    settings = module.settings
    if settings.dynamic_size or settings.dynamic_batch:
        return "try dynamic_size=False or dynamic_batch=False"
    return "take sizes from x.shape and avoid code that depends on values of tensors"


def _example(module: ExportModule) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """Returns example inputs of a graph, and which of their axes are free in the form of ``torch.export``."""
    settings, model = module.settings, module.model
    channels, height, width = settings.shape
    batch = {0: torch.export.Dim("batch", min=1)} if settings.dynamic_batch else {}
    images, cells = dict[int, Any](batch), dict[int, Any](batch)
    if isinstance(model, PatchClassifier) and settings.dynamic_size:
        # a grid that differs from that of training and is not square, so that nothing holds by coincidence
        grid = (height // model.patch[0] + 1, width // model.patch[1] + 2)
        grid = (grid[0] + (grid[0] == grid[1]), grid[1])
        height, width = grid[0] * model.patch[0], grid[1] * model.patch[1]
        for axis, name in enumerate(("rows", "columns")):
            cells[axis + 1] = torch.export.Dim(name, min=2)
            images[axis + 2] = cells[axis + 1] * model.patch[axis] if model.patch[axis] > 1 else cells[axis + 1]
    parameter = next(module.parameters(), torch.empty(0))
    tensor = torch.zeros(2 if batch else 1, channels, height, width, dtype=parameter.dtype, device=parameter.device)
    inputs = module.inputs(model.positions(tensor), tensor) if isinstance(model, PatchClassifier) else (tensor,)
    return inputs, dict(zip(settings.input_names, [images, cells, cells, cells], strict=False))


def compare(
    module: ExportModule, exported: Callable[..., Tensor], name: str
) -> tuple[float, tuple[tuple[int, int, int], ...]]:
    """Returns the largest difference of a model and its exported form, and (images, height, width) of each batch compared.

    The difference of logits is absolute, or relative to the largest logit if that is above 1. Raises a RunError if it is
    above 1e-4, or if the exported form fails on a batch.

    Args:
        module: The model with its settings.
        exported: The exported form: maps the inputs of the graph to logits.
        name: Name of the exported form in messages, such as ``onnxruntime``.
    """
    worst, checked = 0.0, []
    with evaluating(module):
        for images, pos in _batches(module):
            batch, _, height, width = images.shape
            checked.append((batch, height, width))
            inputs = (images,) if pos is None else module.inputs(pos, images)
            expected, sizes = module(*inputs), f"{batch} images of {height}x{width} pixels"
            try:
                found = exported(*inputs)
            except Exception as error:
                raise RunError(f"{name} fails on {sizes}, nothing was written ({one_line(error)})") from error
            gap = largest_difference(expected, logits_of(found).to(expected))
            worst = max(worst, math.inf if math.isnan(gap) else gap)
            if worst > TOLERANCE:
                raise RunError(f"PyTorch and {name} differ by {worst:.1e} on {sizes}; nothing was written")
    return worst, tuple(checked)


def _batches(module: ExportModule) -> Iterator[tuple[Tensor, Positions | None]]:
    """Yields random images, in several batch sizes and image sizes as far as they are free, and their positions."""
    settings, model = module.settings, module.model
    generator = torch.Generator().manual_seed(0)
    channels, height, width = settings.shape
    sizes = [(height, width)]
    if settings.dynamic_size and isinstance(model, PatchClassifier):
        rows, columns = height // model.patch[0], width // model.patch[1]
        grids = [(rows + 1, columns), (rows, columns + 3), (max(rows // 2, 2), columns + 1), (rows + 2, 2)]
        sizes += [(r * model.patch[0], c * model.patch[1]) for r, c in grids]
    batches = (1, 3, 2) if settings.dynamic_batch else (1,)
    parameter = next(module.parameters(), torch.empty(0))
    for number in range(max(len(sizes), len(batches))):
        batch, size = batches[number % len(batches)], sizes[number % len(sizes)]
        images = torch.randn(batch, channels, *size, generator=generator).to(parameter)
        if isinstance(model, PatchClassifier):
            pos = model.positions(images)
            yield images, _varied(pos, batch, generator) if settings.positions_as_inputs and number else pos
        else:
            yield images, None


def _varied(pos: Positions, batch: int, generator: torch.Generator) -> Positions:
    """Returns positions that differ by image: permuted, shifted by a fraction of a patch, and some of them hidden."""
    count, device = pos.index.shape[1], pos.index.device
    order = torch.rand(batch, count, generator=generator).argsort(1).to(device)
    hidden = (torch.rand(batch, count, generator=generator) < 0.3).to(device)
    return pos.permute(order).shift((0.25, -0.4)).hide(hidden)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Context manager: evaluation mode without gradients, and without the warnings of PyTorch's exporters."""
    modes = {one: one.training for one in module.modules()}
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, mode in modes.items():
            one.training = mode
