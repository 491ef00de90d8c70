"""Export to ONNX, with any encoding and dynamic batch and image sizes; onnxruntime checks every exported file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitpos.errors import InputError, RunError
from vitpos.files import write_bytes
from vitpos.interop.export import ExportModule, compare, evaluating, export_settings, trace
from vitpos.interop.onnx_operators import with_onnx_operators
from vitpos.printable import one_line

MAX_BYTES = 2**31 - 2**24  # of a protobuf message, minus room for the graph


@dataclass(frozen=True)
class OnnxExport:
    """An exported ONNX file and how it was checked.

    Args:
        path: The file.
        inputs: Names of the inputs of the graph.
        difference: Largest absolute difference of PyTorch's logits and those of onnxruntime, relative to the largest
            logit if that is above 1.
        checked: (images, height, width) of the random batches that were compared.
    """

    path: Path
    inputs: tuple[str, ...]
    difference: float
    checked: tuple[tuple[int, int, int], ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{images} of {height}x{width}" for images, height, width in self.checked)
        return f"{self.path}: PyTorch and onnxruntime differ by at most {self.difference:.1e} (images: {sizes})"


def export_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    image_size: Sequence[int] | None = None,
    dynamic_batch: bool = True,
    dynamic_size: bool = False,
    positions_as_inputs: bool = False,
) -> OnnxExport:
    """Exports a model to an ONNX file and returns how much PyTorch and onnxruntime differ on random images.

    The graph maps ``images`` to ``logits``, in evaluation mode. It is compared with the model on several batch sizes and
    image sizes; the file is written, under its name at once, only if all logits agree up to 1e-4.

    Args:
        model: A model of this library, or another module that maps images to logits.
        path: The file, usually ``….onnx``.
        image_size: (height, width), by default those of training; (channels, height, width) for models without patches
            and modules of other libraries.
        dynamic_batch: Makes the batch size dynamic; otherwise it is 1.
        dynamic_size: Makes height and width dynamic: any multiples of the patch size from 2×2 patches on.
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
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; give a file, such as model.onnx")
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    if size > MAX_BYTES:
        raise InputError(f"{size / 2**30:.1f} GB of weights do not fit into an ONNX file, which holds 2 GB at most")
    for dtype in {parameter.dtype for parameter in model.parameters()} - {torch.float32}:
        raise InputError(f"a model in {dtype} is not exported to ONNX, only float32; export model.float()")
    runtime = _packages()
    module = ExportModule(model, settings)
    content = _converted(module)
    try:
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # errors are raised
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RunError(
            f"onnxruntime cannot load the exported model ({one_line(error)}); nothing was written"
        ) from error

    def run(*inputs: Tensor) -> Tensor:
        arrays = [one.cpu().numpy() for one in inputs]
        return torch.from_numpy(session.run(None, dict(zip(settings.input_names, arrays, strict=True)))[0])

    difference, checked = compare(module, run, "onnxruntime")
    write_bytes(Path(path), content)
    return OnnxExport(Path(path), settings.input_names, difference, checked)


def _packages() -> Any:
    """Returns onnxruntime; raises an InputError if one of the packages for ONNX is missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            package = import_module(name)
        except ImportError:
            raise InputError(f"export to ONNX needs the package {name}: pip install {name}") from None
    return package


def _converted(module: ExportModule) -> bytes:
    """Returns the ONNX file of a module."""
    program = trace(module)
    with evaluating(module):
        try:
            converted = torch.onnx.export(
                with_onnx_operators(program),
                input_names=list(module.settings.input_names),
                output_names=["logits"],
                dynamo=True,
                verbose=False,
            )
        except Exception as error:
            cause = error.__cause__ or error
            raise InputError(f"a part of this model has no form in ONNX ({one_line(cause)})") from error
    assert converted is not None
    proto = converted.model_proto
    kinds = {value.type.tensor_type.elem_type for value in proto.graph.value_info}
    kinds |= {tensor.data_type for tensor in proto.graph.initializer}
    if kinds & {14, 15}:  # complex64, complex128 in the enumeration of ONNX
        raise InputError("a part of this model computes with complex numbers, which most ONNX runtimes do not support")
    if proto.ByteSize() > 2**31 - 1:
        raise InputError("the exported model is larger than 2 GB, the limit of an ONNX file")
    return proto.SerializeToString()
