"""The encoder of Hugging Face's MAE (``ViTMAEModel``, ``ViTMAEForPreTraining``) as its plain ViT."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

MAE, WITH_DECODER = "ViTMAEModel", "ViTMAEForPreTraining"


def plain_vit(module: nn.Module) -> nn.Module:
    """Returns a ``ViTModel`` without pooler that shares the weights of an MAE's encoder, or another module unchanged.

    It computes what the encoder computes if no patch is masked (``mask_ratio=0``). The decoder is left out.
    """
    kind = type(module)
    if not kind.__module__.startswith("transformers.") or kind.__name__ not in (MAE, WITH_DECODER):
        return module
    from transformers import ViTConfig, ViTModel

    encoder: Any = module.vit if kind.__name__ == WITH_DECODER else module
    known = ViTConfig().to_dict().keys() - {"model_type", "architectures"}
    config = ViTConfig(**{name: value for name, value in encoder.config.to_dict().items() if name in known})
    with torch.device("meta"):  # without memory: the tensors are those of the encoder
        model = ViTModel(config, add_pooling_layer=False)
    model.load_state_dict(encoder.state_dict(), assign=True)
    return model.train(module.training)
