"""What a client can do to the gradient of a picture before it is shared: clip it, add noise, leave the small part out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitpos.errors import UserError
from vitpos.training import DEFENCES

Gradients = dict[str, Tensor]  # by the name of the parameter


def gradients_of(loss: Tensor, model: nn.Module, *, again: bool = False, but: str | None = None) -> Gradients:
    """The gradient of a loss for every parameter, zero where it does not reach; to be differentiated ``again`` if so asked.

    ``but``: those whose names begin so are left out.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad and not (but and name.startswith(but))}
    found = torch.autograd.grad(loss, list(named.values()), create_graph=again, allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), found, strict=True)}


@dataclass(frozen=True)
class Defence:
    """What is done to the gradient of one picture; ``one + other`` does one after the other.

    In a training every picture is a client: each shares its gradient so, and a step follows the mean of a batch. What an
    encoding or an augment draws for a batch is then drawn for each picture; copies of one by ``repeats`` are clients too.

    A protocol is no secret, so that an attacker knows the deviation of the noise, and whether numbers were left out or the
    whole was scaled. Noise that is scaled afterwards would have a deviation that nobody knows.
    """

    apply: Callable[[Gradients, torch.Generator], Gradients]
    noise: float = 0.0
    pruned: bool = False
    clipped: bool = False

    def __call__(self, gradients: Gradients, generator: torch.Generator) -> Gradients:
        """The gradient as it is shared."""
        return self.apply(gradients, generator)

    def __add__(self, other: Defence) -> Defence:
        if self.noise and other.clipped:
            raise UserError(
                "a defence clips what has noise in it already, so that its size is anyone's guess; clip first"
            )
        return Defence(
            lambda gradients, generator: other(self(gradients, generator), generator),
            math.hypot(self.noise, other.noise),
            self.pruned or other.pruned,
            self.clipped or other.clipped,
        )


def defending(spec: str) -> Defence:
    """The defence of a spec; nothing is done if it is empty."""
    return DEFENCES.build(spec) if spec else Defence(lambda gradients, generator: gradients)


def clip(*, norm: float = 1.0) -> Defence:
    """The whole gradient scaled down to a length of ``norm`` if it is longer."""
    if norm <= 0:
        raise UserError(f"defence 'clip' got norm={norm}; choose a length above 0")

    def apply(gradients: Gradients, generator: torch.Generator) -> Gradients:
        length = torch.stack([g.norm() for g in gradients.values()]).norm()
        return {name: g * (norm / length).clamp_max(1) for name, g in gradients.items()}

    return Defence(apply, clipped=True)


def noise(*, scale: float = 0.01) -> Defence:
    """Normal noise of deviation ``scale`` added to every number.

    After ``clip`` it is what DP-SGD does (Abadi et al., CCS 2016) with clients who trust nobody: there a server adds noise
    to the sum of the clipped gradients of a batch of B pictures, here each client adds its own, so that none is seen
    without it and the noise of the mean is ``scale``/√B. What DP-SGD calls the noise multiplier is ``scale``/``norm`` for
    one gradient and √B times that for the batch. No ε is computed: guarantees begin at multipliers near 1, and what less
    noise is worth, an attack tells.
    """
    if scale < 0:
        raise UserError(f"defence 'noise' got scale={scale}; choose 0 or more")

    def apply(gradients: Gradients, generator: torch.Generator) -> Gradients:
        return {
            name: g + scale * torch.randn(g.shape, generator=generator, dtype=g.dtype).to(g.device)
            for name, g in gradients.items()
        }

    return Defence(apply, noise=scale)


def prune(*, share: float = 0.9) -> Defence:
    """The smallest numbers of each tensor set to zero, a ``share`` of them (as in Zhu et al., NeurIPS 2019)."""
    if not 0 <= share < 1:
        raise UserError(f"defence 'prune' got share={share}; choose a share from 0 to below 1")

    def kept(gradient: Tensor) -> Tensor:
        drop = int(share * gradient.numel())
        if not drop:
            return gradient
        least = gradient.abs().flatten().kthvalue(drop).values
        return torch.where(gradient.abs() > least, gradient, 0)

    return Defence(lambda gradients, generator: {name: kept(g) for name, g in gradients.items()}, pruned=share > 0)
