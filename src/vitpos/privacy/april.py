"""APRIL's closed-form attack (Lu et al., CVPR 2022): tokens from the gradient of the first attention, then pixels."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.base import Classifier
from vitpos.models.token_embedding import input_vectors
from vitpos.models.vit import AprilBlock, ViT
from vitpos.patches import patchify, unpatchify
from vitpos.privacy.client import Client, SharedGradient
from vitpos.privacy.closed_form import (
    Attacker,
    attacker_view,
    error_std,
    separable_system,
    truncated_svd_solve,
)
from vitpos.privacy.reconstruction import NotApplicable, Progress, Reconstruction, run_attack


def april(
    ctx: EvalContext,
    *,
    attacker: Literal["naive", "detects_hidden", "knows_mask"] = "naive",
    loss_known: bool = True,
    **client: Annotated[Any, Client],
) -> Result:
    """Reconstructs images in closed form from the gradient of the first attention (APRIL; Lu et al., CVPR 2022).

    If the T tokens z (T, D) enter the first block only through queries, keys and values, with the stacked weight W, then
    aᵀ z = Wᵀ ∂l/∂W for the loss l and the token gradients a = ∂l/∂z. The gradients of the position table and of the prefix
    tokens (CLS and registers) give a, and z determines the patches: exactly if a patch has at most D pixel values,
    otherwise as the least-norm solution. The attack needs a first block without norm and residual connection,
    ``vit(april_block=True)``.
    The metrics are those of ``closed_form`` (mse, psnr, ssim, ranks, condition numbers and so on) without
    ``exact_fraction``, and two more. token_error: ‖P x' − P x‖ / ‖P x‖, where P is the patch projection, x the patches of
    the image and x' those of the reconstruction. lost_by_projection: fraction of the squared norm of the pixels that lies
    in the null space of P and cannot be reconstructed even from the true tokens.
    More options are those of the attacked client, such as ``images``, ``scenario`` and ``defense``.

    Args:
        attacker: What the attacker knows about hidden positions (those that the client's model must not use, as in MJP):
            ``"naive"`` assumes that there are none; ``"detects_hidden"`` detects them as positions without gradient;
            ``"knows_mask"`` is given the mask.
        loss_known: Whether the attacker knows that the client's loss contains the encoding's penalty, such as MJP's
            localization loss. True: the informed attacker subtracts the gradient of the penalty, which does not depend on
            the image, from that of the position table. False: the literal attacker takes the shared gradient of the
            table for a, as equation 9 of MJP does. Without a penalty both are the same.
    """

    def attack(model: Classifier, shared: SharedGradient, progress: Progress) -> Reconstruction:
        return with_token_metrics(model, shared, invert_gradient(model, shared, attacker, loss_known=loss_known))

    return run_attack(Client(ctx, **client), attack)


def invert_gradient(
    model: Classifier, shared: SharedGradient, attacker: Attacker = "naive", *, loss_known: bool = True
) -> Reconstruction:
    """Reconstructs one image from its shared gradient by APRIL; returns a `Reconstruction`.

    Raises NotApplicable if the model's first block or its encoding does not allow the attack.

    Args:
        model: The model in double precision.
        shared: The gradient that the client shares.
        attacker: What the attacker knows about hidden positions, which the client's model does not use: ``"naive"`` assumes
            that there are none, ``"detects_hidden"`` detects positions without gradient, ``"knows_mask"`` is given them.
        loss_known: True subtracts the gradient of the encoding's penalty before solving (informed attacker); False solves
            on the shared gradient of the whole loss (literal attacker).
    """
    if not isinstance(model, ViT) or not isinstance(model.blocks[0], AprilBlock):
        raise NotApplicable(
            "its first attention has a norm or residual connection, or the model is not a vit; build vit(april_block=True)"
        )
    gradients, pos = attacker_view(model, shared, attacker, loss_known=loss_known)
    added, additive = input_vectors(model.encoding, pos, model.project.weight[:, 0])
    if not additive:
        raise NotApplicable("its encoding adds something before the first block that depends on the tokens")
    system = separable_system(model, gradients, pos)
    token_gradients = system.solve()
    if model.prefix_tokens is not None:
        token_gradients = torch.cat([gradients["prefix_tokens"], token_gradients])
    name = "blocks.0.attention.qkv.weight"
    rhs = model.get_parameter(name).mT @ gradients[name]
    max_rank = system.rank + len(token_gradients) - pos.index.shape[1]  # prefix tokens have gradients of their own
    tokens, rank, condition = truncated_svd_solve(
        token_gradients, rhs, shared, error_std(model, shared, pos), max_rank=max_rank
    )
    with torch.no_grad():
        patches = tokens[model.geometry.num_prefix :] - added[0] - model.project.bias
        pixels = _least_norm_pixels(model, patches)
    diagnostics = system.diagnostics(rank, condition, num_prefix=model.geometry.num_prefix)
    return Reconstruction(unpatchify(pixels[None], pos.grid, model.patch), diagnostics)


def with_token_metrics(model: Classifier, shared: SharedGradient, found: Reconstruction) -> Reconstruction:
    """Returns a copy of the reconstruction ``found`` with two more metrics among its diagnostics.

    They compare it with the true image of the client in ``shared``. ``token_error`` is the relative error of the patches
    after the patch projection. ``lost_by_projection`` is the fraction of the squared norm of the true pixels that lies in
    the null space of the patch projection.
    """
    assert isinstance(model, ViT)
    with torch.no_grad():
        pixels, found_pixels = (patchify(x.double(), model.patch)[0] for x in (shared.image, found.image))
        tokens, found_tokens = model.project(pixels), model.project(found_pixels)
        kept = _least_norm_pixels(model, tokens - model.project.bias)
        error = (found_tokens - tokens).norm() / (tokens - model.project.bias).norm()
        lost = (pixels - kept).square().sum() / pixels.square().sum()
    diagnostics = {**found.diagnostics, "token_error": float(error), "lost_by_projection": float(lost)}
    return replace(found, diagnostics=diagnostics)


def _least_norm_pixels(model: ViT, patches: Tensor) -> Tensor:
    """Returns the pixels (N, P) of least norm that the patch projection, without its bias, maps to ``patches`` (N, D).

    N is the number of patches, P the number of pixel values in a patch.
    """
    return torch.linalg.lstsq(model.project.weight, patches.mT, driver="gels").solution.mT
