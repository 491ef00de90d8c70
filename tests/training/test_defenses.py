import pytest
import torch
import torch.nn.functional as F

from vitpos.data.dataset import load
from vitpos.errors import UserError
from vitpos.experiment import Experiment
from vitpos.lab import check
from vitpos.models import MODELS
from vitpos.training.defenses import defending
from vitpos.training.fit import fit, parameter_groups
from vitpos.training.recipe import Recipe


def gradients():
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=draw) for name, shape in (("a", (40, 50)), ("b", (50,)))}


def defended(spec, seed=1):
    return defending(spec)(gradients(), torch.Generator().manual_seed(seed))


def length(of):
    return torch.cat([g.flatten() for g in of.values()]).norm().item()


def test_a_clipped_gradient_keeps_its_direction_and_has_the_length_asked_for():
    found = defended("clip(norm=2.0)")
    assert length(found) == pytest.approx(2, rel=1e-5)
    assert torch.allclose(found["a"] / found["a"].norm(), gradients()["a"] / gradients()["a"].norm(), atol=1e-6)
    assert torch.equal(defended("clip(norm=1e6)")["a"], gradients()["a"]), "a short one stays as it is"


def test_noise_has_the_deviation_asked_for_and_comes_from_the_seed():
    added = defended("noise(scale=0.5)")["a"] - gradients()["a"]
    assert added.std().item() == pytest.approx(0.5, rel=0.05) and abs(added.mean().item()) < 0.05
    assert torch.equal(defended("noise(scale=0.5)")["b"], defended("noise(scale=0.5)")["b"])
    assert not torch.equal(defended("noise(scale=0.5)", 2)["b"], defended("noise(scale=0.5)")["b"])


def test_pruning_leaves_the_largest_numbers_of_each_tensor_as_they_are():
    for name, found in defended("prune(share=0.9)").items():
        whole = gradients()[name]
        kept = found != 0
        assert kept.sum() == whole.numel() - int(0.9 * whole.numel())
        assert torch.equal(found[kept], whole[kept]) and whole[kept].abs().min() > whole[~kept].abs().max()
    assert torch.equal(defended("prune(share=0.0)")["a"], gradients()["a"])


def test_a_sum_of_defences_is_done_from_left_to_right():
    assert length(defended("prune(share=0.5) + clip(norm=1.0)")) == pytest.approx(1, rel=1e-5)
    assert length(defended("clip(norm=1.0) + noise(scale=5.0)")) > 10
    assert torch.equal(defended("")["a"], gradients()["a"])


@pytest.mark.parametrize("spec", ["clip(norm=0.0)", "noise(scale=-0.1)", "prune(share=1.0)", "noise(scale=1.0) + clip"])
def test_what_cannot_be_is_refused(spec):
    with pytest.raises(UserError, match=spec.split("(")[0]):
        defending(spec)


@pytest.mark.parametrize("encoding", ["learned", "learned + mjp(ratio=0.0)"])  # a penalty alone
def test_a_step_follows_the_mean_of_gradients_of_which_each_was_defended_by_itself(encoding):
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=(7, 14), dim=16, depth=1, heads=2)", (1, 28, 28), 10, encoding)
    data = load("mnist(limit=24)")
    logits, penalty = model.step(data.inputs(data.train.images[:]))
    losses = F.cross_entropy(logits, data.train.labels, reduction="none") + penalty
    known = [*model.parameters()]
    each = [torch.autograd.grad(loss, known, retain_graph=True) for loss in losses]
    lengths = torch.stack([torch.cat([g.flatten() for g in one]).norm() for one in each])
    norm = lengths.median().item()
    assert lengths.min() < norm < lengths.max()
    *_, last = fit(model, data, Recipe(epochs=1, batch=24, clip=0.0, defence=f"clip(norm={norm})"), seed=0)
    scale = (norm / lengths).clamp_max(1)
    wanted = [torch.einsum("b...,b->...", torch.stack(one), scale) / 24 for one in zip(*each, strict=True)]
    ours = [id(p) for p in known]
    for index, parameter in enumerate(p for group in parameter_groups(model, 0.0) for p in group["params"]):
        followed = last.tensors[f"optimizer.{index}.exp_avg"] / 0.1  # Adam's average after one step
        torch.testing.assert_close(followed, wanted[ours.index(id(parameter))], rtol=1e-3, atol=1e-6)


def test_a_defended_training_goes_on_as_if_it_had_not_been_broken():
    data = load("mnist(limit=48)")
    recipe = Recipe(epochs=3, batch=16, defence="clip(norm=1.0) + noise(scale=0.1) + prune(share=0.3)")

    def states(resume=None):
        torch.manual_seed(0)
        model = MODELS.build("attention(dim=16)", data.shape, 10, "learned + mjp")
        for state in fit(model, data, recipe, resume=resume):
            yield state.epoch, {name: tensor.clone() for name, tensor in state.tensors.items()}

    whole = list(states())
    rest = list(states(resume=whole[1]))
    assert all(torch.equal(tensor, rest[-1][1][name]) for name, tensor in whole[-1][1].items())


def test_the_noise_of_a_step_is_that_of_a_mean():
    plain, noisy = (trained(f"clip(norm=1.0){more}", limit=64) for more in ("", " + noise(scale=0.8)"))
    added = torch.cat([(noisy[n] - plain[n]).flatten() / 0.1 for n in plain if n.endswith("exp_avg")])
    assert added.std().item() == pytest.approx(0.8 / 64**0.5, rel=0.05)


def trained(defence, limit=128):
    torch.manual_seed(0)
    model = MODELS.build("attention(dim=16)", (1, 28, 28), 10, "learned")
    data = load(f"mnist(limit={limit})")
    *_, last = fit(model, data, Recipe(epochs=1, batch=64, clip=0.0, defence=defence), seed=0)
    return last.tensors


def test_training_uses_the_gradient_as_it_is_shared():
    plain, noisy, again = trained(""), trained("noise(scale=1.0)"), trained("noise(scale=1.0)")
    assert all(torch.equal(noisy[name], again[name]) for name in noisy), "the noise depends on the seed alone"
    assert not torch.equal(plain["model.project.weight"], noisy["model.project.weight"])
    none = trained("clip(norm=1e-30)")  # nothing is left to step along but the decay of weights
    torch.manual_seed(0)
    first = MODELS.build("attention(dim=16)", (1, 28, 28), 10, "learned").encoding.table
    assert (
        (none["model.encoding.table"] - first).abs().max() < 1e-6 < (plain["model.encoding.table"] - first).abs().max()
    )


@pytest.mark.parametrize(
    ("model", "augment", "what"),
    [("resnet(depths=(1,), width=4)", "", "batch norms mix"), ("attention(dim=16)", "mix", "'mix' mixes")],
)
def test_what_mixes_images_is_refused_where_each_is_defended_by_itself(model, augment, what):
    text = f'data = "mnist(limit=64)"\nmodel = "{model}"\nencoding = "none"\ntrain.augment = "{augment}"\n'
    origin = {"name": "x", "asked": "", "settings": [], "seeds": None}
    check(Experiment.make(origin | {"text": text}).cells)
    with pytest.raises(UserError, match=what):
        check(Experiment.make(origin | {"text": text + 'train.defence = "clip"'}).cells)
    data = load("mnist(limit=64)")
    built = MODELS.build(model, data.shape, 10, "none")
    with pytest.raises(UserError, match=what):
        next(fit(built, data, Recipe(augment=augment, defence="clip")))


def test_pieces_are_refused_where_images_are_taken_one_by_one():
    with pytest.raises(UserError, match="leave out pieces"):
        Recipe(pieces=2, defence="clip")
