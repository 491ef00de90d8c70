"""APRIL's closed form (Lu et al., CVPR 2022): tokens from the gradients of the first attention, then their patches."""

from __future__ import annotations

from typing import Literal

import torch

from vitpos.attacks.equations import only_adds, what_is_added
from vitpos.attacks.projection import Attacker, as_seen, solve, told_apart
from vitpos.attacks.recovery import Found, Inapplicable, Recovery, recover
from vitpos.attacks.victim import Case, Client, exact
from vitpos.data.base import Dataset
from vitpos.models.base import Classifier
from vitpos.models.vit import Bare, ViT
from vitpos.patches import join


def april(
    model: Classifier,
    data: Dataset,
    *,
    images: int = 8,
    setting: Literal["a", "b", "c"] = "a",
    ratio: float = 0.27,
    told: bool = True,
    attacker: Literal["naive", "unknown", "mask"] = "naive",
    precision: Literal["float64", "float32"] = "float64",
    defence: str | None = None,
    seed: int = 0,
) -> Recovery:
    """Pixels from the gradients of the first attention and of what is added to tokens (Lu et al., CVPR 2022).

    If tokens z enter the first block by its queries, keys and values alone, aᵀ z = Wᵀ ∂l/∂W for their common matrix W and
    the gradients a at the tokens, which the gradients of the position table and of the prefix give away. Then z gives the
    patches, exactly if a patch has no more pixels than there are channels, else the smallest that fit. It needs
    a first block without norm and residuals, ``vit(april=True)``.
    Numbers and options are those of ``projection``.
    """
    client = Client(model, data, images, setting, ratio, told, precision, defence, seed)
    double = exact(model)
    return recover(client, lambda case: invert(double, case, attacker))


def invert(model: Classifier, case: Case, attacker: Attacker = "naive") -> Found:
    """The picture behind one gradient; ``model`` in double precision."""
    if not isinstance(model, ViT) or not isinstance(model.blocks[0], Bare):
        raise Inapplicable("tokens do not enter its first attention alone and without a norm; build vit(april=True)")
    gradients, pos = as_seen(model, case, attacker)
    if not only_adds(model, pos):
        raise Inapplicable("what it adds before the first block depends on the tokens")
    told = told_apart(model, gradients, pos)
    at_tokens = told.solve()
    if model.prefix is not None:
        at_tokens = torch.cat([gradients["prefix"], at_tokens])
    weight = "blocks.0.attention.qkv.weight"
    tokens, rank, condition = solve(at_tokens, model.get_parameter(weight).mT @ gradients[weight], case)
    with torch.no_grad():
        patches = tokens[model.geometry.prefix :] - what_is_added(model, pos)[0] - model.project.bias
        pixels = torch.linalg.lstsq(model.project.weight, patches.mT, driver="gels").solution.mT
    return Found(join(pixels[None], pos.grid, model.patch), told.judged(rank, condition, prefix=model.geometry.prefix))
