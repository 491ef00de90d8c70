import math
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch

from vitpos.data.dataset import load
from vitpos.errors import UserError, WorkError
from vitpos.evaluations import EVALUATIONS
from vitpos.models import MODELS
from vitpos.training.fit import fit, parameter_groups
from vitpos.training.recipe import Recipe
from vitpos.training.schedule import warmup_cosine

SPEC = "vit(patch=(2, 4), dim=16, depth=1, heads=2, drop_path=0.2)"
RECIPE = Recipe(epochs=3, batch=60, lr=0.01, smoothing=0.1)


def trained(recipe=RECIPE, seed=0, resume=None, stop=None, spec=SPEC, encoding="learned"):
    data = load("stripes")
    torch.manual_seed(seed)
    model = MODELS.build(spec, data.shape, 2, encoding)
    states = []
    for state in fit(model, data, recipe, seed=seed, resume=resume):
        states.append((state.epoch, {k: v.clone() for k, v in state.tensors.items()}, state.record))
        if state.epoch == stop:
            break
    return model, states


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_the_same_cell_twice_gives_the_same_bits():
    assert equal(trained()[1][-1][1], trained()[1][-1][1])
    assert not equal(trained()[1][-1][1], trained(seed=1)[1][-1][1])


def test_going_on_from_any_state_gives_the_same_bits():
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
def test_going_on_with_running_statistics_and_dropped_paths_gives_the_same_bits(spec, encoding):
    whole = trained(spec=spec, encoding=encoding)[1]
    stopped = trained(spec=spec, encoding=encoding, stop=1)[1][-1]
    assert equal(trained(spec=spec, encoding=encoding, resume=stopped[:2])[1][-1][1], whole[-1][1])


def test_looking_at_a_state_does_not_change_what_follows():
    data = load("stripes")
    weights = []
    for look in (False, True):
        torch.manual_seed(0)
        model = MODELS.build(SPEC, data.shape, 2, "learned")
        for _ in fit(model, data, RECIPE):
            if look:
                EVALUATIONS.build("accuracy", model, data)
        weights.append(model.state_dict())
    assert equal(*weights)


def test_a_record_per_epoch_and_the_loss_falls():
    states = trained()[1]
    assert states[0][2] == {}
    records = [state[2] for state in states[1:]]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert records[-1]["loss"] < records[0]["loss"]
    assert all(record["images_per_second"] > 0 for record in records)


def test_what_can_be_learned_is_learned():
    model, _ = trained(Recipe(epochs=8, batch=32, lr=0.01))
    assert EVALUATIONS.build("accuracy", model, load("stripes"))["accuracy"] == 1.0


@pytest.mark.parametrize("lr", [1e30, 1e38])
def test_a_loss_that_is_not_finite_stops_with_the_last_good_state(lr):
    data, good = load("stripes"), None
    model = MODELS.build(SPEC, data.shape, 2, "learned")
    with pytest.raises(WorkError, match=r"try a lower train\.lr"):
        for state in fit(model, data, Recipe(epochs=5, lr=lr, clip=0.0)):
            good = {key: tensor.clone() for key, tensor in state.tensors.items()}
    assert good and all(tensor.isfinite().all() for tensor in good.values())


def test_positions_norms_biases_and_prefix_tokens_do_not_decay():
    model = MODELS.build(SPEC, (1, 8, 16), 2, "learned")
    decayed, kept = (group["params"] for group in parameter_groups(model, 0.05))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(names[id(p)].endswith("weight") and p.ndim == 2 for p in decayed)
    assert {"encoding.table", "prefix", "norm.weight", "head.bias"} <= {names[id(p)] for p in kept}
    assert len(decayed) + len(kept) == len(list(model.parameters()))


@pytest.mark.parametrize(
    "spec", ["resnet(depths=(1, 1), width=4)", "swin(dim=8, depths=(1,), heads=(1,), windows='cpb')"]
)
def test_kernels_decay_and_norms_and_encodings_of_windows_do_not(spec):
    model = MODELS.build(spec, (1, 8, 16), 2, "none")
    decayed, kept = (group["params"] for group in parameter_groups(model, 0.05))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(p.ndim > 1 and "encoding" not in names[id(p)] for p in decayed)
    assert all(p.ndim == 1 or "encoding" in names[id(p)] for p in kept)


def test_the_rate_climbs_and_then_falls_to_zero():
    assert warmup_cosine(0, 0.1) == 0 and warmup_cosine(0.05, 0.1) == 0.5 and warmup_cosine(0.1, 0.1) == 1
    assert warmup_cosine(0.55, 0.1) == pytest.approx(0.5) and warmup_cosine(1, 0.1) == pytest.approx(0)
    assert warmup_cosine(0, 0) == 1 and math.isfinite(warmup_cosine(1, 0))


def test_the_rate_goes_from_its_start_over_its_peak_to_its_end():
    rate = partial(warmup_cosine, warmup=0.1, peak=1e-3, start=1e-6, end=1e-5)
    assert rate(0) == 1e-6 and rate(0.05) == pytest.approx((1e-6 + 1e-3) / 2)
    assert rate(0.1) == pytest.approx(1e-3) and rate(0.55) == pytest.approx((1e-3 + 1e-5) / 2)
    assert rate(1) == pytest.approx(1e-5)
    for progress in (0.03, 0.1, 0.77):  # from and to 0: the factor times the peak, to the last bit
        assert warmup_cosine(progress, 0.1, peak=0.0123) == 0.0123 * warmup_cosine(progress, 0.1)
    assert not equal(trained(stop=1)[1][-1][1], trained(replace(RECIPE, start=0.005, end=0.001), stop=1)[1][-1][1])


def test_an_encoding_hears_how_far_training_is():
    data = load("stripes")
    model = MODELS.build(SPEC, data.shape, 2, "learned")
    heard = []
    model.encoding.advance = heard.append
    list(fit(model, data, Recipe(epochs=2, batch=128)))
    assert heard == [(step + 0.5) / 8 for step in range(8)]


@pytest.mark.parametrize(
    "wrong", [{"epochs": -1}, {"lr": 0.0}, {"warmup": 1.0}, {"batch": 0}, {"smoothing": 1.0}, {"end": 0.1}]
)
def test_a_recipe_that_cannot_work_is_refused(wrong):
    with pytest.raises(UserError, match=f"train.{next(iter(wrong))} is"):
        Recipe(**wrong)


def test_a_batch_in_pieces_takes_the_step_of_the_whole_batch():
    plain = "vit(patch=(2, 4), dim=16, depth=1, heads=2)"
    whole, pieces = (trained(replace(RECIPE, epochs=1, pieces=n), spec=plain) for n in (1, 7))
    assert whole[1][-1][2]["loss"] == pytest.approx(pieces[1][-1][2]["loss"], rel=1e-4)
    for a, b in zip(whole[0].parameters(), pieces[0].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    with pytest.raises(UserError, match=r"train\.pieces is 61"):
        Recipe(batch=60, pieces=61)


def test_repeated_images_are_drawn_so_often_and_their_copies_part():
    data = load("stripes")
    seen = []

    class Watching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2))

        def step(self, images):
            seen.append([bytes((255 * image).byte().numpy().tobytes()) for image in images])
            return self.weight.expand(len(images), 2), 0.0

    count = len(data.train)
    marked = replace(data.train, images=data.train.images.clone())
    marked.images[:, 0, 0, 0], marked.images[:, 0, 0, 1] = torch.arange(count) // 16, torch.arange(count) % 16 * 16
    data = replace(data, train=marked, mean=(0.0,), std=(1.0,))
    list(fit(Watching(), data, Recipe(epochs=1, batch=12, pieces=3, repeats=3, clip=0.0)))
    copies = Counter(image for piece in seen for image in piece)
    assert sum(copies.values()) == count and set(copies.values()) <= {3, count % 3 or 3}
    assert all(len(set(piece)) == len(piece) for piece in seen), "no piece has two copies"


def test_no_batch_and_no_piece_has_one_image():
    """Batch norms cannot take one."""
    recipe = Recipe(epochs=1, batch=9, pieces=8, lr=0.01)
    data = load("stripes(count=19)")
    model = MODELS.build("resnet(depths=(1, 1, 1), width=4)", data.shape, 2)
    *_, last = fit(model, data, recipe)
    assert math.isfinite(last.record["loss"])
