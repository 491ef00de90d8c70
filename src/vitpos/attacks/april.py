"""APRIL's closed-form attack (Lu et al., CVPR 2022): tokens from the gradient of the first attention, then pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from vitpos.attacks.projection import Attacker, as_seen, deviation, solve, told_apart
from vitpos.attacks.recovery import Found, Inapplicable, recover
from vitpos.attacks.victim import Case, Client
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.attention import input_vectors
from vitpos.models.base import Classifier
from vitpos.models.vit import AprilBlock, ViT
from vitpos.patches import patchify, unpatchify


def april(
    ctx: EvalContext,
    *,
    images: int = 8,
    setting: Literal["a", "b", "c"] = "a",
    ratio: float = 0.27,
    told: bool = True,
    attacker: Literal["naive", "unknown", "mask"] = "naive",
    precision: Literal["float64", "float32"] = "float64",
    defense: str | None = None,
    seed: int = 0,
) -> Result:
    """Reconstructs images in closed form from the gradient of the first attention (APRIL; Lu et al., CVPR 2022).

    If the tokens z (T, D) enter the first block only through queries, keys and values, with the stacked weight W, then
    aᵀ z = Wᵀ ∂l/∂W. The token gradients a = ∂l/∂z follow from the gradients of the position table and of the prefix tokens,
    and z determines the patches: exactly if a patch has at most D pixel values, otherwise as the least-norm solution. The
    attack needs a first block without norm and residual connection, ``vit(april_block=True)``.
    The metrics are those of ``projection`` without ``outside``, and two more. token_error: ‖P x' − P x‖ / ‖P x‖, where P is
    the patch projection, x the patches of the image and x' those of the reconstruction. lost: fraction of the squared norm
    of the pixels that lies in the null space of P and cannot be reconstructed even from the true tokens.

    Args:
        images: Number of test images, each of which is attacked separately.
        setting: As in MJP's Table 5: ``"a"`` shares the gradient of the original image; ``"b"`` shuffles the patches under
            a mask, and the target is the shuffled image; ``"c"`` shuffles them, and the target is the original image.
        ratio: Maximum fraction of masked patches in settings b and c.
        told: Hides the masked positions from the client's model (mask-aware), if its encoding has an unknown vector.
        attacker: What the attacker knows about hidden positions: ``"naive"`` assumes that there are none; ``"unknown"``
            detects them as positions without gradient; ``"mask"`` is given the mask.
        precision: Floating-point type of the client's computation.
        defense: Defense applied to the gradient, such as ``clip + noise``; by default that of training.
        seed: Seed of masks, permutations and noise.
    """
    client = Client(ctx, images, setting, ratio, told, precision, defense, seed)
    return recover(client, lambda model, case, progress: compared(model, case, invert(model, case, attacker)))


def invert(model: Classifier, case: Case, attacker: Attacker = "naive") -> Found:
    """Reconstructs the image of one gradient; ``model`` is in double precision."""
    if not isinstance(model, ViT) or not isinstance(model.blocks[0], AprilBlock):
        raise Inapplicable(
            "its first attention has a norm or residual connection, or the model is no vit; build vit(april_block=True)"
        )
    gradients, pos = as_seen(model, case, attacker)
    added, nothing_else = input_vectors(model.encoding, pos, model.project.bias)
    if not nothing_else:
        raise Inapplicable("its encoding adds something before the first block that depends on the tokens")
    system = told_apart(model, gradients, pos)
    at_tokens = system.solve()
    if model.prefix_tokens is not None:
        at_tokens = torch.cat([gradients["prefix_tokens"], at_tokens])
    weight = "blocks.0.attention.qkv.weight"
    tokens, rank, condition = solve(
        at_tokens, model.get_parameter(weight).mT @ gradients[weight], case, deviation(model, case, pos)
    )
    with torch.no_grad():
        patches = tokens[model.geometry.num_prefix :] - added[0] - model.project.bias
        pixels = _smallest(model, patches)
    about = system.judged(rank, condition, prefix=model.geometry.num_prefix)
    return Found(unpatchify(pixels[None], pos.grid, model.patch), about)


def compared(model: Classifier, case: Case, found: Found) -> Found:
    """Adds the metrics ``token_error`` and ``lost``, which need the client's image, to a reconstruction."""
    assert isinstance(model, ViT)
    with torch.no_grad():
        tokens, found_tokens = (
            model.project(patchify(x.double(), model.patch)[0]) for x in (case.inputs, found.inputs)
        )
        pixels = patchify(case.inputs.double(), model.patch)[0]
        kept = _smallest(model, tokens - model.project.bias)
        error = (found_tokens - tokens).norm() / (tokens - model.project.bias).norm()
        lost = (pixels - kept).square().sum() / pixels.square().sum()
    return replace(found, about={**found.about, "token_error": float(error), "lost": float(lost)})


def _smallest(model: ViT, patches: Tensor) -> Tensor:
    """Returns the least-norm pixels (N, P) that the projection, without its bias, maps to ``patches`` (N, D)."""
    return torch.linalg.lstsq(model.project.weight, patches.mT, driver="gels").solution.mT
