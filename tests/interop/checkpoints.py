"""Small checkpoints in the formats of several libraries, and files that hold them."""

import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.references import peer
from vitpos.errors import InputError
from vitpos.interop.checkpoint import read_checkpoint

GRID, DIM, HEADS = (3, 5), 8, 2
COUNT = GRID[0] * GRID[1]


def random(*shape):
    """Normal values, the same for the same shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def vit(*, prefix=1, tokens=("cls_token",), dim=DIM, depth=2):
    """State dict of a small ViT with timm's names: patches of 2×4 pixels, a table of 3×5 positions."""
    state = {token: random(1, 1, dim) for token in tokens}
    state["pos_embed"] = random(1, prefix + COUNT, dim)
    state |= {"patch_embed.proj.weight": random(dim, 3, 2, 4), "patch_embed.proj.bias": random(dim)}
    for layer in range(depth):
        block = f"blocks.{layer}."
        state |= {block + "attn.qkv.weight": random(3 * dim, dim), block + "mlp.fc1.weight": random(4 * dim, dim)}
    return state


def hugging_face(state, root="vit."):
    """The same state with Hugging Face's names, which separate queries, keys and values."""
    names = {
        "cls_token": "embeddings.cls_token",
        "dist_token": "embeddings.distillation_token",
        "pos_embed": "embeddings.position_embeddings",
        "patch_embed.proj": "embeddings.patch_embeddings.projection",
        "blocks.": "encoder.layer.",
        "mlp.fc1": "intermediate.dense",
    }
    renamed = {}
    for name, tensor in state.items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        if "attn.qkv" in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                renamed[root + name.replace("attn.qkv", f"attention.attention.{part}")] = piece
        else:
            renamed[root + name] = tensor
    return renamed


def jax(state):
    """The same state as google-research/vision_transformer saves it: kernels (in, out), heads as an axis, slashes."""
    found = {
        "cls": state["cls_token"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "embedding/kernel": state["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
    }
    for layer in range(2):
        for part in ("query", "key", "value"):
            name = f"Transformer/encoderblock_{layer}/MultiHeadDotProductAttention_1/{part}/kernel"
            found[name] = random(DIM, HEADS, DIM // HEADS)
    return found


def save(path, state, **options):
    """Saves a state dict in the format of the file name; returns the path."""
    if path.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path, **options)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    else:
        torch.save(state, path, **options)
    return path


LIBRARIES = {
    "timm": lambda state: {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 3},
    "MAE": lambda state: {
        "model": state | {"decoder_pos_embed": random(1, 1 + COUNT, 4), "mask_token": random(1, 1, 4)}
    },
    "DINO": lambda state: {
        "student": {f"module.backbone.{name}": -tensor for name, tensor in state.items()},
        "teacher": {f"backbone.{name}": tensor for name, tensor in state.items()},
        "optimizer": {"state": {0: {"exp_avg": random(3)}}},
    },
    "DINOv2": lambda state: state | {"mask_token": random(1, DIM), "blocks.0.ls1.gamma": random(DIM)},
    "OpenMMLab": lambda state: {
        "state_dict": {"backbone." + name.replace(".proj", ".projection"): tensor for name, tensor in state.items()}
    },
    "torchvision": lambda state: {
        "class_token": state["cls_token"],
        "conv_proj.weight": state["patch_embed.proj.weight"],
        "encoder.pos_embedding": state["pos_embed"],
        "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": random(3 * DIM, DIM),
        "encoder.layers.encoder_layer_1.self_attention.in_proj_weight": random(3 * DIM, DIM),
    },
    "OpenAI CLIP": lambda state: {
        "positional_embedding": random(77, 4),
        "visual.positional_embedding": state["pos_embed"][0],
        "visual.class_embedding": state["cls_token"][0, 0],
        "visual.conv1.weight": state["patch_embed.proj.weight"],
        "visual.transformer.resblocks.0.attn.in_proj_weight": random(3 * DIM, DIM),
        "visual.transformer.resblocks.1.attn.in_proj_weight": random(3 * DIM, DIM),
    },
    "Hugging Face ViT": hugging_face,
    "Hugging Face DINOv2": lambda state: hugging_face(
        state | {"blocks.0.layer_scale1.lambda1": random(DIM)}, "dinov2."
    ),
    "Hugging Face ViT-MAE": lambda state: hugging_face(state) | {"decoder.decoder_pos_embed": random(1, 1 + COUNT, 4)},
    "JAX": jax,
}


def swin_index(grid):
    """Swin's relative_position_index (N, N)."""
    positions = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1]))
    offsets = positions[:, None] - positions + torch.tensor(grid) - 1
    return offsets[..., 0] * (2 * grid[1] - 1) + offsets[..., 1]


def mae(grid, dim):
    """MAE's sin-cos table (N, D): the first half of a vector depends on the column, the second on the row."""
    rows, columns = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in grid), indexing="ij")
    frequencies = 10000 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    angles = [side.flatten()[:, None] * frequencies for side in (columns, rows)]
    return torch.cat([part for half in angles for part in (half.sin(), half.cos())], 1).float()


FILE_FORMATS = [
    ("x.safetensors", {}),
    ("x.pth", {}),
    ("x.pt", {"_use_new_zipfile_serialization": False}),
    ("x.npz", {}),
    ("misnamed.bin", {}),
]
ODD_NAMES = ["a\nb", "\x1b[31mred\x1b[0m", "\u202eright to left", "$\\frac$", "\ud800", "long" * 90]


def timm_state(name, **options):
    """State dict of a new timm model."""
    with warnings.catch_warnings(action="ignore"):
        return peer("timm").create_model(name, **options).state_dict()


def assert_rejected(path, match, **options):
    """Reading the checkpoint raises one line that matches, without a warning."""
    with warnings.catch_warnings(action="error"), pytest.raises(InputError, match=match) as caught:
        read_checkpoint(path, **options)
    assert_one_line(caught.value, path)


def assert_one_line(error, path):
    """The message is one printable line of moderate length that names the file."""
    message = str(error)
    assert message.isprintable() and len(message) < 600 + len(str(path)) and str(path) in message
