"""Predictions of a context are computed once, and samples of the test images are shared."""

from dataclasses import replace

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from tests.evaluations.models import (
    accuracy_of,
    digits,
    random_model,
)
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.models import MODELS
from vitpos.patches import seeded_permutation


def test_the_evaluation_in_the_contributing_guide_works():
    model, data = random_model("learned"), digits(300)
    expected = accuracy_of(model, data, data.test.images.flip(3))
    assert numbers_of("mirrored", model, data)["accuracy"] == expected != accuracy_of(model, data, data.test.images)


def test_a_context_predicts_unchanged_images_once():
    data = load("stripes(count=16)")
    model = MODELS.build("minimal(patch=4, dim=8)", data.shape, 2, "learned")
    passes = []
    model.head.register_forward_hook(lambda *_: passes.append(1))
    ctx = EvalContext(model, data)
    first = EVALUATIONS.build("accuracy", ctx)
    assert EVALUATIONS.build("accuracy", ctx) == first and len(passes) == 1
    EVALUATIONS.build("jigsaw", ctx)
    assert len(passes) == 2
    numbers_of("accuracy", model, data)
    assert len(passes) == 3


def test_predictions_are_not_shared_with_a_context_of_other_data_or_another_model():
    ctx = EvalContext(random_model("learned"), digits(40))
    assert len(ctx.predict_logits()) == 40
    assert len(replace(ctx, data=replace(ctx.data, test=ctx.data.test.head(10))).predict_logits()) == 10
    assert not torch.equal(replace(ctx, model=random_model("none")).predict_logits(), ctx.predict_logits())


SAMPLED = [
    "resolution(size=(28, 28), max_images={})",
    "resolution_curve(factors=(1.0, 0.5), max_images={})",
    "translation(max_token_images={})",
    "translation_curve(steps=(1,), max_images={})",
    "corruption(corruptions=('contrast',), severities=(1,), max_images={})",
]


@pytest.mark.parametrize("spec", SAMPLED)
def test_max_images_samples_from_all_classes_and_keeps_the_order(spec):
    data = digits(300)
    data = replace(data, test=data.test.subset(data.test.labels.argsort()))  # class after class, as folders are
    few = replace(data, test=data.test.subset(seeded_permutation(300, seed=0)[:40].sort().values))
    assert len(few.test.labels.unique()) > 5, "images of most classes"
    model = random_model("learned")
    every, enough = (evaluate(spec.format(count), model, few) for count in (None, 40))
    found = evaluate(spec.format(40), model, data)
    # a translation samples images only for the errors of tokens and logits
    sampled = {"token_error", "logit_error"} if spec.startswith("translation(") else set(found.numbers)
    assert enough == every and found.curves == every.curves
    assert all(found.numbers[name] == every.numbers[name] for name in sampled)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("spec", [*SAMPLED, "ood(dataset='left_right(count=96)', max_images={})"])
def test_max_images_below_one_is_refused(spec, count):
    with pytest.raises(InputError, match=f"max_images={count}"):
        numbers_of(spec.format(count), random_model("learned"), digits(3))


def test_evaluations_share_the_predictions_of_a_sample():
    data, model = digits(60), random_model("learned")
    ctx = EvalContext(model, data)
    assert ctx.sample(20) is ctx.sample(20) is not ctx.sample(20, seed=1) and ctx.sample(60) is ctx.sample(None) is ctx
    passes = []
    model.head.register_forward_hook(lambda *_: passes.append(1))
    EVALUATIONS.build("translation_curve(steps=(1, 2), max_images=20)", ctx)
    assert len(passes) == 3, "two shifts, and the unshifted images once"
    EVALUATIONS.build("corruption(corruptions=('contrast',), severities=(1,), max_images=20)", ctx)
    assert len(passes) == 4
