"""Healing: a model with another encoding learns to imitate the original, on images without labels."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from tests.interop.test_attach import randomize
from vitpos import InputError, RunError, ViT
from vitpos.data.dataset import Split, load
from vitpos.lab.drift import drift, labels_if_known, predict, prepare
from vitpos.lab.heal import Healing, heal


@pytest.fixture(scope="module")
def data():
    return load("mnist(limit=96, test_limit=64)")


def model(encoding, seed=0, **options):
    sizes = {"patch": 7, "dim": 16, "depth": 1, "heads": 2} | options
    return randomize(ViT((1, 28, 28), 10, encoding, **sizes), seed=seed, dtype=torch.float32)


def student_of(teacher):
    student = model("rope")
    state = {name: tensor for name, tensor in teacher.state_dict().items() if not name.startswith("encoding.")}
    student.load_state_dict(state)
    return student


def test_the_divergence_from_the_original_falls_and_the_original_does_not_change(data):
    teacher = model("learned")
    student, before = student_of(teacher), {name: t.clone() for name, t in teacher.state_dict().items()}
    wanted = predict(teacher, data, data.shape)
    lost = drift(wanted, predict(student, data, data.shape), None)
    numbers = heal(student, teacher, data, Healing(epochs=4, batch_size=8))
    healed = drift(wanted, predict(student, data, data.shape), None)
    assert healed["kl"] < 0.6 * lost["kl"] and healed["cosine"] > lost["cosine"]
    assert numbers["steps"] == 48 and numbers["loss_last"] < numbers["loss_first"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
    assert not student.training and not teacher.training


def test_it_uses_no_labels_and_depends_on_the_seed_alone(data):
    teacher = model("learned")
    unlabeled = replace(data, train=Split(data.train.images, torch.zeros_like(data.train.labels)))
    found = []
    for one, seed in ((data, 0), (unlabeled, 0), (data, 1)):
        torch.manual_seed(len(found))  # the global random state has no effect
        student = student_of(teacher)
        heal(student, teacher, one, Healing(seed=seed))
        found.append(student.state_dict()["project.weight"])
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_original_and_converted_model_may_take_images_of_different_sizes(data):
    teacher, student = model("learned"), model("rope")
    student = student.resized((6, 5))
    numbers = heal(student, teacher, data, Healing(epochs=0.25), student_shape=(1, 42, 35), teacher_shape=data.shape)
    assert numbers["steps"] == 2 and numbers["images"] == 32


def test_the_number_of_images_is_that_of_the_images_shown(data):
    few = data.sample_test(3)
    few = replace(few, train=Split(data.train.images[:10], data.train.labels[:10]))
    teacher = model("learned")
    numbers = heal(student_of(teacher), teacher, few, Healing(epochs=2, batch_size=16))
    assert numbers["images"] == 10 * numbers["steps"] == 20


def test_a_model_without_classes_learns_the_features(data):
    teacher = randomize(
        ViT((1, 28, 28), 0, "learned", patch=7, dim=16, depth=1, heads=2, head="none"), dtype=torch.float32
    )
    student = randomize(
        ViT((1, 28, 28), 0, "rope", patch=7, dim=16, depth=1, heads=2, head="none"), dtype=torch.float32
    )
    numbers = heal(student, teacher, data, Healing(epochs=2))
    assert numbers["loss_last"] < numbers["loss_first"]


def test_nothing_is_lost_if_both_are_equal(data):
    teacher = model("learned")
    logits = predict(teacher, data, data.shape)
    numbers = drift(logits, logits, labels_if_known(10, (), data))
    assert numbers["agreement"] == 1 and numbers["kl"] == 0 and numbers["cosine"] == pytest.approx(1)
    assert numbers["accuracy_before"] == numbers["accuracy_after"]
    assert labels_if_known(7, (), data) is None


def test_gray_images_are_given_to_a_model_of_color_images(data):
    inputs = prepare(data, data.test.images[:3], (3, 20, 24))
    assert inputs.shape == (3, 3, 20, 24) and torch.equal(inputs[:, 0], inputs[:, 1])
    same = prepare(data, data.test.images[:3], data.shape)
    assert torch.equal(same, data.normalize(data.test.images[:3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_in_half_precision_is_trained_in_float32_and_rounded(data, dtype):
    teacher = model("learned")
    rounded, student = (student_of(teacher).to(dtype) for _ in range(2))
    copy = deepcopy(rounded).float()
    numbers = heal(student, deepcopy(teacher).to(dtype), data, Healing(epochs=2, batch_size=8, lr=1e-4))
    expected = heal(copy, deepcopy(teacher).to(dtype).float(), data, Healing(epochs=2, batch_size=8, lr=1e-4))
    assert numbers == expected and next(student.parameters()).dtype == dtype and not student.training
    assert all(torch.equal(t, copy.state_dict()[name].to(dtype)) for name, t in student.state_dict().items())
    assert not torch.equal(student.project.weight, rounded.project.weight)


@pytest.mark.parametrize(
    "option",
    [
        *({"epochs": value} for value in (0, math.nan, math.inf, 1e9)),
        *({"lr": value} for value in (-1.0, math.nan, math.inf)),
        *({"batch_size": value} for value in (0, 2.5)),
        *({"warmup_fraction": value} for value in (-0.1, 1.1, math.nan)),
        *({"weight_decay": value} for value in (-1.0, math.inf)),
        *({"temperature": value} for value in (0.0, math.inf)),
        *({"feature_weight": value} for value in (-1.0, math.nan)),
        *({"seed": value} for value in (-1, 2**63, 0.5)),
    ],
)
def test_options_that_are_not_finite_or_out_of_range_are_refused_in_one_line(option):
    ((name, value),) = option.items()
    with pytest.raises(InputError, match=f"{name}={value}".replace("+", r"\+")) as caught:
        Healing(**option)
    assert "\n" not in str(caught.value)


def test_weights_that_are_not_finite_at_the_end_are_an_error(data):
    student = model("rope")
    student.unused = torch.nn.Parameter(torch.tensor(torch.inf))  # has no effect on the loss
    with pytest.raises(RunError, match="some weights are not finite at the end; choose a lower lr"):
        heal(student, model("learned"), data, Healing(epochs=0.1))


def test_mistakes_and_divergence_are_reported_in_one_line(data):
    teacher = model("learned")
    with torch.no_grad():
        teacher.head.weight.fill_(float("nan"))
    with pytest.raises(RunError, match="the loss became nan at step 1"):
        heal(model("rope"), teacher, data)
    empty = replace(data, train=data.train.head(0))
    with pytest.raises(InputError, match="has no training images to heal on"):
        heal(model("rope"), model("learned"), empty)
