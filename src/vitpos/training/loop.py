"""The training loop: a generator of states, one before the first epoch and one after each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.data.dataset import Dataset
from vitpos.errors import UserError, WorkError
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.training.augment.base import build_augment
from vitpos.training.defenses import build_defense, compute_gradients
from vitpos.training.recipe import Recipe, warmup_cosine

NOISE = 1 << 40  # what the seed of a client's noise has more than that of an epoch's order


@dataclass(frozen=True)
class State:
    """Where training stands after ``epoch`` epochs; the tensors are live, so use them before asking for the next."""

    epoch: int
    tensors: dict[str, Tensor]  # "model.…" and "optimizer.…"
    record: dict[str, float]  # what is worth keeping of the epoch; empty before the first


def fit(
    model: Classifier,
    data: Dataset,
    recipe: Recipe,
    *,
    seed: int = 0,
    resume: tuple[int, Mapping[str, Tensor]] | None = None,
    tick: Callable[[int], None] = lambda images: None,
) -> Iterator[State]:
    """Trains ``model`` in place, yielding a state before the first epoch and after each; ``tick`` hears of every batch.

    Order and noise of an epoch depend on the seed and its number alone, so that going on from a state (``resume``: its
    epoch and tensors) gives bit for bit what an unbroken training gives. A loss or weight that is not finite raises
    WorkError; the last state yielded is then the last good one.
    """
    refuse(model, recipe)
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.lr, fused=True)
    done = 0
    if resume:
        done, tensors = resume
        load(tensors, model, optimizer)
    yield State(done, snapshot(model, optimizer), {})
    device = next(model.parameters()).device
    augment, defend = build_augment(recipe.augment), build_defense(recipe.defense)
    count = len(data.train)
    for epoch in range(done, recipe.epochs):
        model.train()  # whoever looked at the last state may have left it in evaluation
        torch.manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(count)
        noise = torch.Generator().manual_seed(NOISE + seed * 1_000_003 + epoch)
        if recipe.repeated_aug > 1:
            order = order[: -(-count // recipe.repeated_aug)].repeat_interleave(recipe.repeated_aug)[:count]
        indices = _without_a_rest_of_one(order.split(recipe.batch_size))
        batches = len(indices)
        total, right, began = 0.0, 0, time.perf_counter()
        for step, (images, labels) in enumerate(data.train.batches(indices)):
            progress = (epoch * batches + step + 0.5) / (recipe.epochs * batches)
            for group in optimizer.param_groups:
                group["lr"] = warmup_cosine(
                    progress, recipe.warmup_fraction, peak=recipe.lr, start=recipe.lr_start, end=recipe.lr_end
                )
            if isinstance(model, PatchClassifier):
                model.encoding.advance(progress)
            augment.advance(progress)
            optimizer.zero_grad()
            pieces = max(1, min(recipe.grad_accum, len(images) // 2))  # of two images or more, as batch norms need
            if recipe.defense:
                pieces = len(images)  # each image is a client
            for first in range(pieces):
                piece = slice(first, None, pieces)  # in turns, so that the copies of an image part
                inputs, targets = augment.prepare_batch(data, images[piece].to(device), labels[piece].to(device))
                logits, penalty = model.step(inputs)
                loss = F.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing) + penalty
                if not math.isfinite(value := loss.item()):
                    raise _diverged(f"the loss became {value}", epoch, step, batches)
                share = len(inputs) / len(images)
                if recipe.defense:
                    for name, gradient in defend(compute_gradients(loss, model), noise).items():
                        parameter = model.get_parameter(name)
                        if parameter.grad is None:
                            parameter.grad = torch.zeros_like(parameter)
                        parameter.grad.add_(gradient, alpha=share)
                else:
                    (loss * share).backward()
                total += value * len(inputs)
                answers = targets.argmax(1) if augment.mixes_targets else targets
                right += int((logits.detach().argmax(1) == answers).sum())
            if recipe.grad_clip:
                nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_clip)
            optimizer.step()
            tick(len(images))
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise _diverged("a weight is no longer finite", epoch, batches - 1, batches)
        seconds = time.perf_counter() - began
        record = {
            "epoch": epoch + 1,
            "loss": total / count,
            "accuracy": right / count,
            "seconds": seconds,
            "images_per_second": count / seconds,
        }
        yield State(epoch + 1, snapshot(model, optimizer), record)


def refuse(model: nn.Module, recipe: Recipe) -> None:
    """Refuses a training that takes images one at a time where something needs several."""
    norms = any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    if recipe.batch_size == 1 and norms:
        raise UserError("batch norms need more than one image; set train.batch_size to 2 or more")
    alone = "train.defense takes the gradient of each image by itself"
    if recipe.defense and norms:
        raise UserError(f"{alone}, and batch norms mix images; take a model without them, or no train.defense")
    if recipe.defense and build_augment(recipe.augment).mixes_targets:
        raise UserError(f"{alone}, and train.augment {recipe.augment!r} mixes images; leave out one of the two")


def _without_a_rest_of_one(indices: Sequence[Tensor]) -> list[Tensor]:
    """The batches of an epoch; where one image would be left over, which batch norms cannot take, the last has it too."""
    *before, last = indices
    return [*before[:-1], torch.cat([before[-1], last])] if before and len(last) == 1 < len(before[-1]) else [*indices]


def parameter_groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    """Weight matrices decay; biases, norms, prefix tokens and the encoding do not, unless it asks for it."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            plain = name == "weight" and parameter.ndim >= 2 and "encoding" not in module_name.split(".")
            (matrices if plain or getattr(module, "decays", False) else rest).append(parameter)
    return [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that training needs to go on, as named tensors."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, slots in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in slots.items()}
    return tensors


def load(tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    """The inverse of :func:`snapshot`; without an optimizer, the model's part of it."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, slot = name.split(".", 2)
            state.setdefault(int(index), {})[slot] = tensor
    prefix = "model."
    model.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    if optimizer:
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _diverged(what: str, epoch: int, step: int, batches: int) -> WorkError:
    return WorkError(f"{what} in epoch {epoch + 1}, step {step + 1} of {batches}; try a lower train.lr")
