"""Pixels in closed form from the gradient of the patch projection, for any ViT that trains what it adds to tokens."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitpos.attacks.equations import Equations, equations, only_adds, without_penalty
from vitpos.attacks.recovery import Found, Inapplicable, Recovery, recover
from vitpos.attacks.residual import smooth_inside, unseen
from vitpos.attacks.victim import Case, Client, exact
from vitpos.data.dataset import Dataset
from vitpos.errors import UserError
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import unpatchify
from vitpos.positions import Positions
from vitpos.training.defenses import Gradients

Attacker = Literal["naive", "unknown", "mask", "residual"]


def projection(
    model: Classifier,
    data: Dataset,
    *,
    images: int = 8,
    setting: Literal["a", "b", "c"] = "a",
    ratio: float = 0.27,
    told: bool = True,
    attacker: Literal["naive", "unknown", "mask", "residual"] = "naive",
    precision: Literal["float64", "float32"] = "float64",
    defense: str | None = None,
    seed: int = 0,
) -> Recovery:
    """Pixels from the gradients of the patch projection and of what is added to tokens, by linear equations alone.

    A token is z_i = W x_i + b + e_i. With a_i = ∂l/∂z_i, the projection's gradient is Σ a_i x_iᵀ, and the gradients of
    whatever trained parameters make up e_i give the a_i away; then the pixels x_i are the solution of N equations in D
    channels. No block has to be changed, and patches may have more pixels than there are channels.
    mse, psnr, ssim, lpips, fourier: of the pictures found, from 0 to 1, against those to be found; means over ``images``.
    psnr_worst, psnr_best: of the pictures found worst and best (320 dB where no bit is different). equations: how many of
    the places the shared gradients tell apart; places: the condition of the weights by which they do (1 for a table).
    rank, condition (median): of the a_i, as far as the precision goes. guess: share of the pictures for which equations
    or rank are too few, so that what is found is only the smallest answer that fits. psnr_grey: of a flat picture of the
    data's mean colour, which knows nothing. psnr_shown: of the patches that the client did not hide. outside: with the
    attacker ``residual``, share of the directions of a patch's pixels in which the answer is exact all the same.
    ``setting`` is that of MJP's Table 5: a, the picture as it is; b, patches under a mask of ``ratio`` are shuffled, and
    the shuffled picture is to be found; c, the same, and the picture as it was is to be found. ``told``: the model is told
    which places are unknown, if it has a vector for that. ``defense``: what is done to the gradient before it is shared; if
    none is named, what was done in training. ``attacker``: ``naive`` takes all places for known; ``unknown`` sees which are
    not, from places without any gradient, if equations are enough to tell these, and uses the gradient of the unknown
    vector as one more equation; ``mask`` is told the mask; ``residual`` sees what ``unknown`` sees, and besides, from what
    the equations leave of the projection's gradient, in which directions they do not tell patches apart: outside of them
    its answer is exact, as far as noise goes, inside smooth, in setting c across the borders of hidden patches too. All
    know of the noise that a client adds, and that what it leaves out (``prune``) is below the least that it shares.
    """
    client = Client(model, data, images, setting, ratio, told, precision, defense, seed)
    double = exact(model)
    return recover(client, lambda case: invert(double, case, attacker))


def invert(model: Classifier, case: Case, attacker: Attacker = "naive") -> Found:
    """The picture behind one gradient; ``model`` in double precision."""
    if not isinstance(model, PatchClassifier):
        raise Inapplicable("it has no projection of patches")
    if type(model).patch_tokens is not PatchClassifier.patch_tokens:
        raise Inapplicable(
            "something, such as a norm, stands between its projection of patches and what is added to them"
        )
    gradients, pos = as_seen(model, case, attacker)
    told = told_apart(model, gradients, pos)
    product = gradients["project.weight"]
    pixels, rank, condition = solve(told.solve(), product, case, deviation(model, case, pos))
    about = told.judged(rank, condition)
    if attacker == "residual":
        noise = math.hypot(case.noise, left_out(product, case.floor))
        basis = unseen(told, product, torch.finfo(case.inputs.dtype).eps, noise)
        # where patches were before they were hidden and moved, all of them fit their neighbours
        pixels = smooth_inside(pixels, basis, pos.shown() if case.setting == "c" else pos, model.patch)
        about["outside"] = 1 - len(basis) / product.shape[1]
    return Found(unpatchify(pixels[None], pos.grid, model.patch), about)


def told_apart(model: PatchClassifier, gradients: Gradients, pos: Positions) -> Equations:
    """What the gradients say of each token, if they say more than the sum."""
    told = equations(model, gradients, pos)
    if told.rank < 2 + (pos.hiding and model.encoding.can_be_told):  # the sum of all, and of the hidden ones
        if not only_adds(model, pos):
            raise Inapplicable("what it adds before the first block depends on the tokens, which hides their gradients")
        raise Inapplicable(
            "no trained vector is added to tokens before the first block, and only the sum of their gradients is shared"
        )
    return told


def as_seen(model: PatchClassifier, case: Case, attacker: Attacker) -> tuple[Gradients, Positions]:
    """What an attacker makes of a case: exact gradients, without the penalty's, and the places that it assumes."""
    if len(case.inputs) != 1:
        raise UserError(
            f"a gradient of {len(case.inputs)} pictures is a sum that no closed form takes apart; share one each"
        )
    pos = assumed(model, case, attacker)
    return without_penalty(model, doubled(case), pos, clipped=case.clipped, pruned=case.pruned), pos


def assumed(model: PatchClassifier, case: Case, attacker: Attacker) -> Positions:
    """The places that an attacker takes a client's patches to be at."""
    pos = model.positions(case.inputs)
    if attacker == "mask":
        return case.positions or pos
    if attacker == "naive" or not model.encoding.can_be_told:
        return pos
    told = equations(model, doubled(case), pos, summed=False)  # the sum of all has the hidden ones in it
    size = told.solve().abs().amax(1)  # (N,)
    nothing = 1e-12 if told.outright else torch.finfo(case.inputs.dtype).eps ** 0.5
    return pos.hide(size[None] <= max(nothing * float(size.max()), 5 * told.growth * case.noise))


def solve(at_tokens: Tensor, product: Tensor, case: Case, noise: float = 0.0) -> tuple[Tensor, int, float]:
    """The smallest x (T, P) for which aᵀ x is a ``product`` (D, P), for the gradients a (T, D) at tokens.

    With it the rank and the condition of a; zero is what the precision of the case's gradients and the deviation of a
    (``noise``) cannot tell from it, nor the rounding of the sums here.
    """
    left, values, right = torch.linalg.svd(at_tokens, full_matrices=False)
    if not values[0]:
        raise Inapplicable("no place has a gradient of its own: all are hidden")
    rounding = max(at_tokens.shape) * torch.finfo(values.dtype).eps
    real = values > values[0] * max(torch.finfo(case.inputs.dtype).eps, rounding)
    real &= values > noise * sum(side**0.5 for side in at_tokens.shape)  # the largest that noise alone has
    real &= values > left_out(product, case.floor)  # pixels are of the size of 1, what is not known no larger
    real[0] = True
    inverse = torch.where(real, 1 / values, 0)
    x = left @ (inverse[:, None] * (right @ product))
    return x, int(real.sum()), float(values[0] / values[real][-1])


def deviation(model: PatchClassifier, case: Case, pos: Positions) -> float:
    """Of what a case's gradients say of tokens: its noise, and what it left out.

    Where a table does not say it outright it grows on its way to the tokens, unevenly; cutting by its mean growth, or
    before that way, finds no more.
    """
    if case.floor is None:
        return case.noise
    return math.hypot(case.noise, left_out(equations(model, doubled(case), pos).seen, case.floor))


def doubled(case: Case) -> Gradients:
    """What a case shares, in double precision."""
    return {name: g.double() for name, g in case.gradients.items()}


def left_out(shared: Tensor, floor: float | None) -> float:
    """The deviation of what pruning takes away: the share of what is below a ``floor``, as if even up to the least above.

    Without a floor nothing was taken away.
    """
    if floor is None:
        return 0.0
    zero = shared.abs() <= floor
    least = shared.abs().masked_fill(zero, torch.inf).min()
    return float((zero.double().mean() / 3).sqrt() * least) if zero.any() and not zero.all() else 0.0
