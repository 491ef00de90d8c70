"""Gradient matching for any model: optimizes an image until its gradient is close to the shared gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from vitpos.errors import InputError
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.result import Result
from vitpos.models.attention import double_backward_attention
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import make_generator
from vitpos.positions import Positions
from vitpos.privacy import closed_form
from vitpos.privacy.client import Client, Precision, SharedGradient, client_gradient, to_precision
from vitpos.privacy.closed_form import Attacker
from vitpos.privacy.reconstruction import NotApplicable, Progress, Reconstruction, run_attack
from vitpos.training.defenses import Gradients

SNAPSHOTS = 8  # stored images of an optimization, without the last
LR_DROPS = (3 / 8, 5 / 8, 7 / 8)  # fractions of the steps after which lr is divided by 10, as in Inverting Gradients


def gradient_matching(
    ctx: EvalContext,
    *,
    attacker: Attacker = "naive",
    precision: Precision = "float32",
    steps: int = 1000,
    lr: float = 0.1,
    loss: Literal["cosine", "l2"] = "cosine",
    encoding_weight: float | None = 1.0,
    tv_weight: float = 0.01,
    patch_border_weight: float = 0.0,
    label: Literal["known", "inferred"] = "inferred",
    init: Literal["noise", "closed_form"] = "noise",
    restarts: int = 1,
    patience: int = 300,
    **client: Annotated[Any, Client],
) -> Result:
    """Reconstructs images by gradient matching: Adam changes an image until its gradient is close to the shared one.

    The attacker knows the client's whole loss, with the encoding's penalty (informed). The distance of gradients is taken
    over all parameters except the encoding's; ``encoding_weight`` times one minus the cosine similarity of the encoding's
    gradients is added (APRIL). Pruned numbers are not compared. ``l2`` compares norms too, also of clipped gradients.
    The image metrics (mse, psnr, ssim and so on) are those of ``closed_form``. gradient_distance: lowest distance of the
    gradients. label_accuracy: fraction of the labels, known or inferred, that are correct. steps: number of steps taken.
    from_closed_form: fraction of the images whose optimization started from the result of ``closed_form``.
    More options are those of the attacked client, such as ``images``, ``scenario`` and ``defense``.

    Args:
        attacker: What the attacker knows about hidden positions (those that the client's model must not use, as in MJP):
            ``"naive"`` assumes that there are none; ``"detects_hidden"`` takes positions without gradient for hidden
            ones; ``"null_space"`` does the same, and differs only in the initial image of ``init="closed_form"``;
            ``"knows_mask"`` is given the mask.
        precision: Floating-point type of the client's computation and of the optimization.
        steps: Maximum number of steps.
        lr: Initial learning rate of Adam.
        loss: ``"cosine"``: one minus the cosine similarity, with the signs of its gradient (Inverting Gradients; Geiping et
            al., NeurIPS 2020); ``"l2"``: the squared distance (DLG; Zhu et al., NeurIPS 2019).
        encoding_weight: Weight of the encoding's gradients (α of APRIL); 0 ignores them, None treats them like all others,
            as DLG does.
        tv_weight: Weight of the total variation of the image.
        patch_border_weight: Weight of squared differences across patch borders (a prior of GradViT).
        label: ``"known"``, or ``"inferred"`` from the gradient of the head's bias (iDLG; Zhao et al., 2020).
        init: Starts from ``"noise"``, or from the result of ``"closed_form"`` if that attack applies.
        restarts: Number of optimizations from different noise; the one with the lowest distance is used.
        patience: Stops after this number of steps without a lower distance.
    """
    for name, value in (("steps", steps), ("restarts", restarts), ("patience", patience)):
        if value < 1:
            raise InputError(f"attack 'gradient_matching' got {name}={value}; choose 1 or more")
    if init == "closed_form" and restarts > 1:
        raise InputError(
            f"attack 'gradient_matching' got restarts={restarts} with init='closed_form', which is always the same; "
            "take restarts=1, or init='noise'"
        )
    if lr <= 0:
        raise InputError(f"attack 'gradient_matching' got lr={lr}; take a number above 0")
    weights = {"encoding_weight": encoding_weight, "tv_weight": tv_weight, "patch_border_weight": patch_border_weight}
    for name, weight in weights.items():
        if weight is not None and weight < 0:
            raise InputError(f"attack 'gradient_matching' got {name}={weight}; take 0 or more")
    data = ctx.data
    attacked = Client(ctx, precision=precision, **client)
    model = to_precision(ctx.model, precision)
    like = next(model.parameters())
    black_white = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(-1, data.shape[0], 1, 1)
    low, high = data.normalize(black_white).to(like)

    def attack(model_float64: Classifier, shared: SharedGradient, progress: Progress) -> Reconstruction:
        pos = (
            closed_form.assumed_positions(model_float64, shared, attacker)
            if isinstance(model_float64, PatchClassifier)
            else None
        )
        target = {name: g.to(like) for name, g in shared.gradients.items()}
        used_label = shared.label if label == "known" else infer_label(target)
        matcher = GradientMatcher(
            model,
            target,
            used_label,
            pos,
            loss,
            encoding_weight,
            tv_weight,
            patch_border_weight,
            shared.prune_threshold,
        )
        generator = make_generator(attacked.seed)
        solved = _closed_form_images(model_float64, shared, attacker) if init == "closed_form" else []
        starts = solved or [torch.randn(shared.image.shape, generator=generator) for _ in range(restarts)]
        runs = [
            matcher.optimize(start.to(like), (low, high), steps, lr, patience, _part(progress, number, len(starts)))
            for number, start in enumerate(starts)
        ]
        best = min(runs, key=lambda found: found.diagnostics["gradient_distance"])
        more = {"label_accuracy": float(used_label == shared.label), "from_closed_form": float(len(solved))}
        return Reconstruction(best.image, {**best.diagnostics, **more}, best.trajectory)

    with double_backward_attention():
        return run_attack(attacked, attack)


def _part(progress: Progress, number: int, count: int) -> Progress:
    """Returns a callback for the progress of one restart, 0 to 1, that passes the progress of all restarts to ``progress``.

    The restart is the one with the index ``number``, from 0, of ``count`` restarts.
    """
    return lambda fraction: progress((number + fraction) / count)


def _closed_form_images(model: Classifier, shared: SharedGradient, attacker: Attacker) -> list[Tensor]:
    """Returns a list with the image (1, C, height, width) found by ``closed_form``; empty if that attack does not apply."""
    try:
        return [closed_form.invert_gradient(model, shared, attacker).image]
    except NotApplicable:
        return []


def infer_label(gradients: Gradients) -> Tensor:
    """Returns the label (1,) of the image: the only class with a negative gradient of the head's bias (iDLG).

    ``gradients`` maps parameter names to tensors. Raises NotApplicable if the head has no bias.
    """
    last = [name for name in gradients if name.startswith("head.") and name.endswith("bias")]
    if not last:
        raise NotApplicable("its head has no bias to infer the label from; take label='known'")
    return gradients[last[-1]].argmin()[None]


@dataclass(frozen=True)
class GradientMatcher:
    """Optimizes one image until its gradient is close to the shared gradient ``target`` (parameter name → tensor).

    ``label`` (1,) and ``positions`` are those that the attacker assumes for the image. ``loss``, ``encoding_weight``,
    ``tv_weight`` and ``patch_border_weight`` are the options of the attack `gradient_matching`; they define the distance of
    gradients and the prior. Numbers of ``target`` up to the magnitude ``prune_threshold`` are ignored.
    """

    model: Classifier
    target: Gradients  # the shared gradient
    label: Tensor  # (1,)
    positions: Positions | None  # None for those of the grid
    loss: Literal["cosine", "l2"]
    encoding_weight: float | None  # of the encoding's gradients; None treats them like all others
    tv_weight: float  # of the total variation
    patch_border_weight: float  # of squared differences across patch borders
    prune_threshold: float | None = None  # numbers of the target up to this magnitude were pruned and are ignored

    def optimize(
        self,
        start: Tensor,
        bounds: tuple[Tensor, Tensor],
        steps: int,
        lr: float,
        patience: int,
        progress: Progress = lambda fraction: None,
    ) -> Reconstruction:
        """Optimizes an image with Adam; returns as `Reconstruction` the image whose gradient was closest to the shared one.

        The diagnostics are ``gradient_distance``, the lowest distance, and ``steps``, the number of steps taken.

        Args:
            start: Initial image (1, C, height, width), normalized.
            bounds: Normalized values of black and white, each (C, 1, 1), to which the image is clamped.
            steps: Maximum number of steps.
            lr: Initial learning rate, which is divided by 10 three times.
            patience: Stops after this number of steps without a lower distance.
            progress: Called with the fraction of the steps that is done, 0 to 1.
        """
        x = start.clamp(*bounds).requires_grad_()
        optimizer = torch.optim.Adam([x], lr=lr)
        best, lowest, since = x.detach().clone(), float("inf"), 0
        trajectory: list[Tensor] = []
        unused = "encoding." if self.encoding_weight == 0 else None  # its gradients may be slow (matrix exponentials)
        for step in range(steps):
            if step * SNAPSHOTS // steps == len(trajectory):
                trajectory.append(x.detach().clone())
            gradients = client_gradient(
                self.model, x, self.label, self.positions, create_graph=True, exclude_prefix=unused
            )
            distance = self.distance(gradients)
            (x.grad,) = torch.autograd.grad(distance + self.prior(x), x)
            if (value := distance.item()) < lowest:
                best, lowest, since = x.detach().clone(), value, 0
            elif (since := since + 1) >= patience or value != value:
                break
            if self.loss == "cosine":
                x.grad.sign_()
            optimizer.param_groups[0]["lr"] = lr * 0.1 ** sum(step >= fraction * steps for fraction in LR_DROPS)
            optimizer.step()
            x.data.clamp_(*bounds)
            progress((step + 1) / steps)
        trajectory += [best] * (SNAPSHOTS + 1 - len(trajectory))
        return Reconstruction(best, {"gradient_distance": lowest, "steps": float(step + 1)}, tuple(trajectory))

    def distance(self, gradients: Gradients) -> Tensor:
        """Returns the distance between ``gradients`` (parameter name → tensor) and the shared gradient, a scalar.

        It is the sum of two terms. The first, over all parameters except the encoding's, is the squared distance if the
        attribute ``loss`` is ``"l2"``, and one minus the cosine similarity if it is ``"cosine"``. The second is
        ``encoding_weight`` times one minus the cosine similarity of the encoding's gradients. If ``encoding_weight`` is
        None, the first term is over all parameters and there is no second.
        """
        rest, encoding = self._split(gradients)
        (target_rest, target_encoding), kept = self._target_vectors, self._not_pruned
        if kept:
            rest, encoding = rest * kept[0], encoding * kept[1][: len(encoding)]
        value = cosine_distance(rest, target_rest) if self.loss == "cosine" else (rest - target_rest).square().sum()
        if self.encoding_weight and len(encoding):
            return value + self.encoding_weight * cosine_distance(encoding, target_encoding)
        return value

    def _split(self, gradients: Gradients) -> tuple[Tensor, Tensor]:
        """Flattens gradients to two vectors: of all parameters except the encoding's, and of the encoding's parameters.

        If ``encoding_weight`` is None, the first vector contains all gradients and the second is empty.
        """
        own = [name for name in gradients if self.encoding_weight is not None and name.startswith("encoding.")]
        return _flatten(g for name, g in gradients.items() if name not in own), _flatten(
            gradients[name] for name in own
        )

    @cached_property
    def _target_vectors(self) -> tuple[Tensor, Tensor]:
        """Returns the shared gradient as two vectors, without the encoding and of the encoding; pruned numbers are zero."""
        rest, encoding = self._split(self.target)
        if (threshold := self.prune_threshold) is None:
            return rest, encoding
        return rest.where(rest.abs() > threshold, 0), encoding.where(encoding.abs() > threshold, 0)

    @cached_property
    def _not_pruned(self) -> tuple[Tensor, Tensor] | None:
        """Returns masks, without the encoding and of it: True where the gradient is not pruned; None without pruning."""
        return None if self.prune_threshold is None else (self._target_vectors[0] != 0, self._target_vectors[1] != 0)

    def prior(self, x: Tensor) -> Tensor | float:
        """Returns the prior of an image x (1, C, height, width), a scalar that is added to the distance of gradients.

        It is ``tv_weight`` times the total variation plus ``patch_border_weight`` times the mean squared difference of
        pixels across patch borders.
        """
        down, right = x.diff(dim=2), x.diff(dim=3)
        value: Tensor | float = 0.0
        if self.tv_weight:
            value = self.tv_weight * (down.abs().mean() + right.abs().mean())
        if self.patch_border_weight and isinstance(self.model, PatchClassifier):
            height, width = self.model.patch
            borders = down[:, :, height - 1 :: height].square().mean(), right[..., width - 1 :: width].square().mean()
            # NaN if there is one row or column
            value = value + self.patch_border_weight * torch.stack(borders).nan_to_num().sum()
        return value


def _flatten(gradients: Iterable[Tensor]) -> Tensor:
    """Flattens and concatenates gradients to one vector; an empty vector if there are none."""
    flat = [g.flatten() for g in gradients]
    return torch.cat(flat) if flat else torch.empty(0)


def cosine_distance(one: Tensor, other: Tensor) -> Tensor:
    """Returns one minus the cosine similarity of two vectors (n,), a scalar.

    For nearly parallel vectors the value is computed as half the squared distance of the unit vectors, which is the same
    number without loss of digits by cancellation.
    """
    norms = one.norm().clamp_min(1e-30), other.norm().clamp_min(1e-30)
    value = 1 - one @ other / (norms[0] * norms[1])
    if value.item() > 1e-3:
        return value
    with torch.no_grad():  # only the value is replaced; the gradient of 1 − cos is accurate
        accurate = (one / norms[0] - other / norms[1]).square_().sum() / 2
    return value + (accurate - value.detach())
