"""timm's names of weights: ``load_timm(model, timm_model.state_dict())`` and ``to_timm(model)``.

Each family is a table from names in vitpos to timm's. Shapes differ in patch projections, which are convolutions in
timm, and in position tables, which are flat in timm.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from vitpos.encodings.relative import RelativeBias
from vitpos.errors import InputError
from vitpos.interop.names import SEPARATE_QKV, Names, Slot, load_state, require_counterparts, tensor_slots
from vitpos.models.base import Classifier
from vitpos.models.heads import CLSAndMeanHead, TanhHead
from vitpos.models.resnet import ResNet
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT

TRANSFORMER = {
    r"^project\.": "patch_embed.proj.",
    r"\.attention\.": ".attn.",
    r"\.mlp\.0\.": ".mlp.fc1.",
    r"\.mlp\.2\.": ".mlp.fc2.",
}
SWIN = TRANSFORMER | {
    r"^patch_norm\.": "patch_embed.norm.",
    r"^stages\.": "layers.",
    r"\.merge\.": ".downsample.",
    r"^head\.": "head.fc.",
}
RESNET = {
    r"^stages\.0\.": "layer1.",
    r"^stages\.1\.": "layer2.",
    r"^stages\.2\.": "layer3.",
    r"^stages\.3\.": "layer4.",
    r"norm": "bn",
    r"^bn\.": "bn1.",  # the stem's norm and convolution are numbered in timm only
    r"^conv\.": "conv1.",
    r"shortcut\.": "downsample.",
    r"^head\.": "fc.",
}
VIT = TRANSFORMER | {
    r"^stem\.": "norm_pre.",
    r"\.scale(\d)\.": r".ls\1.",
    r"^table$": "pos_embed",
    r"^frequencies$": "rope.freqs",
    r"^head\.(?=latent|in_proj|proj|norm|mlp)": "attn_pool.",  # of the head `attention`
    r"^head\.(linear|cls)\.": "head.",
    r"^head\.distilled\.": "head_dist.",
}
GAMMA = {r"\.ls(\d)\.gamma": r".gamma_\1"}  # how Eva names LayerScale
EVA = VIT | GAMMA
AXES = {r"_token$|^pos_embed$|^attn_pool\.latent$": 3}
POOL = {r"attn_pool\.in_proj\.": (("attn_pool.q.", 1), ("attn_pool.kv.", 2))}
PACKED_QKV = {r"\.qv_bias$": ((".q_bias", 1), (".v_bias", 1))}
GATED_MLP = {r"\.mlp\.fc1\.": ((".mlp.fc1_g.", 1), (".mlp.fc1_x.", 1))}


def vit_names(
    model: ViT,
    *,
    eva: bool = False,
    tokens: tuple[tuple[str, int], ...] | None = None,
    split_qkv: bool = False,
    split_mlp: bool = False,
) -> Names:
    """Returns timm's names of the weights of a vitpos ViT.

    Args:
        eva: Whether timm's model is an ``Eva``, which names LayerScale in another way.
        tokens: Names and numbers of the prefix tokens; by default ``cls_token``, if it is pooled, then ``reg_token``.
        split_qkv: Whether q, k and v have separate projections.
        split_mlp: Whether the two halves of a gated MLP are separate.
    """
    rename = dict(EVA if eva else VIT)
    if model.norm.after_pooling:
        rename |= {r"^norm\.": "fc_norm."}
    if tokens is None:
        cls = int(model.pool == "cls")
        tokens = (("cls_token", cls), ("reg_token", model.geometry.num_prefix - cls))
    split = POOL | (SEPARATE_QKV if split_qkv else PACKED_QKV) | (GATED_MLP if split_mlp else {})
    split |= {r"^prefix_tokens$": tuple((name, count) for name, count in tokens if count)}
    return Names("timm", rename, split, AXES)


def timm_slots(model: nn.Module) -> dict[str, Slot]:
    """Returns a dictionary from timm's tensor names to `Slot`s: views into the tensors of ``model``, in timm's shapes.

    A model that `vitpos.load` made of a timm model has the names of that model. Another ViT has those of timm's
    ``VisionTransformer``, or of ``Eva`` if it has rotary positions.
    """
    match model:
        case Swin():
            slots = tensor_slots(model, Names("timm", SWIN))
            for index, stage in enumerate(model.stages):
                # The class decides here, as that of the model does: timm has a counterpart of this encoding only.
                if isinstance(stage.encoding, RelativeBias):
                    del slots[f"layers.{index}.encoding.table"]
                    for layer, table in enumerate(stage.encoding.table.detach()):  # (2R−1, 2C−1, H)
                        name = f"layers.{index}.blocks.{layer}.attn.relative_position_bias_table"
                        slots[name] = Slot((table.flatten(0, 1),))
            return slots
        case ViT():
            return tensor_slots(model, _names_of(model))
        case ResNet():
            return tensor_slots(model, Names("timm", RESNET))
    raise InputError(f"timm has no counterpart of vitpos' {type(model).__name__}; use a swin, resnet or vit")


def _names_of(model: ViT) -> Names:
    known = model._weight_names
    if (
        isinstance(known, Names)
        and known.library == "timm"
        and (GAMMA.items() <= known.rename.items() or not is_eva(model))
    ):
        return known
    return vit_names(model, eva=is_eva(model))  # also for a model of timm to which rotary positions were added


def is_eva(model: Classifier) -> bool:
    """Returns whether a vitpos model that is not from timm is an ``Eva`` there: a ViT with rotary positions."""
    return isinstance(model, ViT) and "rotate" in model.encoding.hooks


def load_timm(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Loads the state dict of a timm Swin, ResNet or ViT into a vitpos model of the same shape, in place.

    Raises, and loads nothing, if a tensor is missing, unexpected or of another shape.

    Args:
        model: a ``swin`` or ``resnet`` without encoding, or a ``vit`` with ``learned(prefix_embed=True)``, whose table has
            a row for CLS as in timm.
        state: timm's ``state_dict()``.
    """
    load_state(timm_slots(model), "timm", state)


def to_timm(model: Classifier) -> dict[str, Tensor]:
    """Returns the weights of a vitpos ViT, Swin or ResNet under timm's names: a state dict that timm's model loads.

    If `vitpos.load` made the model of a timm model, it is the state dict of that model, bit for bit. Otherwise the
    names are those of timm's ``VisionTransformer``, or of ``Eva`` for a ViT with rotary positions.
    """
    unused = _names_of(model).unused if isinstance(model, ViT) else {}
    if isinstance(model, ViT):
        require_counterparts(model, "timm")
        if isinstance(model.head, TanhHead | CLSAndMeanHead):
            raise InputError(f"timm has no counterpart of the head {type(model.head).__name__}; use to_huggingface")
    state = {name: slot.read() for name, slot in timm_slots(model).items()}
    if own := [name for name in state if name.startswith("encoding.")]:
        raise InputError(
            f"timm has no counterpart of vitpos' {own[0]!r}; choose an encoding that timm has, such as learned"
        )
    return state | {name: tensor.clone() for name, tensor in unused.items()}
