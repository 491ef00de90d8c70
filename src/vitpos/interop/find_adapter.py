"""Finds the Vision Transformer in a module and the adapter of its family, for `vitpos.attach`."""

from __future__ import annotations

from torch import nn

from vitpos.errors import InputError
from vitpos.interop.adapters import Adapter
from vitpos.interop.huggingface_adapter import HuggingFaceAdapter
from vitpos.interop.timm_adapter import EvaAdapter, TimmAdapter
from vitpos.interop.torch_adapter import TransformerEncoderAdapter

ATTACHABLE = "timm's VisionTransformer and Eva, Hugging Face's ViT, DeiT, DINOv2 and DINOv3, torch's TransformerEncoder"


ADAPTERS = (TimmAdapter, EvaAdapter, HuggingFaceAdapter)  # of models that get images


def has_adapter(module: nn.Module) -> bool:
    """Returns whether `vitpos.attach` takes a model without the argument ``adapter``."""
    return any(
        isinstance(one, nn.TransformerEncoder) or any(known.fits(one) for known in ADAPTERS) for one in module.modules()
    )


def find_model(
    model: nn.Module, adapter: Adapter | None, grid: tuple[int, int] | None, num_prefix: int
) -> tuple[nn.Module, Adapter]:
    """Returns the module to which an encoding is attached, and its adapter.

    With an ``adapter`` this is ``model`` itself; otherwise the first of its submodules that belongs to a known family.
    ``grid`` and ``num_prefix`` describe the tokens of a torch ``TransformerEncoder``; other models have a grid already.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"attach needs a torch module, got {type(model).__name__}; pass the model itself")
    if adapter is not None:
        if not isinstance(adapter, Adapter):
            given = adapter.__name__ if isinstance(adapter, type) else type(adapter).__name__
            raise InputError(f"adapter={given} is not an instance of vitpos.Adapter; give one, such as {given}()")
        return model, adapter
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            return module, TransformerEncoderAdapter(module, grid, num_prefix)
        for known in ADAPTERS:
            if known.fits(module):
                if grid is not None or num_prefix:
                    raise InputError(f"a {type(module).__name__} has a grid; leave out grid and num_prefix")
                return module, known()
    raise InputError(
        f"attach has no adapter for {type(model).__name__} (known: {ATTACHABLE}); if it is a Vision Transformer, pass "
        "adapter=, see vitpos.Adapter"
    )
