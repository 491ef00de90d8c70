"""Defenses against attacks on shared gradients: clipping, noise and pruning.

They change the gradient of one image before its client shares it, as in federated learning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.training import DEFENSES

Gradients = dict[str, Tensor]  # by the name of the parameter


def compute_gradients(
    loss: Tensor, model: nn.Module, *, create_graph: bool = False, exclude_prefix: str | None = None
) -> Gradients:
    """Returns parameter name → gradient of a loss for every trainable parameter; zeros if the loss does not depend on it.

    Args:
        loss: A scalar.
        model: The model whose parameters are differentiated.
        create_graph: Builds the graph that second derivatives need.
        exclude_prefix: Leaves out parameters whose names begin with it, such as ``"encoding."``.
    """
    named = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not (exclude_prefix and name.startswith(exclude_prefix))
    }
    found = torch.autograd.grad(loss, list(named.values()), create_graph=create_graph, allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), found, strict=True)}


@dataclass(frozen=True)
class Defense:
    """A change of the gradient of one image before it is shared; ``one + other`` applies one after the other.

    In training every image is treated as a client of federated learning: it shares its defended gradient, and an
    optimizer step uses the mean over the batch. Random choices of an encoding or augmentation are then made per image,
    and copies of an image (option ``repeated_aug``) are separate clients. A sum with noise before clipping raises
    InputError, because clipping would change the std of the noise.

    Args:
        apply: The change, called as ``apply(gradients, generator)`` with gradients as parameter name → tensor; returns the
            changed gradients.
        noise: Std of the added noise. Attackers are assumed to know it, and ``pruned`` and ``clipped``.
        pruned: Whether small numbers are set to zero.
        clipped: Whether the gradient may be scaled down.
    """

    apply: Callable[[Gradients, torch.Generator], Gradients]
    noise: float = 0.0
    pruned: bool = False
    clipped: bool = False

    def __call__(self, gradients: Gradients, generator: torch.Generator) -> Gradients:
        """Returns the defended gradients, parameter name → tensor; ``generator`` gives the random numbers."""
        return self.apply(gradients, generator)

    def __add__(self, other: Defense) -> Defense:
        if self.noise and other.clipped:
            raise InputError(
                "a defense clips a gradient that has noise, whose std is then unknown; put clip before noise"
            )
        return Defense(
            lambda gradients, generator: other(self(gradients, generator), generator),
            math.hypot(self.noise, other.noise),
            self.pruned or other.pruned,
            self.clipped or other.clipped,
        )


def build_defense(spec: str) -> Defense:
    """Returns the `Defense` of a spec such as ``"clip(max_norm=1.0) + noise(std=0.01)"``; that of "" changes nothing."""
    return DEFENSES.build(spec) if spec else Defense(lambda gradients, generator: gradients)


def clip(*, max_norm: float = 1.0) -> Defense:
    """Scales the gradient down to the L2 norm ``max_norm``, over all parameters together, if its norm is larger.

    The result is a `Defense`, a function of the gradients.
    """
    if max_norm <= 0:
        raise InputError(f"defense 'clip' got max_norm={max_norm}; choose a norm above 0")

    def apply(gradients: Gradients, generator: torch.Generator) -> Gradients:
        norm = torch.stack([g.norm() for g in gradients.values()]).norm()
        return {name: g * (max_norm / norm).clamp_max(1) for name, g in gradients.items()}

    return Defense(apply, clipped=True)


def noise(*, std: float = 0.01) -> Defense:
    """Adds normal noise of standard deviation ``std`` to every number of the gradient.

    The result is a `Defense`, a function of the gradients. After ``clip`` this is DP-SGD (Abadi et al., CCS 2016) with
    local noise. There a server adds noise to the sum of the clipped gradients of B images; here each client adds its own,
    so that no gradient is seen without noise, and the noise of the mean has the std ``std``/√B. DP-SGD's noise multiplier
    is ``std``/``max_norm`` for one gradient and √B times that for the batch. The privacy budget ε
    is not computed. Useful guarantees need a multiplier near 1 or more; use attacks to measure the effect of less noise.
    """
    if std < 0:
        raise InputError(f"defense 'noise' got std={std}; choose 0 or more")

    def apply(gradients: Gradients, generator: torch.Generator) -> Gradients:
        return {
            name: g + std * torch.randn(g.shape, generator=generator, dtype=g.dtype).to(g.device)
            for name, g in gradients.items()
        }

    return Defense(apply, noise=std)


def prune(*, fraction: float = 0.9) -> Defense:
    """Sets the numbers of smallest magnitude in each gradient tensor to zero (Zhu et al., NeurIPS 2019).

    ``fraction`` is the fraction of the numbers in a tensor that are set to zero, 0 to below 1. The result is a `Defense`, a
    function of the gradients.
    """
    if not 0 <= fraction < 1:
        raise InputError(f"defense 'prune' got fraction={fraction}; choose a fraction from 0 to below 1")

    def pruned(gradient: Tensor) -> Tensor:
        count = int(fraction * gradient.numel())
        if not count:
            return gradient
        threshold = gradient.abs().flatten().kthvalue(count).values
        return torch.where(gradient.abs() > threshold, gradient, 0)

    return Defense(lambda gradients, generator: {name: pruned(g) for name, g in gradients.items()}, pruned=fraction > 0)
