"""What is stored of short trainings: weights, optimizer, log and generator after each epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.golden import adapter, values

VIT = "vit(patch=(2, 3), dim=16, depth=2, heads=2, drop_path=0.2)"
LEARNED = {"epochs": 2, "batch": 12, "lr": 0.01, "warmup": 0.3}  # an epoch is three steps
TRAININGS: dict[str, tuple[str, str, dict[str, Any]]] = {  # old specs and options
    "plain": (VIT, "learned(decay=True) + relative", LEARNED | {"decay": 0.2, "smoothing": 0.1, "clip": 0.0}),
    "mjp, augmented": (
        VIT,
        "learned + mjp(ratio=0.5, warmup=0.2, fade=0.5)",
        LEARNED | {"augment": "crop(pad=2) + flip + mix", "start": 0.001, "end": 0.0005},
    ),
    "mjp per image, pieces": (
        VIT,
        "rope + mjp(ratio=0.5, per='image', dal=None, decay=True)",
        LEARNED | {"augment": "flip + jitter + randaugment + erase", "pieces": 3, "repeats": 2},
    ),
    "clip and noise": (VIT, "learned + mjp(ratio=0.5)", LEARNED | {"defence": "clip(norm=0.5) + noise(scale=0.01)"}),
    "prune": (VIT, "rope_mixed", LEARNED | {"augment": "crop(pad=1)", "defence": "prune(share=0.7)"}),
    "swin": (
        "swin(patch=2, dim=8, depths=(2, 1), heads=(1, 2), window=2, windows='cpb', drop_path=0.3)",
        "learned + mjp(ratio=0.5)",
        LEARNED | {"augment": "flip"},
    ),
    "attention": ("attention(patch=(2, 3), dim=8, hidden=6)", "learned", LEARNED | {"augment": "spp(grid=(4, 4))"}),
    "resnet": (
        "resnet(depths=(1, 1), width=4, stem='small')",
        "none",
        LEARNED | {"augment": "jigsaw(grid=(4, 4), ratio=0.5)"},
    ),
}


@contextmanager
def _optimizers_watched() -> Iterator[list[list[dict[str, Any]]]]:
    """The parameter groups of whatever optimizer takes a step, one entry for each step."""
    steps: list[list[dict[str, Any]]] = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        steps.append([dict(group) for group in optimizer.param_groups])

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield steps
    finally:
        handle.remove()


def trained(name: str, shapes: dict[str, tuple[int, ...]], *, resumed: bool = False) -> list[dict[str, Any]]:
    """What is stored of each epoch of a training; ``resumed``: stopped after the first and continued by another call."""
    epochs = []
    with _optimizers_watched() as steps:
        for number, _, log, model in _states(name, shapes, resumed):
            weights = dict(model.state_dict())
            epochs.append(
                {
                    "epoch": number,
                    "weights": {key: adapter.along(key, shape, weights) for key, shape in shapes.items()},
                    "loss": log.get("loss"),
                    "accuracy": log.get("accuracy"),
                    "rates": [sorted({group["lr"] for group in groups}) for groups in steps],
                    "decay": _decay(model, steps[-1], shapes) if steps else {},
                    "next": values.next_numbers(),
                }
            )
            steps.clear()
    return epochs


def _states(
    name: str, shapes: dict[str, tuple[int, ...]], resumed: bool
) -> Iterator[tuple[int, dict[str, Tensor], dict[str, float], nn.Module]]:
    training = TRAININGS[name]
    if not resumed:
        yield from adapter.train(*training, shapes)
        return
    for state in adapter.train(*training, shapes, stop=1):
        yield state
    torch.manual_seed(99)  # what happens in between must not matter
    rest = adapter.train(*training, shapes, resume=state[:2])
    next(rest)  # the state that was resumed from
    yield from rest


def _decay(
    model: nn.Module, groups: Sequence[dict[str, Any]], shapes: dict[str, tuple[int, ...]]
) -> dict[str, list[float]]:
    """The weight decay of each parameter, by its old name."""
    by_id = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    decays = {name: by_id[id(p)] for name, p in model.named_parameters()}
    found = {}
    for old, shape in shapes.items():
        parts = adapter.state_from({old: torch.empty(shape)})
        if parts.keys() <= decays.keys():
            found[old] = sorted({decays[part] for part in parts})
    return found
