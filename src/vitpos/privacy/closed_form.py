"""Closed-form attack on the gradient of the patch projection, for any ViT that adds trained vectors to its tokens.

The gradients a (N, D) of the loss at the N patch tokens solve a linear system M a = y: the matrix M depends on the
positions, and y contains the shared gradients of the encoding's vectors (`vitpos.privacy.linear_system`). If the system is
underdetermined, its solutions are a = M⁺y + Z b, where M⁺ is the pseudo-inverse, the columns of Z span the null space of M,
and b is unknown. The gradient of the weight of the patch projection is G = (M⁺y)ᵀ X + bᵀ Zᵀ X for the pixels X (N, P).
Projecting out the row space of M⁺y leaves a part of bᵀ Zᵀ X, whose row space V is that of ZᵀX, the differences between
patches that the equations do not distinguish. Outside V, ZᵀX is zero, so that the least-norm solution X is the true one
there. Inside V nothing is known, and the ``null_space`` attacker uses the smoothest image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.token_embedding import input_vectors
from vitpos.patches import patchify, unpatchify
from vitpos.positions import Positions
from vitpos.privacy.client import Client, SharedGradient
from vitpos.privacy.linear_system import LinearSystem, subtract_penalty, token_gradient_system
from vitpos.privacy.reconstruction import NotApplicable, Reconstruction, run_attack
from vitpos.training.defenses import Gradients

Attacker = Literal["naive", "detects_hidden", "knows_mask", "null_space"]
LEAST_NORM_WEIGHT = 0.1  # relative to smoothness; this and MAX_VALUE are tuned on 8 training images
MAX_VALUE = 2.5  # of normalized pixels; larger ones come from divisions by singular values that are too small
MAX_CG_STEPS = 200  # of conjugate gradients


def closed_form(
    ctx: EvalContext,
    *,
    attacker: Attacker = "naive",
    **client: Annotated[Any, Client],
) -> Result:
    """Reconstructs images in closed form from the gradients of the patch projection and of the encoding's vectors.

    The token of patch i of N is z_i = W x_i + b + e_i, with the patch projection W and b, the pixels x_i and the vector e_i
    that the encoding adds. With the loss l and a_i = ∂l/∂z_i, the gradient of W is G = Σ a_i x_iᵀ, and the gradients of the
    trained parameters in e_i are linear equations for the a_i. Both linear systems are solved, first for the a_i, then for
    the x_i. Any blocks may follow, and a patch may have more pixel values than there are channels.
    mse, psnr, ssim, lpips, fourier: image metrics of the reconstructions against the targets, pixels 0 to 1, mean over
    ``images``; fourier is one minus the cosine similarity of the Fourier magnitudes. psnr_min, psnr_max: lowest and highest
    PSNR of the images (320 dB for identical images). psnr_mean_image: PSNR of a constant image of the data's mean color,
    the baseline without information. psnr_visible: PSNR over the patches whose positions the client did not hide.
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
    """
    return run_attack(Client(ctx, **client), lambda model, shared, progress: invert_gradient(model, shared, attacker))


def invert_gradient(model: Classifier, shared: SharedGradient, attacker: Attacker = "naive") -> Reconstruction:
    """Reconstructs one image from its shared gradient in closed form; returns a `Reconstruction`.

    Raises NotApplicable if the model or its encoding does not allow the attack.

    Args:
        model: The model in double precision.
        shared: The gradient that the client shares.
        attacker: What the attacker knows about hidden positions, which the client's model does not use: ``"naive"`` assumes
            that there are none, ``"knows_mask"`` is given them, ``"detects_hidden"`` detects positions without gradient,
            ``"null_space"`` does so too and takes the smoothest image where the gradient does not determine the pixels.
    """
    if not isinstance(model, PatchClassifier):
        raise NotApplicable("it has no projection of patches")
    if type(model).patch_tokens is not PatchClassifier.patch_tokens:
        raise NotApplicable(
            "it has a layer, such as a norm, between the projection of patches and the position encoding"
        )
    gradients, pos = attacker_view(model, shared, attacker)
    system = separable_system(model, gradients, pos)
    weight_gradient = gradients["project.weight"]
    pixels, rank, condition = truncated_svd_solve(
        system.solve(), weight_gradient, shared, error_std(model, shared, pos)
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
        if not input_vectors(model.encoding, pos, model.project.bias)[1]:
            raise NotApplicable(
                "its encoding adds something before the first block that depends on the tokens, which hides their gradients"
            )
        raise NotApplicable(
            "no trained vector is added to tokens before the first block, and only the sum of their gradients is shared"
        )
    return system


def attacker_view(model: PatchClassifier, shared: SharedGradient, attacker: Attacker) -> tuple[Gradients, Positions]:
    """Returns the input of a closed-form attack: gradients (parameter name → tensor) and positions of the patches.

    The gradients are the shared ones in double precision, minus that of the penalty, a loss that some encodings add and
    that does not depend on the image. The positions are those that an attacker such as ``"naive"`` or ``"knows_mask"``
    assumes, see :func:`assumed_positions`.
    """
    if len(shared.image) != 1:
        raise InputError(
            f"a gradient of {len(shared.image)} images is a sum that closed forms cannot separate; share one image each"
        )
    pos = assumed_positions(model, shared, attacker)
    return subtract_penalty(model, to_double(shared), pos, clipped=shared.clipped, pruned=shared.pruned), pos


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
    token_gradients: Tensor, rhs: Tensor, shared: SharedGradient, noise_std: float = 0.0
) -> tuple[Tensor, int, float]:
    """Solves aᵀ x = ``rhs`` for x, where a is ``token_gradients``; returns x (T, P) of least norm, rank and condition of a.

    Singular values of a that rounding, noise or pruning alone could cause are taken as zero.

    Args:
        token_gradients: a (T, D), the gradients of the loss at T tokens of width D, with prefix tokens only in APRIL.
        rhs: (D, P), P values for each channel, such as the gradient of the patch projection.
        shared: The shared gradient; its precision and pruning determine which singular values are errors.
        noise_std: Std of the noise in a.
    """
    left, values, right = torch.linalg.svd(token_gradients, full_matrices=False)
    if not values[0]:
        raise NotApplicable("no position has its own gradient, because the client hides all of them")
    rounding = max(token_gradients.shape) * torch.finfo(values.dtype).eps
    kept = values > values[0] * max(torch.finfo(shared.image.dtype).eps, rounding)
    kept &= values > noise_std * sum(side**0.5 for side in token_gradients.shape)  # largest singular value of the noise
    kept &= values > pruning_std(rhs, shared.prune_threshold)  # bounds the error of normalized pixels, of order 1
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


def null_space_basis(system: LinearSystem, weight_gradient: Tensor, rounding: float, noise_std: float = 0.0) -> Tensor:
    """Returns an orthonormal basis (k, P) of the directions in pixel space that the system does not determine.

    P is the number of pixel values in a patch. The directions are the row space of the part of ``weight_gradient`` that
    the solution of the system does not explain.

    Args:
        system: The linear system for the gradients at the patch tokens.
        weight_gradient: (D, P), the gradient of the weight of the patch projection.
        rounding: Machine epsilon of the client's floating-point type; singular values that rounding may cause are taken
            as zero.
        noise_std: Std of the noise in ``weight_gradient``; singular values that it may cause are taken as zero.
    """
    known = system.solve()
    _, values, right = torch.linalg.svd(known, full_matrices=False)
    right = right[values > values[0] * max(known.shape) * torch.finfo(values.dtype).eps]
    residual = weight_gradient - right.mT @ (right @ weight_gradient)
    _, values, basis = torch.linalg.svd(residual, full_matrices=False)
    tolerance = max(weight_gradient.shape) * rounding * torch.linalg.matrix_norm(weight_gradient, 2)
    tolerance += noise_std * sum(side**0.5 for side in weight_gradient.shape)  # largest singular value of the noise
    return basis[: min(int((values > tolerance).sum()), system.matrix.shape[1] - system.rank)]


def smooth_in_null_space(pixels: Tensor, basis: Tensor, pos: Positions, patch: tuple[int, int]) -> Tensor:
    """Returns pixels (N, P) that are unchanged outside the span of ``basis`` (k, P) and as smooth as possible inside it.

    The result minimizes the sum of squared differences between neighboring pixels. Differences across the borders of
    patches with a hidden position are left out, because clients that hide positions also shuffle the patches, so that they
    do not continue their neighbors.

    Args:
        pixels: (N, P), the P pixel values of each of N patches.
        basis: Orthonormal rows, the directions in pixel space that the attack does not determine.
        pos: Positions that the attacker assumes, some of which may be hidden.
        patch: Height and width of a patch.
    """
    outside, inside = pixels - pixels @ basis.mT @ basis, pixels.clamp(-MAX_VALUE, MAX_VALUE) @ basis.mT
    index = torch.arange(len(pixels), device=pixels.device)
    region = torch.where(pos.known[0], -1, index)[None, :, None].expand(1, -1, patch[0] * patch[1])
    regions = unpatchify(region, pos.grid, patch)  # (1, 1, height, width); differences count within a region
    down, right = (regions.diff(dim=axis) == 0 for axis in (2, 3))

    def laplacian(x: Tensor) -> Tensor:
        image = unpatchify(x[None], pos.grid, patch)
        steps = image.diff(dim=2) * down, image.diff(dim=3) * right
        sums = -F.pad(steps[0], (0, 0, 1, 1)).diff(dim=2) - F.pad(steps[1], (1, 1)).diff(dim=3)
        return patchify(sums, patch)[0] @ basis.mT

    def matrix(x: Tensor) -> Tensor:
        return laplacian(x @ basis) + LEAST_NORM_WEIGHT * x

    return outside + _conjugate_gradients(matrix, LEAST_NORM_WEIGHT * inside - laplacian(outside), inside) @ basis


def _conjugate_gradients(matrix: Callable[[Tensor], Tensor], rhs: Tensor, x: Tensor) -> Tensor:
    """Solves the linear system ``matrix(solution) = rhs`` by conjugate gradients; returns the solution.

    Args:
        matrix: A function of a tensor that is linear, symmetric and positive definite.
        rhs: The right-hand side.
        x: Initial guess, in the shape of ``rhs``.
    """
    residual = rhs - matrix(x)
    direction, square = residual, residual.square().sum()
    for _ in range(MAX_CG_STEPS):
        if square <= 1e-20 * rhs.square().sum():
            break
        product = matrix(direction)
        step = square / (direction * product).sum()
        x, residual = x + step * direction, residual - step * product
        previous, square = square, residual.square().sum()
        direction = residual + square / previous * direction
    return x
