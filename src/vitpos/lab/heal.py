"""Heals a model after its position encoding was swapped: a short distillation from the original on unlabeled images."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.errors import InputError, RunError
from vitpos.lab.drift import prepare
from vitpos.models.base import Classifier, Shape
from vitpos.training.loop import optimizer_steps, parameter_groups
from vitpos.training.schedule import warmup_cosine

MAX_EPOCHS = 10_000


@dataclass(frozen=True)
class Healing:
    """How a converted model is trained to imitate the original.

    Args:
        epochs: Passes over the training images; fractions are allowed.
        batch_size: Images per step.
        lr: Peak learning rate of AdamW, with linear warm-up and cosine decay to 0.
        warmup_fraction: Fraction of the steps in which the learning rate rises.
        weight_decay: Weight decay of matrices.
        temperature: Both logits are divided by it before the softmax.
        feature_weight: Weight of the feature loss, MSE(student, teacher) / mean square of the teacher's features.
        seed: Seed of the order of the images.
    """

    epochs: float = 1.0
    batch_size: int = 16
    lr: float = 1e-3
    warmup_fraction: float = 0.1
    weight_decay: float = 0.0
    temperature: float = 2.0
    feature_weight: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        allowed = (  # comparisons with NaN are false
            0 < self.epochs <= MAX_EPOCHS
            and 0 < self.lr < math.inf
            and 0 <= self.warmup_fraction <= 1
            and 0 <= self.weight_decay < math.inf
            and 0 < self.temperature < math.inf
            and 0 <= self.feature_weight < math.inf
        )
        whole = all(isinstance(number, int) for number in (self.batch_size, self.seed))
        if not allowed or not whole or self.batch_size < 1 or not 0 <= self.seed < 2**63:
            given = ", ".join(f"{name}={value}" for name, value in asdict(self).items())
            raise InputError(
                f"healing got {given}; choose finite numbers above 0 (weight_decay, feature_weight and seed from 0), a "
                f"warmup_fraction from 0 to 1, and at most {MAX_EPOCHS} epochs"
            )


def heal(
    student: Classifier,
    teacher: Classifier,
    data: Dataset,
    healing: Healing | None = None,
    *,
    student_shape: Shape | None = None,
    teacher_shape: Shape | None = None,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """Trains ``student`` in place so that its features and logits become those of ``teacher``; labels are not used.

    The loss is the Kullback-Leibler divergence of the softmax of the logits, plus the relative squared distance of the
    features that enter the head, times ``feature_weight``. All weights are trained; models in half precision are trained
    in float32 and rounded at the end. Returns ``steps``, ``images`` (with repetitions), and the loss of the first and of
    the last tenth of the steps.

    Args:
        student: The model to train.
        teacher: The original model, which does not change.
        data: Its training images are used.
        healing: The options of the training.
        student_shape, teacher_shape: (C, height, width) to which the images are resized for each; by default that of the
            data.
        on_batch: Called after each step with the numbers of steps done and of all.
    """
    healing = healing or Healing()
    if not len(data.train):
        raise InputError(f"data {data.spec!r} has no training images to heal on; give other data")
    student_shape, teacher_shape = student_shape or data.shape, teacher_shape or data.shape
    batch_size = min(healing.batch_size, len(data.train))
    steps = max(1, round(healing.epochs * len(data.train) / batch_size))
    original, half = student, next(student.parameters()).dtype in (torch.float16, torch.bfloat16)
    if half:  # steps of the optimizer are smaller than half precision resolves
        student, teacher = deepcopy(student).float(), deepcopy(teacher).float()
    optimizer = torch.optim.AdamW(parameter_groups(student, healing.weight_decay), lr=healing.lr, fused=True)
    rates = [warmup_cosine((step + 0.5) / steps, healing.warmup_fraction, peak=healing.lr) for step in range(steps)]
    losses: list[float] = []
    dtype = next(student.parameters()).dtype
    teacher.eval()
    student.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(healing.seed)
        batches = data.train.batches(_orders(len(data.train), batch_size, steps))
        for images, _ in optimizer_steps(optimizer, batches, rates):
            for_student, for_teacher = (
                prepare(data, images, shape).to(student.device, dtype) for shape in (student_shape, teacher_shape)
            )
            loss = distillation_loss(student, teacher, for_student, for_teacher, healing)
            if not math.isfinite(value := loss.item()):
                raise RunError(f"healing: the loss became {value} at step {len(losses) + 1}; choose a lower lr")
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            losses.append(value)
            on_batch(len(losses), steps)
    if half:
        original.load_state_dict(student.state_dict())  # rounds to half precision
    original.eval()
    if not all(tensor.isfinite().all() for tensor in original.state_dict().values()):
        raise RunError("healing: some weights are not finite at the end; choose a lower lr, or a model in float32")
    tenth = max(1, steps // 10)
    first, last = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
    return {"steps": steps, "images": steps * batch_size, "loss_first": first, "loss_last": last}


def distillation_loss(
    student: Classifier, teacher: Classifier, for_student: Tensor, for_teacher: Tensor, healing: Healing
) -> Tensor:
    """Returns the loss, a scalar, of a batch of images, given in the sizes of the student and of the teacher.

    A model without classes, or with one, has the feature loss only.
    """
    with torch.no_grad():
        wanted = teacher.forward_features(for_teacher)
        target = teacher.head(wanted)
    features = student.forward_features(for_student)
    distance = (features - wanted).square().mean() / wanted.square().mean().clamp_min(1e-12)
    if (student._built_with or {}).get("num_classes") in (0, 1):
        return distance
    logits, t = student.head(features), healing.temperature
    kl = F.kl_div((logits / t).log_softmax(1), (target / t).log_softmax(1), log_target=True, reduction="batchmean")
    return t * t * kl + healing.feature_weight * distance


def _orders(count: int, batch_size: int, steps: int) -> list[Tensor]:
    """Returns the indices of the images of each step; every image occurs once before any occurs again."""
    passes = math.ceil(steps * batch_size / count)
    order = torch.cat([torch.randperm(count) for _ in range(passes)])
    return list(order[: steps * batch_size].split(batch_size))
