import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from tests.evaluate import numbers_of
from vitpos.data.dataset import load
from vitpos.errors import RunError
from vitpos.models import MODELS
from vitpos.models.base import Classifier
from vitpos.training.loop import fit, parameter_groups
from vitpos.training.recipe import Recipe

SPEC = "vit(patch=(2, 4), dim=16, depth=1, heads=2, drop_path=0.2)"
RECIPE = Recipe(epochs=3, batch_size=60, lr=0.01, label_smoothing=0.1)


def trained(recipe=RECIPE, seed=0, resume=None, stop=None, spec=SPEC, encoding="learned"):
    data = load("stripes")
    torch.manual_seed(seed)
    model = MODELS.build(spec, data.shape, 2, encoding)
    states = []
    for state in fit(model, data, recipe, seed=seed, resume=resume):
        states.append((state.epoch, {k: v.clone() for k, v in state.state.items()}, state.metrics))
        if state.epoch == stop:
            break
    return model, states


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_the_same_training_twice_gives_the_same_bits():
    assert equal(trained()[1][-1][1], trained()[1][-1][1])
    assert not equal(trained()[1][-1][1], trained(seed=1)[1][-1][1])


def test_resuming_from_any_state_gives_the_same_bits():
    whole = trained()[1]
    for epoch in range(4):
        stopped = trained(stop=epoch)[1][-1]
        rest = trained(resume=(stopped[0], stopped[1]))[1]
        assert [state[0] for state in rest] == list(range(epoch, 4))
        assert equal(rest[-1][1], whole[-1][1])


@pytest.mark.parametrize(
    ("spec", "encoding"),
    [
        ("resnet(depths=(1, 1), width=4, stem='small')", "none"),
        ("swin(patch=2, dim=8, depths=(2, 1), heads=(1, 2), window=2)", "learned + mjp"),
    ],
)
def test_resuming_with_batch_norm_and_drop_path_gives_the_same_bits(spec, encoding):
    whole = trained(spec=spec, encoding=encoding)[1]
    stopped = trained(spec=spec, encoding=encoding, stop=1)[1][-1]
    assert equal(trained(spec=spec, encoding=encoding, resume=stopped[:2])[1][-1][1], whole[-1][1])


def test_evaluating_between_epochs_does_not_change_the_training():
    data = load("stripes")
    weights = []
    for evaluate in (False, True):
        torch.manual_seed(0)
        model = MODELS.build(SPEC, data.shape, 2, "learned")
        for _ in fit(model, data, RECIPE):
            if evaluate:
                numbers_of("accuracy", model, data)
        weights.append(model.state_dict())
    assert equal(*weights)


def test_each_epoch_has_a_record_and_the_loss_falls():
    states = trained()[1]
    assert states[0][2] == {}
    records = [state[2] for state in states[1:]]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert records[-1]["loss"] < records[0]["loss"]  # measured: 0.21 or less against 0.39 or more
    assert all(record["images_per_second"] > 0 for record in records)


def test_a_separable_task_is_learned_perfectly():
    model, _ = trained(Recipe(epochs=8, batch_size=32, lr=0.01))
    assert numbers_of("accuracy", model, load("stripes"))["accuracy"] == 1.0


@pytest.mark.parametrize("lr", [1e30, 1e38])
def test_a_loss_that_is_not_finite_raises_after_the_last_finite_state(lr):
    data, last = load("stripes"), None
    model = MODELS.build(SPEC, data.shape, 2, "learned")
    with pytest.raises(RunError, match=r"try a lower train\.lr"):
        for state in fit(model, data, Recipe(epochs=5, lr=lr, grad_clip=0.0)):
            last = {key: tensor.clone() for key, tensor in state.state.items()}
    assert last and all(tensor.isfinite().all() for tensor in last.values())


def test_encodings_norms_biases_and_prefix_tokens_have_no_weight_decay():
    model = MODELS.build(SPEC, (1, 8, 16), 2, "learned")
    decayed, kept = (group["params"] for group in parameter_groups(model, 0.05))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(names[id(p)].endswith("weight") and p.ndim == 2 for p in decayed)
    assert {"encoding.table", "prefix_tokens", "norm.weight", "head.bias"} <= {names[id(p)] for p in kept}
    assert len(decayed) + len(kept) == len(list(model.parameters()))


@pytest.mark.parametrize(
    "spec", ["resnet(depths=(1, 1), width=4)", "swin(dim=8, depths=(1,), heads=(1,), window_encoding='cpb')"]
)
def test_convolution_kernels_have_weight_decay_and_norms_and_window_encodings_have_not(spec):
    model = MODELS.build(spec, (1, 8, 16), 2, "none")
    decayed, kept = (group["params"] for group in parameter_groups(model, 0.05))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(p.ndim > 1 and "encoding" not in names[id(p)] for p in decayed)
    assert all(p.ndim == 1 or "encoding" in names[id(p)] for p in kept)


def position_names(model):
    return {name for name, _ in model.named_parameters() if "encoding" in name.split(".")}


@pytest.mark.parametrize(
    ("spec", "encoding"),
    [
        (SPEC, "learned(weight_decay=True) + cpe"),
        ("swin(patch=2, dim=8, depths=(1, 1), heads=(1, 2), window=2)", "learned"),
        ("resnet(depths=(1, 1), width=4)", "none"),
    ],
)
def test_a_factor_changes_the_learning_rate_of_positions_alone(spec, encoding):
    """The first step of Adam is as long as the learning rate, whatever the gradient; so is the weight decay."""
    recipe = Recipe(epochs=1, batch_size=1000, grad_clip=0.0)  # one step
    start, full, tenth, none = (
        dict(trained(one, spec=spec.replace(", drop_path=0.2", ""), encoding=encoding)[0].named_parameters())
        for one in (replace(recipe, epochs=0), recipe, *(replace(recipe, position_lr_factor=f) for f in (0.1, 0.0)))
    )
    positions = position_names(trained(replace(recipe, epochs=0), spec=spec, encoding=encoding)[0])
    assert bool(positions) == (encoding != "none")
    for name, before in start.items():
        if name in positions:
            assert torch.allclose(tenth[name] - before, 0.1 * (full[name] - before), rtol=1e-2, atol=1e-6)
            assert torch.equal(none[name], before) and not torch.equal(full[name], before)
        else:
            assert torch.equal(tenth[name], full[name]) and torch.equal(none[name], full[name])


def test_the_groups_of_a_factor_of_one_are_those_without_it():
    model = MODELS.build(SPEC, (1, 8, 16), 2, "learned(weight_decay=True) + cpe")
    first, second = (parameter_groups(model, 0.05, *factor) for factor in ((), (1.0,)))
    assert [list(group) for group in first] == [["params", "weight_decay"]] * 2
    assert all(a["params"] == b["params"] for a, b in zip(first, second, strict=True))
    groups = parameter_groups(model, 0.05, 0.1)
    assert [(group["weight_decay"], group["lr_factor"]) for group in groups] == [
        (0.05, 1.0),
        (0.05, 0.1),
        (0.0, 1.0),
        (0.0, 0.1),
    ]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_resuming_with_a_factor_gives_the_same_bits():
    recipe = replace(RECIPE, position_lr_factor=0.1)
    whole = trained(recipe)[1]
    stopped = trained(recipe, stop=1)[1][-1]
    assert equal(trained(recipe, resume=stopped[:2])[1][-1][1], whole[-1][1])
    assert not equal(whole[-1][1], trained()[1][-1][1])


def test_the_learning_rate_changes_the_weights():
    first = trained(stop=1)[1][-1][1]
    assert not equal(first, trained(replace(RECIPE, lr_start=0.005, lr_end=0.001), stop=1)[1][-1][1])


def test_the_encoding_is_given_the_progress_of_training():
    data = load("stripes")
    model = MODELS.build(SPEC, data.shape, 2, "learned + mjp(mask_ratio=0.5)")
    progress = []
    model.encoding.parts[1].set_progress = progress.append
    list(fit(model, data, Recipe(epochs=2, batch_size=128)))
    assert progress == [(step + 0.5) / 8 for step in range(8)]


def test_gradient_accumulation_takes_the_step_of_the_whole_batch():
    plain = "vit(patch=(2, 4), dim=16, depth=1, heads=2)"
    recipe = replace(RECIPE, epochs=1)
    start = all_parameters(trained(replace(recipe, epochs=0), spec=plain)[0])
    whole, parts = (trained(replace(recipe, grad_accum=n), spec=plain) for n in (1, 7))
    assert whole[1][-1][2]["loss"] == pytest.approx(parts[1][-1][2]["loss"], rel=1e-4)
    moved, other = (all_parameters(found[0]) - start for found in (whole, parts))
    # as a whole, since Adam takes a full step in a random direction where a gradient is zero but for rounding
    assert (moved - other).norm() < 0.005 * moved.norm()


def all_parameters(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_repeated_images_occur_as_often_as_given_and_in_different_parts_of_a_batch():
    data = load("stripes")
    parts = []

    class RecordingModel(Classifier):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def forward_with_penalty(self, images, positions=None):
            parts.append([bytes((255 * image).byte().numpy().tobytes()) for image in images])
            return self.weight.expand(len(images), 2), 0.0

    count = len(data.train)
    marked = replace(data.train, images=data.train.images.clone())
    marked.images[:, 0, 0, 0], marked.images[:, 0, 0, 1] = torch.arange(count) // 16, torch.arange(count) % 16 * 16
    data = replace(data, train=marked, mean=(0.0,), std=(1.0,))
    list(fit(RecordingModel(), data, Recipe(epochs=1, batch_size=12, grad_accum=3, repeated_aug=3, grad_clip=0.0)))
    copies = Counter(image for part in parts for image in part)
    assert sum(copies.values()) == count and set(copies.values()) <= {3, count % 3 or 3}
    assert all(len(set(part)) == len(part) for part in parts), "no part has two copies"


def test_no_part_of_a_batch_is_a_single_image():
    """Batch norms need two images or more."""
    recipe = Recipe(epochs=1, batch_size=9, grad_accum=8, lr=0.01)
    data = load("stripes(count=19)")
    model = MODELS.build("resnet(depths=(1, 1, 1), width=4)", data.shape, 2)
    *_, last = fit(model, data, recipe)
    assert math.isfinite(last.metrics["loss"])
