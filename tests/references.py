"""Implementations by others: importable beside a CPU build of torch, or written as published."""

import importlib
import math
import random
import types
import warnings

import numpy as np
import pytest
import torch


def peer(name: str):
    """Another library's module; the test is skipped where it is not installed."""
    if name.split(".")[0] in ("timm", "torchmetrics", "lpips", "vit_pytorch", "transformers"):
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


def published_mask(grid, ratio, min_area, max_area):
    """The mask of the published code of MJP (rows, columns), cell by cell: 1 where masked."""
    height, width = grid
    mask, count = np.zeros(grid, int), 0
    target = int(ratio * height * width)
    while count < target:
        room, added = min(target - count, max_area), 0
        for _ in range(10):
            area = random.uniform(min_area, room)
            aspect = math.exp(random.uniform(math.log(0.3), math.log(1 / 0.3)))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if w < width and h < height:
                top, left = random.randint(0, height - h), random.randint(0, width - w)
                if 0 < h * w - mask[top : top + h, left : left + w].sum() <= room:
                    for row in range(top, top + h):
                        for column in range(left, left + w):
                            if not mask[row, column]:
                                mask[row, column] = 1
                                added += 1
            if added:
                break
        if not added:
            break
        count += added
    return mask


class DoubleTorch(types.ModuleType):
    """torch for a module that computes tables of positions: float32 is float64 there, so that nothing is rounded."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def compute_in_double(monkeypatch) -> None:
    """Makes timm and Hugging Face compute their rotary tables in float64, and float64 the default, in a test."""
    peer("timm")
    double = DoubleTorch("torch")
    for name in ("timm.layers.pos_embed_sincos", "transformers.models.dinov3_vit.modeling_dinov3_vit"):
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "torch", double)
        classes = [vars(one) for one in vars(module).values() if isinstance(one, type)]
        for function in (one for home in (vars(module), *classes) for one in list(home.values())):
            if torch.float32 in (getattr(function, "__defaults__", None) or ()):
                defaults = tuple(torch.float64 if one is torch.float32 else one for one in function.__defaults__)
                monkeypatch.setattr(function, "__defaults__", defaults)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
