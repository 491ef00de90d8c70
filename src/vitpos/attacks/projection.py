"""Closed-form attack on the gradient of the patch projection, for any ViT that adds trained vectors to its tokens."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitpos.attacks.equations import Equations, equations, without_penalty
from vitpos.attacks.recovery import Found, Inapplicable, recover
from vitpos.attacks.residual import smooth_inside, unseen
from vitpos.attacks.victim import Case, Client
from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.attention import input_vectors
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import unpatchify
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients

Attacker = Literal["naive", "unknown", "mask", "residual"]


def projection(
    ctx: EvalContext,
    *,
    images: int = 8,
    setting: Literal["a", "b", "c"] = "a",
    ratio: float = 0.27,
    told: bool = True,
    attacker: Literal["naive", "unknown", "mask", "residual"] = "naive",
    precision: Literal["float64", "float32"] = "float64",
    defense: str | None = None,
    seed: int = 0,
) -> Result:
    """Reconstructs images in closed form from the gradients of the patch projection and of the encoding's vectors.

    A token is z_i = W x_i + b + e_i, with the pixels x_i of patch i and the vector e_i that the encoding adds. With
    a_i = ∂l/∂z_i, the gradient of W is G = Σ a_i x_iᵀ, and the gradients of the trained parameters in e_i are linear
    equations for the a_i. Both linear systems are solved, first for the a_i, then for the x_i. Any blocks may follow, and a
    patch may have more pixel values than there are channels.
    mse, psnr, ssim, lpips, fourier: image metrics of the reconstructions against the targets, pixels 0 to 1, mean over
    ``images``. psnr_worst, psnr_best: lowest and highest PSNR of the images (320 dB for identical images). psnr_grey: PSNR
    of a constant image of the data's mean color, the baseline without information. psnr_shown: PSNR over the patches whose
    positions the client did not hide. equations: rank of the equations for the a_i; N determines all of them.
    places: condition number of these equations, median over images (1 for a position table). rank: rank of the a_i up to
    rounding and noise. condition: condition number of the a_i, median over images. guess: fraction of the images for which
    one of the two ranks is less than N, so that the reconstruction is a least-norm solution. outside: for the attacker
    ``residual``, fraction of the directions in pixel space in which the reconstruction is exact nevertheless.

    All attackers are assumed to know the std of the client's noise, and that pruned numbers are smaller than shared ones.

    Args:
        images: Number of test images, each of which is attacked separately.
        setting: As in MJP's Table 5: ``"a"`` shares the gradient of the original image; ``"b"`` shuffles the patches under
            a mask, and the target is the shuffled image; ``"c"`` shuffles them, and the target is the original image.
        ratio: Maximum fraction of masked patches in settings b and c.
        told: Hides the masked positions from the client's model (mask-aware), if its encoding has an unknown vector.
        attacker: What the attacker knows about hidden positions. ``"naive"`` assumes that there are none. ``"unknown"``
            detects them as positions without gradient, and uses the gradient of the unknown vector as one more equation.
            ``"mask"`` is given the mask. ``"residual"`` works as ``"unknown"`` and also finds, from the part of G that the
            equations do not explain, the directions in which patches cannot be distinguished: outside them the
            reconstruction is exact up to noise, inside them it is the smoothest image.
        precision: Floating-point type of the client's computation.
        defense: Defense applied to the gradient, such as ``clip + noise``; by default that of training.
        seed: Seed of masks, permutations and noise.
    """
    client = Client(ctx, images, setting, ratio, told, precision, defense, seed)
    return recover(client, lambda model, case, progress: invert(model, case, attacker))


def invert(model: Classifier, case: Case, attacker: Attacker = "naive") -> Found:
    """Reconstructs the image of one gradient; ``model`` is in double precision."""
    if not isinstance(model, PatchClassifier):
        raise Inapplicable("it has no projection of patches")
    if type(model).patch_tokens is not PatchClassifier.patch_tokens:
        raise Inapplicable(
            "it has a layer, such as a norm, between the projection of patches and the position encoding"
        )
    gradients, pos = as_seen(model, case, attacker)
    system = told_apart(model, gradients, pos)
    product = gradients["project.weight"]
    pixels, rank, condition = solve(system.solve(), product, case, deviation(model, case, pos))
    about = system.judged(rank, condition)
    if attacker == "residual":
        noise = math.hypot(case.noise, left_out(product, case.floor))
        basis = unseen(system, product, torch.finfo(case.inputs.dtype).eps, noise)
        # the target of setting c is not shuffled: hidden patches continue their neighbors too
        pixels = smooth_inside(pixels, basis, pos.reveal() if case.setting == "c" else pos, model.patch)
        about["outside"] = 1 - len(basis) / product.shape[1]
    return Found(unpatchify(pixels[None], pos.grid, model.patch), about)


def told_apart(model: PatchClassifier, gradients: Gradients, pos: Positions) -> Equations:
    """Returns the equations for the token gradients; raises Inapplicable if they only determine sums over tokens."""
    system = equations(model, gradients, pos)
    # two of the equations may be sums: over all tokens, and over those with hidden positions
    if system.rank < 2 + (pos.has_hidden and model.encoding.unknown_vector() is not None):
        if not input_vectors(model.encoding, pos, model.project.bias)[1]:
            raise Inapplicable(
                "its encoding adds something before the first block that depends on the tokens, which hides their gradients"
            )
        raise Inapplicable(
            "no trained vector is added to tokens before the first block, and only the sum of their gradients is shared"
        )
    return system


def as_seen(model: PatchClassifier, case: Case, attacker: Attacker) -> tuple[Gradients, Positions]:
    """Returns the shared gradients without that of the penalty, in double precision, and the assumed positions."""
    if len(case.inputs) != 1:
        raise InputError(
            f"a gradient of {len(case.inputs)} images is a sum that closed forms cannot separate; share one image each"
        )
    pos = assumed(model, case, attacker)
    return without_penalty(model, doubled(case), pos, clipped=case.clipped, pruned=case.pruned), pos


def assumed(model: PatchClassifier, case: Case, attacker: Attacker) -> Positions:
    """Returns the positions of the client's patches that an attacker assumes."""
    pos = model.positions(case.inputs)
    if attacker == "mask":
        return case.positions or pos
    if attacker == "naive" or model.encoding.unknown_vector() is None:
        return pos
    system = equations(model, doubled(case), pos, summed=False)  # the sum over all tokens includes the hidden ones
    size = system.solve().abs().amax(1)  # (N,)
    tolerance = 1e-12 if system.outright else torch.finfo(case.inputs.dtype).eps ** 0.5
    return pos.hide(size[None] <= max(tolerance * float(size.max()), 5 * system.growth * case.noise))


def solve(at_tokens: Tensor, product: Tensor, case: Case, noise: float = 0.0) -> tuple[Tensor, int, float]:
    """Returns the least-norm x (T, P) with aᵀ x = ``product`` (D, P), and the rank and condition number of a.

    Singular values of a that rounding or noise alone could cause are taken as zero.

    Args:
        at_tokens: a (T, D), the gradients at the tokens.
        noise: Std of the noise in a.
    """
    left, values, right = torch.linalg.svd(at_tokens, full_matrices=False)
    if not values[0]:
        raise Inapplicable("no position has its own gradient, because the client hides all of them")
    rounding = max(at_tokens.shape) * torch.finfo(values.dtype).eps
    real = values > values[0] * max(torch.finfo(case.inputs.dtype).eps, rounding)
    real &= values > noise * sum(side**0.5 for side in at_tokens.shape)  # the largest singular value of the noise
    real &= values > left_out(product, case.floor)  # normalized pixels are of order 1, so that this bounds their error
    real[0] = True
    inverse = torch.where(real, 1 / values, 0)
    x = left @ (inverse[:, None] * (right @ product))
    return x, int(real.sum()), float(values[0] / values[real][-1])


def deviation(model: PatchClassifier, case: Case, pos: Positions) -> float:
    """Returns the std of the error in the equations' right-hand side: of noise and of pruned numbers.

    Without a position table, solving for the token gradients increases the error unevenly. Thresholds that include the
    mean increase, or that act before the solution, reconstruct no more.
    """
    if case.floor is None:
        return case.noise
    return math.hypot(case.noise, left_out(equations(model, doubled(case), pos).seen, case.floor))


def doubled(case: Case) -> Gradients:
    """Returns the shared gradients of a case in double precision."""
    return {name: g.double() for name, g in case.gradients.items()}


def left_out(shared: Tensor, floor: float | None) -> float:
    """Returns the root mean square error that pruning causes in ``shared`` gradients; 0 without a ``floor``.

    Numbers up to ``floor`` are pruned ones, and are assumed to be uniform up to the smallest shared number.
    """
    if floor is None:
        return 0.0
    pruned = shared.abs() <= floor
    smallest = shared.abs().masked_fill(pruned, torch.inf).min()
    return float((pruned.double().mean() / 3).sqrt() * smallest) if pruned.any() and not pruned.all() else 0.0
