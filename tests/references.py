"""Other people's implementations, made importable beside a CPU build of torch."""

import importlib
import warnings

import pytest
import torch


def peer(name: str):
    """Another library's module; the test is skipped where it is not installed."""
    if name.split(".")[0] in ("timm", "torchmetrics", "lpips", "vit_pytorch"):
        pretend_torchvision_operators()
    try:
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(name)
    except ImportError as error:
        return pytest.skip(f"{name} is not installed ({error})")


def pretend_torchvision_operators() -> None:
    """The registry's torchvision is built for CUDA and asks for operators that a CPU torch does not have."""
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    pretend_torchvision_operators.library = library  # kept, or the operators go with it
