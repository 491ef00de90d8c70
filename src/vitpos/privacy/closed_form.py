"""Closed-form attack on the gradient of the patch projection, for any ViT that adds trained vectors to its tokens.

The gradients a (N, D) of the loss at the N patch tokens solve a linear system M a = y: the matrix M depends on the
positions, and y contains the shared gradients of the encoding's vectors (`vitpos.privacy.linear_system`). If the system is
underdetermined, the ``null_space`` attacker improves on the least-norm solution (`vitpos.privacy.null_space`).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.token_embedding import input_vectors
from vitpos.patches import unpatchify
from vitpos.positions import Positions
from vitpos.privacy.client import Client, SharedGradient
from vitpos.privacy.linear_system import LinearSystem, subtract_penalty, token_gradient_system
from vitpos.privacy.null_space import null_space_basis, smooth_in_null_space
from vitpos.privacy.reconstruction import NotApplicable, Progress, Reconstruction, run_attack
from vitpos.training.defenses import Gradients

Attacker = Literal["naive", "detects_hidden", "knows_mask", "null_space"]


def closed_form(
    ctx: EvalContext,
    *,
    attacker: Attacker = "naive",
    loss_known: bool = True,
    **client: Annotated[Any, Client],
) -> Result:
    """Reconstructs images in closed form from the gradients of the patch projection and of the encoding's vectors.

    The token of patch i of N is z_i = W x_i + b + e_i, with the patch projection W and b, the pixels x_i and the vector e_i
    that the encoding adds. With the loss l and a_i = ∂l/∂z_i, the gradient of W is G = Σ a_i x_iᵀ, and the gradients of the
    trained parameters in e_i are linear equations for the a_i. Both linear systems are solved, first for the a_i, then for
    the x_i. Any blocks may follow, and a patch may have more pixel values than there are channels.
    mse, psnr, ssim, lpips, fourier, fft2d, fft2d_code: image metrics of the reconstructions against the targets, pixels 0
    to 1, mean over ``images``. fourier is one minus the cosine similarity of the Fourier magnitudes, fft2d that of the
    complex transforms (MJP's Table 5), fft2d_code the same as MJP's published code computes it, without complex
    conjugation. psnr_min, psnr_max: lowest and highest PSNR of the images (320 dB for identical images). psnr_mean_image:
    PSNR of a constant image of the data's mean color, the baseline without information. psnr_own_mean: PSNR of a constant
    image of the target's own mean color. psnr_gain: psnr minus psnr_own_mean, in dB. psnr_visible: PSNR over the patches
    whose positions the client did not hide.
    patches_exact: fraction of the patches whose pixels all differ by less than half of 1/255. patches_placed: fraction of
    the patches that are nearer to the target patch at their position than to any different patch of the target.
    rank_positions: rank of the equations for the a_i; a rank of N determines all of them. condition_positions: condition
    number of these equations, median over images (1 for a position table). rank: rank of the a_i up to rounding and noise.
    condition: condition number of the a_i, median over images. underdetermined: fraction of the images for which one of the
    two ranks is less than N, so that the reconstruction is a least-norm solution. exact_fraction: for the attacker
    ``null_space``, fraction of the directions in pixel space in which the reconstruction is exact nevertheless.

    All attackers are assumed to know the std of the client's noise, and that pruned numbers are smaller than shared ones.
    More options are those of the attacked client, such as ``images``, ``scenario`` and ``defense``.

    Args:
        attacker: What the attacker knows about hidden positions, which the client's model does not use: it adds one vector
            for unknown positions instead (MJP). ``"naive"`` assumes that there are none. ``"detects_hidden"`` detects them
            as positions without gradient, and uses the gradient of the vector for unknown positions as one more equation.
            ``"knows_mask"`` is given the mask. ``"null_space"`` works as ``"detects_hidden"`` and also finds, from the part
            of G that the equations do not explain, the directions in which patches cannot be distinguished: outside them
            the reconstruction is exact up to noise, inside them it is the smoothest image.
        loss_known: Whether the attacker knows that the client's loss contains the encoding's penalty, such as MJP's
            localization loss. True: the informed attacker subtracts the gradient of the penalty, which does not depend on
            the image, before solving. False: the literal attacker solves the equations on the shared gradient of the whole
            loss, which differs from the a_i by the gradient of the penalty. Without a penalty both are the same.
    """

    def attack(model: Classifier, shared: SharedGradient, progress: Progress) -> Reconstruction:
        return invert_gradient(model, shared, attacker, loss_known=loss_known)

    return run_attack(Client(ctx, **client), attack)


def invert_gradient(
    model: Classifier, shared: SharedGradient, attacker: Attacker = "naive", *, loss_known: bool = True
) -> Reconstruction:
    """Reconstructs one image from its shared gradient in closed form; returns a `Reconstruction`.

    Raises NotApplicable if the model or its encoding does not allow the attack.

    Args:
        model: The model in double precision.
        shared: The gradient that the client shares.
        attacker: What the attacker knows about hidden positions, which the client's model does not use: ``"naive"`` assumes
            that there are none, ``"knows_mask"`` is given them, ``"detects_hidden"`` detects positions without gradient,
            ``"null_space"`` does so too and takes the smoothest image where the gradient does not determine the pixels.
        loss_known: True subtracts the gradient of the encoding's penalty before solving (informed attacker); False solves
            on the shared gradient of the whole loss (literal attacker).
    """
    if not isinstance(model, PatchClassifier):
        raise NotApplicable("it has no projection of patches")
    if type(model).patch_tokens is not PatchClassifier.patch_tokens:
        raise NotApplicable(
            "it has a layer, such as a norm, between the projection of patches and the position encoding"
        )
    gradients, pos = attacker_view(model, shared, attacker, loss_known=loss_known)
    system = separable_system(model, gradients, pos)
    weight_gradient = gradients["project.weight"]
    pixels, rank, condition = truncated_svd_solve(
        system.solve(), weight_gradient, shared, error_std(model, shared, pos), max_rank=system.rank
    )
    diagnostics = system.diagnostics(rank, condition)
    if attacker == "null_space":
        noise_std = math.hypot(shared.noise_std, pruning_std(weight_gradient, shared.prune_threshold))
        basis = null_space_basis(system, weight_gradient, torch.finfo(shared.image.dtype).eps, noise_std)
        # the original image is not shuffled: hidden patches continue their neighbors too
        borders = pos.reveal() if shared.scenario == "find_original" else pos
        pixels = smooth_in_null_space(pixels, basis, borders, model.patch)
        diagnostics["exact_fraction"] = 1 - len(basis) / weight_gradient.shape[1]
    return Reconstruction(unpatchify(pixels[None], pos.grid, model.patch), diagnostics)


def separable_system(model: PatchClassifier, gradients: Gradients, pos: Positions) -> LinearSystem:
    """Returns the linear system M a = y for a (N, D), the gradients of the loss at the N patch tokens of one image.

    Raises NotApplicable if the equations only determine sums of a over tokens, not the gradients of single tokens.

    Args:
        gradients: Parameter name → shared gradient.
        pos: Positions that the attacker assumes for the patches.
    """
    system = token_gradient_system(model, gradients, pos)
    # two of the equations may be sums: over all tokens, and over those with hidden positions
    if system.rank < 2 + (pos.has_hidden and model.encoding.unknown_vector() is not None):
        if not input_vectors(model.encoding, pos, model.project.weight[:, 0])[1]:
            raise NotApplicable(
                "its encoding adds something before the first block that depends on the tokens, which hides their gradients"
            )
        raise NotApplicable(
            "no trained vector is added to tokens before the first block, and only the sum of their gradients is shared"
        )
    return system


def attacker_view(
    model: PatchClassifier, shared: SharedGradient, attacker: Attacker, *, loss_known: bool = True
) -> tuple[Gradients, Positions]:
    """Returns the input of a closed-form attack: gradients (parameter name → tensor) and positions of the patches.

    The gradients are the shared ones in double precision. With ``loss_known``, that of the penalty is subtracted, a loss
    that some encodings add and that does not depend on the image. The positions are those that an attacker such as
    ``"naive"`` or ``"knows_mask"`` assumes, see :func:`assumed_positions`.
    """
    if len(shared.image) != 1:
        raise InputError(
            f"a gradient of {len(shared.image)} images is a sum that closed forms cannot separate; share one image each"
        )
    pos = assumed_positions(model, shared, attacker)
    gradients = to_double(shared)
    if loss_known:
        gradients = subtract_penalty(model, gradients, pos, clipped=shared.clipped, pruned=shared.pruned)
    return gradients, pos


def assumed_positions(model: PatchClassifier, shared: SharedGradient, attacker: Attacker) -> Positions:
    """Returns the positions that an attacker assumes for the client's patches.

    ``"naive"`` assumes the positions of the grid; ``"knows_mask"`` is given the positions that the client's model got.
    ``"detects_hidden"`` and ``"null_space"`` assume the positions of the grid. If the encoding has a vector for unknown
    positions, they mark positions without gradient as hidden, that is, not used by the client's model.
    """
    pos = model.positions(shared.image)
    if attacker == "knows_mask":
        return shared.positions or pos
    if attacker == "naive" or model.encoding.unknown_vector() is None:
        return pos
    # the sum over all tokens includes the hidden ones
    system = token_gradient_system(model, to_double(shared), pos, include_sum=False)
    size = system.solve().abs().amax(1)  # (N,)
    tolerance = 1e-12 if system.is_table else torch.finfo(shared.image.dtype).eps ** 0.5
    return pos.hide(size[None] <= max(tolerance * float(size.max()), 5 * system.noise_gain * shared.noise_std))


def truncated_svd_solve(
    token_gradients: Tensor,
    rhs: Tensor,
    shared: SharedGradient,
    noise_std: float = 0.0,
    *,
    max_rank: int | None = None,
) -> tuple[Tensor, int, float]:
    """Solves aᵀ x = ``rhs`` for x, where a is ``token_gradients``; returns x (T, P) of least norm, rank and condition of a.

    Singular values of a that rounding, noise or pruning alone could cause are taken as zero.

    Args:
        token_gradients: a (T, D), the gradients of the loss at T tokens of width D, with prefix tokens only in APRIL.
        rhs: (D, P), P values for each channel, such as the gradient of the patch projection.
        shared: The shared gradient; its precision and pruning determine which singular values are errors.
        noise_std: Std of the noise in a.
        max_rank: Rank of the linear system of which a is a solution; smaller singular values are rounding errors.
    """
    left, values, right = torch.linalg.svd(token_gradients, full_matrices=False)
    if not values[0]:
        raise NotApplicable("no position has its own gradient, because the client hides all of them")
    rounding = max(token_gradients.shape) * torch.finfo(values.dtype).eps
    kept = values > values[0] * max(torch.finfo(shared.image.dtype).eps, rounding)
    kept &= values > noise_std * sum(side**0.5 for side in token_gradients.shape)  # largest singular value of the noise
    kept &= values > pruning_std(rhs, shared.prune_threshold)  # bounds the error of normalized pixels, of order 1
    if max_rank is not None:
        kept[max_rank:] = False
    kept[0] = True
    inverse = torch.where(kept, 1 / values, 0)
    x = left @ (inverse[:, None] * (right @ rhs))
    return x, int(kept.sum()), float(values[0] / values[kept][-1])


def error_std(model: PatchClassifier, shared: SharedGradient, pos: Positions) -> float:
    """Returns the std of the error that noise and pruning cause in the shared gradients of encoding and projection bias.

    The gradients at the tokens are computed from these by a linear system, which may increase the error. The increase is
    not included, because reconstructions with it were no better. ``shared`` has the gradients and what is known of noise
    and pruning; ``pos`` are the positions that the attacker assumes for the patches.
    """
    if shared.prune_threshold is None:
        return shared.noise_std
    rhs = token_gradient_system(model, to_double(shared), pos).rhs
    return math.hypot(shared.noise_std, pruning_std(rhs, shared.prune_threshold))


def to_double(shared: SharedGradient) -> Gradients:
    """Returns the shared gradients in double precision, as parameter name → tensor."""
    return {name: g.double() for name, g in shared.gradients.items()}


def pruning_std(gradient: Tensor, prune_threshold: float | None) -> float:
    """Returns the root mean square error that pruning causes in a shared gradient; 0 without a threshold.

    Numbers up to the threshold are regarded as pruned. Before pruning, their magnitudes are assumed to be uniform from 0 to
    the smallest magnitude that was not pruned.
    """
    if prune_threshold is None:
        return 0.0
    pruned = gradient.abs() <= prune_threshold
    smallest = gradient.abs().masked_fill(pruned, torch.inf).min()
    return float((pruned.double().mean() / 3).sqrt() * smallest) if pruned.any() and not pruned.all() else 0.0
