"""The contract of a position encoding, one function per check; ``vitpos.testing`` runs them.

Every check builds small Vision Transformers with the encoding, in float64 and with large random weights, so that any effect
of the encoding is visible in the output, and compares outputs that must be equal. The docstrings are printed as table rows:
each completes the sentence "the encoding …".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace

import torch

from vitpos.errors import InputError
from vitpos.models.vit import ViT
from vitpos.positions import Positions
from vitpos.testing.helpers import (
    GRID,
    OTHER,
    EncodingError,
    N,
    Subject,
    added,
    difference,
    equal,
    forward,
    order,
    orders,
    patch_logits,
    uncached,
)
from vitpos.testing.traits import check_traits


def check_shapes(subject: Subject) -> None:
    """Checks that an encoding gives finite logits on any grid: not square, finer, coarser, a single row or column."""
    model = subject.model()
    for grid in (GRID, OTHER, (6, 8), (2, 3), (1, 5), (5, 1)):
        for pos in (None, Positions.from_grid(grid)):
            out = model(subject.images(grid), pos)
            if out.shape != (3, 5) or not out.isfinite().all():
                raise EncodingError(f"logits on a {grid[0]}×{grid[1]} grid are not finite numbers of shape (3, 5)")


def check_counts(subject: Subject) -> None:
    """Checks that an encoding adds the same vector to a token if other tokens are left out, here 7 of 12."""
    model, x = subject.model(), subject.tokens()
    kept = torch.tensor([[0, 3, 4, 9, 10], [11, 2, 5, 1, 0], [7, 6, 8, 10, 3]])
    some, pos = x.gather(1, kept[..., None].expand(-1, -1, x.shape[2])), Positions.from_grid(GRID)
    whole = added(model, x, pos).expand(3, -1, -1).gather(1, kept[..., None].expand(-1, -1, x.shape[2]))
    few = added(model, some, pos.select(kept)).expand(3, -1, -1)
    equal(few, whole, "the vector of a token changes when other tokens are left out")
    alone = [forward(model, some[i : i + 1], pos.select(kept[i : i + 1])) for i in range(3)]
    equal(forward(model, some, pos.select(kept)), torch.cat(alone), "images with other tokens kept are mixed up")


def check_dtypes(subject: Subject) -> None:
    """Checks that an encoding works in float32, float64 and bfloat16 and returns the dtype of its inputs."""
    reference = subject.model(torch.float32)
    state, outputs = reference.state_dict(), {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        model = subject.model(dtype)
        model.load_state_dict(state)
        seen: list[torch.dtype] = []
        for block in model.blocks:
            block.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].dtype))  # noqa: B023
        try:
            outputs[dtype] = model(subject.images().to(dtype))
        except (RuntimeError, InputError) as error:
            raise EncodingError(f"it fails with inputs in {dtype}: {_line(error)}") from error
        if others := {*seen, outputs[dtype].dtype} - {dtype}:
            raise EncodingError(f"with inputs in {dtype} it returns {', '.join(map(str, others))}")
    gap = (outputs[torch.float32].double() - outputs[torch.float64]).abs().max()
    if not gap < 1e-3 * (1 + outputs[torch.float64].abs().max()):
        raise EncodingError(f"float32 and float64 disagree: largest difference {float(gap):.3g}")


def check_devices(subject: Subject) -> None:
    """Checks that an encoding creates its tensors on the device of its inputs, and its weights on the default device."""
    with torch.device("meta"):
        model = subject.model(torch.float32)
    state = model.encoding.state_dict()
    if elsewhere := [name for name, tensor in state.items() if tensor.device.type != "meta"]:
        raise EncodingError(f"{', '.join(elsewhere)} are created on a fixed device; leave the device out")
    try:
        model(subject.images().to("meta", torch.float32), Positions.from_grid(GRID, device="meta"))
    except NotImplementedError:
        return  # an operation that needs values, which this device does not have
    except RuntimeError as error:
        raise EncodingError(f"it fails for inputs on another device: {_line(error)}") from error


def check_batches(subject: Subject) -> None:
    """Checks that an encoding processes each image of a batch independently, also if their positions differ."""
    model, x, images = subject.model(), subject.tokens(), subject.images()
    equal(model(images), torch.cat([model(image[None]) for image in images]), "an image changes the output of another")
    hidden = torch.stack([torch.arange(N) < 4, torch.arange(N) % 3 == 0, torch.zeros(N, dtype=torch.bool)])
    every = Positions.from_grid(GRID).permute(orders()).hide(hidden)
    alone = [
        forward(model, x[i : i + 1], Positions.from_grid(GRID).permute(orders()[i : i + 1]).hide(hidden[i : i + 1]))
        for i in range(3)
    ]
    equal(forward(model, x, every), torch.cat(alone), "positions of one image affect another image")
    one = Positions.from_grid(GRID).permute(order())
    each = one.select(torch.arange(N).expand(3, -1))
    broken = "positions shared by the batch (1, N) give another output than the same positions per image (B, N)"
    equal(forward(model, x, one), forward(model, x, each), broken)


def check_state(subject: Subject) -> None:
    """Checks that an encoding is deterministic in evaluation mode and keeps no state between calls."""
    model, x, pos = subject.model(), subject.tokens(), Positions.from_grid(GRID)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    unused = deepcopy(model)
    first = forward(model, x, pos)
    torch.manual_seed(1)
    equal(forward(model, x, pos), first, "the same call gives another output")
    others = (pos.permute(orders()), Positions.from_grid((4, 3)), pos.hide(torch.arange(N)[None] < 5))
    for other in others:
        broken = "a call with other positions depends on the calls before it"
        equal(forward(model, x, other), forward(deepcopy(unused), x, other), broken)
        equal(forward(model, x, pos), first, "a call with other positions changes the next one")
    model(subject.images((6, 8)))
    equal(forward(model, x, pos), first, "a call on another grid changes the next one")
    for name, tensor in model.state_dict().items():
        if not torch.equal(tensor, before[name]):
            raise EncodingError(f"evaluation changes {name}")
    training = model.train().encoding
    _, augmented = training.augment(x, pos)
    first_vectors, vectors = (training.vectors(augmented, 0, x.dtype) for _ in range(2))
    if first_vectors is not None and vectors is not None:
        broken = "in training, two calls of vectors() with the same positions differ: sample once, in augment()"
        equal(vectors, first_vectors, broken)


def check_sharing(subject: Subject) -> None:
    """Checks that an encoding caches only tables that are determined by the positions and the key of the cache entry."""
    makes = [(subject.make, 0), (subject.make, 1), *((make, 0) for make in subject.variants)]
    # with mean pooling, a bias in the last block changes the logits
    models = [subject.model(seed=seed, make=make, pool="mean", registers=2) for make, seed in makes]
    for pos in (Positions.from_grid(GRID), Positions.from_grid(GRID).permute(order())):
        shared, trained = replace(pos), replace(pos)  # copies with an empty cache
        _equal_uncached(subject, models[0], shared, "a block changes the output of the next one", "layer")
        forward(models[0].train(), subject.tokens(), trained)
        broken = "a call in training mode changes the next one in evaluation mode"
        _equal_uncached(subject, models[0].eval(), trained, broken, "self.training")
        broken = "an instance with other weights or options changes the output of this one"
        for model in models:
            _equal_uncached(subject, model, shared, broken, "an option")
        broken = "an instance with another number of heads changes the output of this one"
        for model in _models_with_other_heads(subject):
            _equal_uncached(subject, model, shared, broken, "q.shape[1]")


def _equal_uncached(subject: Subject, model: ViT, pos: Positions, broken: str, missing: str) -> None:
    """Raises an EncodingError if the output of a model with cached tables differs from that without a cache.

    Args:
        subject: the encoding under test, which gives the input tokens.
        model: a model with the encoding.
        pos: positions with the cached tables.
        broken: start of the message.
        missing: what the cache key probably lacks, for the message.
    """
    x, broken = subject.tokens(), f"{broken} (a cache key lacks {missing})"
    expected = forward(model, x, uncached(pos))
    try:
        found = forward(model, x, pos)
    except (InputError, RuntimeError) as error:  # a cached table of another shape
        raise EncodingError(f"{broken}: {_line(error)}") from error
    equal(found, expected, broken)


def _models_with_other_heads(subject: Subject) -> list[ViT]:
    """Returns models with the encoding under test, with one head and with twice the number of heads of ``subject``.

    A model that cannot be built is left out. The list is empty if the encoding is an instance, which has fixed heads.
    """
    models = []
    for heads in (1, 2 * subject.geometry.heads) if not subject.copied else ():
        with suppress(Exception):
            models.append(
                replace(subject, geometry=replace(subject.geometry, heads=heads)).model(pool="mean", registers=2)
            )
    return models


def check_hidden(subject: Subject) -> None:
    """Checks that an encoding ignores hidden (masked) positions: tokens with hidden positions can be exchanged."""
    model, x, pos = subject.model(), subject.tokens(), Positions.from_grid(GRID)
    gone = pos.hide(torch.ones(1, N, dtype=torch.bool))
    equal(forward(model, x, gone), forward(model, x[:, order()], gone), "hidden positions are used")
    mask, swapped = torch.zeros(1, N, dtype=torch.bool), torch.arange(N)
    mask[0, [1, 6, 10]] = True
    swapped[[1, 6, 10]] = torch.tensor([6, 10, 1])
    some = pos.hide(mask)
    equal(forward(model, x, some), forward(model, x[:, swapped], some), "two hidden tokens swapped change the output")


def check_hidden_pairs(subject: Subject) -> None:
    """Checks that an encoding has no effect on the logit of two tokens if the position of one is hidden (masked)."""
    model, mask = subject.model(), torch.zeros(1, N, dtype=torch.bool)
    mask[0, 4] = True
    here, there = (pos.hide(mask) for pos in (Positions.from_grid(GRID), Positions.from_grid(GRID).permute(order())))
    first, second = patch_logits(model, here), patch_logits(model, there)
    equal(first[:, :, 4], second[:, :, 4], "the logit of a hidden query depends on the position of the key")
    equal(first[..., 4], second[..., 4], "the logit of a hidden key depends on the position of the query")


def check_order(subject: Subject) -> None:
    """Checks that an encoding gives the same output if tokens and their positions are permuted together."""
    model, x, pos = subject.model(), subject.tokens(), Positions.from_grid(GRID)
    broken = "tokens and positions permuted together change the output: positions are taken from the order of tokens"
    equal(forward(model, x, pos), forward(model, x[:, order()], pos.permute(order())), broken)
    moved = x.gather(1, orders()[..., None].expand_as(x))
    equal(forward(model, x, pos), forward(model, moved, pos.permute(orders())), broken)


def check_gradients(subject: Subject) -> None:
    """Checks that an encoding uses all its parameters: each gets a gradient that is finite and not zero."""
    zero: dict[str, list[bool]] = {}
    for randomize in (True, False):  # of max(a, b), for one, only the larger part has a gradient other than zero
        model = subject.model(pool="mean", registers=2, randomize=randomize).train()
        logits, penalty = model.forward_with_penalty(subject.images())
        (logits.square().sum() + penalty).backward()
        for name, parameter in model.encoding.named_parameters():
            if parameter.grad is None or not parameter.grad.isfinite().all():
                what = "none" if parameter.grad is None else "not finite"
                raise EncodingError(f"parameter {name!r} has no useful gradient ({what}); every step must use it (DDP)")
            zero.setdefault(name, []).append(bool(parameter.grad.abs().max() <= 1e-8))
    for name in (name for name, found in zero.items() if all(found)):
        raise EncodingError(f"parameter {name!r} has no useful gradient (zero); remove it if nothing depends on it")


def check_copies(subject: Subject) -> None:
    """Checks that an encoding gives the same output after deepcopy, and after its state_dict is loaded into a new model."""
    model, images = subject.model(), subject.images()
    out, other = model(images), subject.model(seed=5)
    equal(deepcopy(model)(images), out, "a deep copy gives another output")
    other.load_state_dict(model.state_dict())
    equal(
        other(images), out, "a new model with the same state_dict gives another output: register its tensors as buffers"
    )


def check_export(subject: Subject) -> None:
    """Checks that an encoding can be exported by torch.export, with and without ``Positions`` as an input."""
    model, images = subject.model(torch.float32), subject.images().float()
    pos = Positions.from_grid(GRID).permute(order())
    for inputs in ((images,), (images, pos), (images, pos.hide(torch.arange(N)[None] < 4))):
        out = torch.export.export(model, inputs).module()(*inputs)
        if not torch.allclose(out, model(*inputs), atol=1e-5):
            raise EncodingError(f"the exported model gives another output: {difference(out, model(*inputs))}")


def _line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


CHECKS: dict[str, Callable[[Subject], None]] = {
    "shapes": check_shapes,
    "counts": check_counts,
    "dtypes": check_dtypes,
    "devices": check_devices,
    "batches": check_batches,
    "state": check_state,
    "sharing": check_sharing,
    "hidden": check_hidden,
    "hidden_pairs": check_hidden_pairs,
    "order": check_order,
    "traits": check_traits,
    "gradients": check_gradients,
    "copies": check_copies,
    "export": check_export,
}
