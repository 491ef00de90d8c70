"""The training loop: a generator that yields the training state before the first epoch and after each epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from vitpos.data.dataset import Dataset
from vitpos.encodings.protocols import FollowsTraining
from vitpos.errors import InputError, RunError
from vitpos.models.base import Classifier, require_classes
from vitpos.training.augment.base import build_augment
from vitpos.training.defenses import Gradients, build_defense, compute_gradients
from vitpos.training.loss import loss
from vitpos.training.recipe import Recipe
from vitpos.training.schedule import warmup_cosine

Batch = TypeVar("Batch")
NOISE = 1 << 40  # difference between the seeds of the defense's noise and of an epoch's order


@dataclass(frozen=True)
class State:
    """The state of a training after ``epoch`` epochs: tensors to resume it, and metrics of the last epoch.

    ``state`` maps names to tensors of the model and the optimizer, which are not copied: save them before the next state is
    requested. ``metrics`` maps names to values and is empty before the first epoch.
    """

    epoch: int
    state: dict[str, Tensor]  # "model.…" and "optimizer.…"
    metrics: dict[str, float]  # loss, accuracy and speed of the epoch; empty before the first


def fit(
    model: Classifier,
    data: Dataset,
    recipe: Recipe,
    *,
    seed: int = 0,
    resume: tuple[int, Mapping[str, Tensor]] | None = None,
    on_batch: Callable[[int], None] = lambda images: None,
) -> Iterator[State]:
    """Trains ``model`` in place with AdamW; yields a `State` before the first epoch and after each epoch.

    A loss or weight that is not finite raises RunError; the last yielded state is then the last valid one.

    Args:
        model: The model to train.
        data: The data set; its training split is used.
        recipe: Optimizer, schedule, augmentation and defense.
        seed: Seed of the order of images and of all other random choices. They depend only on the seed and the number of
            the epoch, so that a resumed training gives bit for bit the result of an uninterrupted one.
        resume: Number of finished epochs and tensors (``epoch`` and ``state`` of a `State`) to continue from.
        on_batch: Called after each batch with the number of images in it.
    """
    check_data(model, data, recipe)
    check_recipe(model, recipe)
    groups = parameter_groups(model, recipe.weight_decay, recipe.position_lr_factor)
    optimizer = torch.optim.AdamW(groups, lr=recipe.lr, fused=True)
    done = 0
    if resume:
        done, tensors = resume
        load_training_state(tensors, model, optimizer)
    yield State(done, training_state(model, optimizer), {})
    device = model.device
    augment, defend = build_augment(recipe.augment), build_defense(recipe.defense)
    followers = [module for module in model.modules() if isinstance(module, FollowsTraining)]
    count = len(data.train)
    for epoch in range(done, recipe.epochs):
        model.train()  # an evaluation of the last state may have switched to evaluation mode
        torch.manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(count)
        noise = torch.Generator().manual_seed(NOISE + seed * 1_000_003 + epoch)
        if recipe.repeated_aug > 1:
            order = order[: -(-count // recipe.repeated_aug)].repeat_interleave(recipe.repeated_aug)[:count]
        indices = _without_a_rest_of_one(order.split(recipe.batch_size))
        batches = len(indices)
        progresses = [(epoch * batches + step + 0.5) / (recipe.epochs * batches) for step in range(batches)]
        rates = [
            warmup_cosine(progress, recipe.warmup_fraction, peak=recipe.lr, start=recipe.lr_start, end=recipe.lr_end)
            for progress in progresses
        ]
        total, correct, began = 0.0, 0, time.perf_counter()
        for step, (images, labels) in enumerate(optimizer_steps(optimizer, data.train.batches(indices), rates)):
            progress = progresses[step]
            for follower in followers:
                follower.set_progress(progress)
            augment.set_progress(progress)
            parts = max(1, min(recipe.grad_accum, len(images) // 2))  # of two images or more, as batch norms need
            if recipe.defense:
                parts = len(images)  # each image is a client
            for first in range(parts):
                part_index = slice(first, None, parts)  # strided, so that copies of an image are in different parts
                inputs, targets = augment.prepare_batch(
                    data, images[part_index].to(device), labels[part_index].to(device)
                )
                batch_loss, logits = loss(model, inputs, targets, label_smoothing=recipe.label_smoothing)
                if not math.isfinite(value := batch_loss.item()):
                    raise _diverged(f"the loss became {value}", epoch, step, batches)
                fraction = len(inputs) / len(images)
                if recipe.defense:
                    _accumulate(model, defend(compute_gradients(batch_loss, model), noise), fraction)
                else:
                    (batch_loss * fraction).backward()
                total += value * len(inputs)
                classes = targets.argmax(1) if augment.mixes_targets else targets
                correct += int((logits.detach().argmax(1) == classes).sum())
            if recipe.grad_clip:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
            on_batch(len(images))
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise _diverged("a weight is no longer finite", epoch, batches - 1, batches)
        seconds = time.perf_counter() - began
        metrics = {
            "epoch": epoch + 1,
            "loss": total / count,
            "accuracy": correct / count,
            "seconds": seconds,
            "images_per_second": count / seconds,
        }
        yield State(epoch + 1, training_state(model, optimizer), metrics)


def check_data(model: Classifier, data: Dataset, recipe: Recipe) -> None:
    """Raises InputError if the model does not have one output per class of the data, or training images are missing.

    Training images are not needed if ``recipe.epochs`` is 0.
    """
    require_classes(model, data.classes, data.spec)
    if recipe.epochs and not len(data.train):
        raise InputError(f"data {data.spec!r} has no training images; add some, or set train.epochs to 0")


def optimizer_steps(
    optimizer: torch.optim.Optimizer, batches: Iterable[Batch], rates: Sequence[float] | None = None
) -> Iterator[Batch]:
    """Yields batches one by one; after each, takes an optimizer step with the gradients that the caller has computed.

    This is the inner loop of all training: of models, of fine-tuning and of linear heads in evaluations.

    Args:
        optimizer: Its gradients are set to zero before each batch.
        batches: The batches, one per step.
        rates: Learning rate of each step, which is multiplied by the ``lr_factor`` of a parameter group if it has one; by
            default the optimizer's learning rates are kept.
    """
    for step, batch in enumerate(batches):
        if rates is not None:
            for group in optimizer.param_groups:
                group["lr"] = rates[step] * group.get("lr_factor", 1.0)
        optimizer.zero_grad()
        yield batch
        optimizer.step()


def _accumulate(model: nn.Module, gradients: Gradients, weight: float) -> None:
    """Adds ``weight`` times ``gradients`` (parameter name → tensor) to ``parameter.grad`` of the model's parameters."""
    for name, gradient in gradients.items():
        parameter = model.get_parameter(name)
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.add_(gradient, alpha=weight)


def check_recipe(model: nn.Module, recipe: Recipe) -> None:
    """Raises InputError if images are processed one by one and the model or the recipe needs several at once.

    A batch size of 1 does not allow batch norm. A defense, which needs the gradient of each image, allows neither batch
    norm nor mixup.
    """
    norms = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    if recipe.batch_size == 1 and norms:
        raise InputError("batch norms need more than one image; set train.batch_size to 2 or more")
    defense = f"train.defense={recipe.defense!r} needs the gradient of each single image"
    if recipe.defense and norms:
        raise InputError(f"{defense}, and batch norms mix images; take a model without them, or no train.defense")
    if recipe.defense and build_augment(recipe.augment).mixes_targets:
        raise InputError(f"{defense}, and train.augment {recipe.augment!r} mixes images; leave out one of the two")


def _without_a_rest_of_one(indices: Sequence[Tensor]) -> list[Tensor]:
    """Returns the batches of an epoch, as tensors of image indices (B,).

    A last batch of one image, which batch norm cannot process, is merged into the one before.

    Args:
        indices: The batches before the merge.
    """
    *before, last = indices
    return [*before[:-1], torch.cat([before[-1], last])] if before and len(last) == 1 < len(before[-1]) else [*indices]


def parameter_groups(model: nn.Module, decay: float, position_lr_factor: float = 1.0) -> list[dict[str, object]]:
    """Returns two parameter groups for an optimizer: weight matrices with weight decay ``decay``, all others without.

    Parameters of position encodings are in the second group. Encodings whose attribute ``weight_decay`` is True are an
    exception: their own parameters are in the first group, but those of their submodules, such as an MLP, are not.

    If ``position_lr_factor`` is not 1, the parameters of position encodings are in groups of their own, which have this
    factor as ``lr_factor``: :func:`optimizer_steps` multiplies their learning rate by it.
    """
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    positions: set[nn.Parameter] = set()
    for module_name, module in model.named_modules():
        inside = "encoding" in module_name.split(".")
        for name, parameter in module.named_parameters(recurse=False):
            plain = name == "weight" and parameter.ndim >= 2 and not inside
            (matrices if plain or getattr(module, "weight_decay", False) else rest).append(parameter)
            positions |= {parameter} if inside else set()
    if position_lr_factor == 1:
        return [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    groups: list[dict[str, object]] = []
    for parameters, weight_decay in ((matrices, decay), (rest, 0.0)):
        for inside, factor in ((False, 1.0), (True, position_lr_factor)):
            some = [parameter for parameter in parameters if (parameter in positions) == inside]
            groups.append({"params": some, "weight_decay": weight_decay, "lr_factor": factor})
    return [group for group in groups if group["params"]]


def training_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns the tensors that :func:`fit` needs to resume: ``model.…`` and ``optimizer.…`` → tensor, not copied."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in slots.items()}
    return tensors


def load_training_state(
    tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Loads the tensors of :func:`training_state` into the model and, if given, the optimizer."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, slot = name.split(".", 2)
            state.setdefault(int(index), {})[slot] = tensor
    prefix = "model."
    model.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    if optimizer:
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _diverged(what: str, epoch: int, step: int, batches: int) -> RunError:
    return RunError(f"{what} in epoch {epoch + 1}, step {step + 1} of {batches}; try a lower train.lr")
