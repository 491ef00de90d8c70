"""APRIL's closed form (Lu et al., CVPR 2022): tokens from the gradients of the first attention, then their patches."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from vitpos.attacks.equations import only_adds, what_is_added
from vitpos.attacks.projection import Attacker, as_seen, deviation, solve, told_apart
from vitpos.attacks.recovery import Found, Inapplicable, Recovery, recover
from vitpos.attacks.victim import Case, Client, exact
from vitpos.data.dataset import Dataset
from vitpos.models.base import Classifier
from vitpos.models.vit import Bare, ViT
from vitpos.patches import patchify, unpatchify


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
    defense: str | None = None,
    seed: int = 0,
) -> Recovery:
    """Pixels from the gradients of the first attention and of what is added to tokens (Lu et al., CVPR 2022).

    If tokens z enter the first block by its queries, keys and values alone, aᵀ z = Wᵀ ∂l/∂W for their common matrix W and
    the gradients a at the tokens, which the gradients of the position table and of the prefix give away. Then z gives the
    patches, exactly if a patch has no more pixels than there are channels, else the smallest that fit. It needs
    a first block without norm and residuals, ``vit(april=True)``.
    Numbers and options are those of ``projection``, but for its ``residual``; token_error: length of what is wrong in the
    tokens of the picture found over that of the true ones. lost: share of the squared length of the pixels that the
    projection of patches does not keep, so that even true tokens do not give it.
    """
    client = Client(model, data, images, setting, ratio, told, precision, defense, seed)
    double = exact(model)
    return recover(client, lambda case: compared(double, case, invert(double, case, attacker)))


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
    tokens, rank, condition = solve(
        at_tokens, model.get_parameter(weight).mT @ gradients[weight], case, deviation(model, case, pos)
    )
    with torch.no_grad():
        patches = tokens[model.geometry.prefix :] - what_is_added(model, pos)[0] - model.project.bias
        pixels = _smallest(model, patches)
    about = told.judged(rank, condition, prefix=model.geometry.prefix)
    return Found(unpatchify(pixels[None], pos.grid, model.patch), about)


def compared(model: Classifier, case: Case, found: Found) -> Found:
    """With what only the client can say of an answer: how wrong its tokens are, and what no tokens give."""
    assert isinstance(model, ViT)
    with torch.no_grad():
        true, seen = (model.project(patchify(x.double(), model.patch)[0]) for x in (case.inputs, found.inputs))
        whole = patchify(case.inputs.double(), model.patch)[0]
        kept = _smallest(model, true - model.project.bias)
        error = (seen - true).norm() / (true - model.project.bias).norm()
        lost = (whole - kept).square().sum() / whole.square().sum()
    return replace(found, about={**found.about, "token_error": float(error), "lost": float(lost)})


def _smallest(model: ViT, patches: Tensor) -> Tensor:
    """(N, P): the smallest pixels that the projection makes into these (N, D), without its bias."""
    return torch.linalg.lstsq(model.project.weight, patches.mT, driver="gels").solution.mT
