"""Writes a converted model in a format: under a temporary name, which is checked and then renamed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vitpos.data import DATASETS
from vitpos.errors import InputError
from vitpos.files import explain_os_errors, read_tensors, write_json, write_tensors
from vitpos.interop.huggingface_folder import without_messages
from vitpos.interop.library_export import LibraryExport, huggingface_files, timm_arguments, timm_files
from vitpos.interop.onnx import export_onnx
from vitpos.interop.preprocessing import PREPROCESSOR
from vitpos.interop.source_model import SourceModel
from vitpos.interop.step_reports import StepReport, largest_difference, random_images
from vitpos.lab.cells import Cell
from vitpos.lab.format_version import FORMAT_VERSION
from vitpos.models.base import PatchClassifier, Shape
from vitpos.registry.specs import Term
from vitpos.training.recipe import Recipe

Format = Literal["vitpos", "timm", "hf", "onnx"]
WEIGHTS, CONFIG = "model.safetensors", "config.json"
RESIZE_VIEW = "resize"


def check_output(out: Path, to: Format) -> None:
    """Raises an InputError if ``out`` exists already, or its name does not fit the format."""
    if os.path.lexists(out):
        raise InputError(f"{out} already exists; give a new name, or remove it")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder; create it first")
    suffixes = {"vitpos": (".safetensors",), "onnx": (".onnx",), "timm": (".safetensors", ""), "hf": ("",)}[to]
    if out.suffix.lower() not in suffixes:
        wanted = " or ".join(f"a file {one}" if one else "a folder, a name without a dot" for one in suffixes)
        raise InputError(f"{out} does not fit the format {to!r}; give {wanted}")


def write_model(
    source: SourceModel, out: Path, to: Format, *, dynamic_size: bool = False, positions_as_inputs: bool = False
) -> StepReport:
    """Writes a model as a file or a folder, and returns a report of its weights and outputs after it was read again.

    The result is written under a temporary name beside ``out``, checked, then renamed: `RunError` or `InputError` if the
    model of ``timm``, ``hf`` or ``onnx`` has other outputs. The format ``vitpos`` is compared too, without a tolerance:
    the report states the difference. ``timm`` and ``hf`` with a folder write ``model.safetensors`` and ``config.json``.
    """
    check_output(out, to)
    with _staged(out) as staged:
        if to == "onnx":
            return _write_onnx(source, staged, dynamic_size=dynamic_size, positions_as_inputs=positions_as_inputs)
        return {"vitpos": _write_vitpos, "timm": _write_timm, "hf": _write_huggingface}[to](source, staged)


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """Context manager that gives a path in a temporary folder, and moves what was written there to ``out`` at the end."""
    with explain_os_errors(out), tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        staged = Path(folder) / out.name
        yield staged
        if os.path.lexists(out):
            raise InputError(f"{out} already exists; give a new name, or remove it")
        staged.rename(out)


def _write_vitpos(source: SourceModel, out: Path) -> StepReport:
    state = source.model.state_dict()
    write_tensors(out, state, {"cell": json.dumps(cell_of(source))})
    stored, _ = read_tensors(out)
    again = source.spec.build().to(next(source.model.parameters()).dtype).eval()
    again.load_state_dict(stored)
    same, difference = _compare(source, state, stored, again)
    numbers = {"tensors": len(state), "tensors_equal": same, "output_difference": difference}
    return StepReport("format", "weights file of vitpos", numbers)


def _compare(
    source: SourceModel, state: Mapping[str, Tensor], again: Mapping[str, Tensor], model: Callable[[Tensor], Tensor]
) -> tuple[int, float]:
    """Returns the number of tensors that are equal bit for bit, and the largest difference of outputs."""
    same = sum(name in again and torch.equal(tensor, again[name].cpu()) for name, tensor in state.items())
    dtype = next(source.model.parameters()).dtype
    images = random_images(source.spec.image_shape, dtype)
    with torch.inference_mode():
        return same, largest_difference(source.model(images), model(images))


def _write_timm(source: SourceModel, out: Path) -> StepReport:
    files = timm_files(source)
    about = {"architecture": files.config["architecture"], "model_args": json.dumps(files.config["model_args"])}
    return _write_library(files, out, about)


def _write_huggingface(source: SourceModel, out: Path) -> StepReport:
    files = huggingface_files(source)  # refuses if transformers is missing
    with without_messages():
        files.model.save_pretrained(out)  # under the names of published files, which may differ from those in memory
    if stated := source.preprocessing.huggingface_config(source.spec.image_shape[1:]):
        write_json(out / PREPROCESSOR, stated)
    return files.report


def _write_library(files: LibraryExport, out: Path, about: Mapping[str, str]) -> StepReport:
    """Writes the weights and the configuration of a library: a folder, or a single file that states ``about``."""
    if out.suffix:
        write_tensors(out, files.tensors, {"format": "pt", **about})
        return files.report
    out.mkdir()
    write_json(out / CONFIG, files.config)
    write_tensors(out / WEIGHTS, files.tensors, {"format": "pt"})
    return files.report


def _write_onnx(source: SourceModel, out: Path, *, dynamic_size: bool, positions_as_inputs: bool) -> StepReport:
    shape = source.spec.image_shape
    export = export_onnx(
        source.model,
        out,
        image_size=shape[1:] if isinstance(source.model, PatchClassifier) else shape,
        dynamic_size=dynamic_size,
        positions_as_inputs=positions_as_inputs,
    )
    sizes = ", ".join(
        f"{height}x{width}" for height, width in dict.fromkeys(tuple(size) for _, *size in export.checked)
    )
    note = f"inputs: {', '.join(export.inputs)}; compared with onnxruntime on images of {sizes}"
    return StepReport("format", "ONNX", {"output_difference": export.difference}, note)


def cell_of(source: SourceModel) -> dict[str, Any]:
    """Returns the settings that a weights file of a converted model states, so that `vitpos.load` builds it again.

    The data are those of the original training, resized if the images have another size now; empty if they are unknown.
    """
    stored: Mapping[str, Any] = source.about.get("cell", {})
    spec = source.spec
    count = spec.num_classes
    classes = list(stored.get("classes", ()) or source.class_names) or [str(number) for number in range(count)]
    data = str(stored.get("data", ""))
    if data and source.about["image_shape"] != spec.image_shape:
        data = resized_data(data, spec.image_shape)
    cell = asdict(Cell(data, spec.model, spec.encoding, int(stored.get("seed", 0)), Recipe(), ()))
    origin = {}
    if source.origin.architecture:
        origin = {"origin": {"timm": source.origin.architecture, "model_args": timm_arguments(source)}}
    stated = asdict(source.preprocessing).items()
    preprocessing = {key: value for key, value in stated if value is not None and key not in ("source", "size")}
    kept = {key: stored[key] for key in ("train", "evaluations", "varied") if key in stored}
    return {
        "format_version": FORMAT_VERSION,
        **cell,
        **kept,
        **origin,
        "classes": classes,
        "image_shape": spec.image_shape,
        "plugins": stored.get("plugins", {}),
        **({"preprocessing": preprocessing} if preprocessing else {}),
    }


def resized_data(data: str, shape: Shape) -> str:
    """Returns the spec of a data set whose images have the height and width of ``shape``.

    Images of files are decoded at this size; others are resized by the view ``resize``.
    """
    terms = DATASETS.parse(data)
    size = (shape[1], shape[2])
    if {"path", "size"} <= set(DATASETS.describe(terms[0].name).options):
        terms = [Term(terms[0].name, terms[0].options | {"size": size}), *terms[1:]]
        return " + ".join(map(str, terms))
    while terms[-1].name == RESIZE_VIEW:
        terms = terms[:-1]
    return " + ".join(map(str, [*terms, Term(RESIZE_VIEW, {"size": size})]))
