import pytest
import torch
import torch.nn.functional as F

from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.lab.dry_run import dry_run
from vitpos.lab.experiment import Experiment
from vitpos.models import MODELS
from vitpos.training.defenses import build_defense
from vitpos.training.loop import fit, parameter_groups
from vitpos.training.recipe import Recipe


def gradients():
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in (("a", (40, 50)), ("b", (50,)))}


def defended(spec, seed=1):
    return build_defense(spec)(gradients(), torch.Generator().manual_seed(seed))


def norm(gradients):
    return torch.cat([g.flatten() for g in gradients.values()]).norm().item()


def test_a_clipped_gradient_keeps_its_direction_and_has_the_maximum_norm():
    found = defended("clip(max_norm=2.0)")
    assert norm(found) == pytest.approx(2, rel=1e-5)
    assert torch.allclose(found["a"] / found["a"].norm(), gradients()["a"] / gradients()["a"].norm(), atol=1e-6)
    assert torch.equal(defended("clip(max_norm=1e6)")["a"], gradients()["a"]), "a smaller gradient is unchanged"


def test_noise_has_the_given_std_and_depends_on_the_seed():
    added = defended("noise(std=0.5)")["a"] - gradients()["a"]
    assert added.std().item() == pytest.approx(0.5, rel=0.05) and abs(added.mean().item()) < 0.05
    assert torch.equal(defended("noise(std=0.5)")["b"], defended("noise(std=0.5)")["b"])
    assert not torch.equal(defended("noise(std=0.5)", 2)["b"], defended("noise(std=0.5)")["b"])


def test_pruning_keeps_the_largest_numbers_of_each_tensor():
    for name, found in defended("prune(fraction=0.9)").items():
        whole = gradients()[name]
        kept = found != 0
        assert kept.sum() == whole.numel() - int(0.9 * whole.numel())
        assert torch.equal(found[kept], whole[kept]) and whole[kept].abs().min() > whole[~kept].abs().max()
    assert torch.equal(defended("prune(fraction=0.0)")["a"], gradients()["a"])


def test_a_sum_of_defenses_is_applied_from_left_to_right():
    assert norm(defended("prune(fraction=0.5) + clip(max_norm=1.0)")) == pytest.approx(1, rel=1e-5)
    assert norm(defended("clip(max_norm=1.0) + noise(std=5.0)")) > 10
    assert torch.equal(defended("")["a"], gradients()["a"])


@pytest.mark.parametrize(
    "spec", ["clip(max_norm=0.0)", "noise(std=-0.1)", "prune(fraction=1.0)", "noise(std=1.0) + clip"]
)
def test_wrong_options_and_noise_before_clipping_are_refused(spec):
    with pytest.raises(InputError, match=spec.split("(")[0]):
        build_defense(spec)


@pytest.mark.parametrize("encoding", ["learned", "learned + mjp(mask_ratio=0.0)"])  # with a penalty
def test_a_step_uses_the_mean_of_the_defended_gradients_of_the_images(encoding):
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=(7, 14), dim=16, depth=1, heads=2)", (1, 28, 28), 10, encoding)
    data = load("mnist + subset(limit=24)")
    logits, penalty = model.forward_with_penalty(data.normalize(data.train.images[:]))
    losses = F.cross_entropy(logits, data.train.labels, reduction="none") + penalty
    parameters = [*model.parameters()]
    each = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]
    norms = torch.stack([torch.cat([g.flatten() for g in one]).norm() for one in each])
    max_norm = norms.median().item()
    assert norms.min() < max_norm < norms.max()
    *_, last = fit(
        model, data, Recipe(epochs=1, batch_size=24, grad_clip=0.0, defense=f"clip(max_norm={max_norm})"), seed=0
    )
    scale = (max_norm / norms).clamp_max(1)
    expected = [torch.einsum("b...,b->...", torch.stack(one), scale) / 24 for one in zip(*each, strict=True)]
    ids = [id(p) for p in parameters]
    for index, parameter in enumerate(p for group in parameter_groups(model, 0.0) for p in group["params"]):
        average = (
            last.state[f"optimizer.{index}.exp_avg"] / 0.1
        )  # Adam's moving average after one step, over its weight
        torch.testing.assert_close(average, expected[ids.index(id(parameter))], rtol=1e-3, atol=1e-6)


def test_a_resumed_training_with_a_defense_gives_the_same_bits():
    data = load("mnist + subset(limit=48)")
    recipe = Recipe(epochs=3, batch_size=16, defense="clip(max_norm=1.0) + noise(std=0.1) + prune(fraction=0.3)")

    def states(resume=None):
        torch.manual_seed(0)
        model = MODELS.build("minimal(dim=16)", data.shape, 10, "learned + mjp")
        for state in fit(model, data, recipe, resume=resume):
            yield state.epoch, {name: tensor.clone() for name, tensor in state.state.items()}

    whole = list(states())
    rest = list(states(resume=whole[1]))
    assert all(torch.equal(tensor, rest[-1][1][name]) for name, tensor in whole[-1][1].items())


def test_the_noise_of_a_step_is_divided_by_the_square_root_of_the_batch():
    plain, noisy = (trained(f"clip(max_norm=1.0){more}", limit=64) for more in ("", " + noise(std=0.8)"))
    added = torch.cat([(noisy[n] - plain[n]).flatten() / 0.1 for n in plain if n.endswith("exp_avg")])
    assert added.std().item() == pytest.approx(0.8 / 64**0.5, rel=0.05)


def trained(defense, limit=128):
    torch.manual_seed(0)
    model = MODELS.build("minimal(dim=16)", (1, 28, 28), 10, "learned")
    data = load(f"mnist + subset(limit={limit})")
    *_, last = fit(model, data, Recipe(epochs=1, batch_size=64, grad_clip=0.0, defense=defense), seed=0)
    return last.state


def test_training_uses_the_defended_gradient():
    plain, noisy, again = trained(""), trained("noise(std=1.0)"), trained("noise(std=1.0)")
    assert all(torch.equal(noisy[name], again[name]) for name in noisy), "the noise depends on the seed alone"
    assert not torch.equal(plain["model.project.weight"], noisy["model.project.weight"])
    none = trained("clip(max_norm=1e-30)")  # only weight decay is left
    torch.manual_seed(0)
    first = MODELS.build("minimal(dim=16)", (1, 28, 28), 10, "learned").encoding.table
    assert (
        (none["model.encoding.table"] - first).abs().max() < 1e-6 < (plain["model.encoding.table"] - first).abs().max()
    )


@pytest.mark.parametrize(
    ("model", "augment", "what"),
    [("resnet(depths=(1,), width=4)", "", "batch norms mix"), ("minimal(dim=16)", "mix", "'mix' mixes")],
)
def test_models_and_augmentations_that_mix_images_are_refused_with_a_defense(model, augment, what):
    text = f'data = "mnist + subset(limit=64)"\nmodel = "{model}"\nencoding = "none"\ntrain.augment = "{augment}"\n'
    definition = {"name": "x", "name_given": "", "settings": [], "seeds": None}
    dry_run(Experiment.from_definition(definition | {"text": text}).cells)
    with pytest.raises(InputError, match=what):
        dry_run(Experiment.from_definition(definition | {"text": text + 'train.defense = "clip"'}).cells)
    data = load("mnist + subset(limit=64)")
    built = MODELS.build(model, data.shape, 10, "none")
    with pytest.raises(InputError, match=what):
        next(fit(built, data, Recipe(augment=augment, defense="clip")))


def test_gradient_accumulation_is_refused_with_a_defense():
    with pytest.raises(InputError, match=r"leave out train\.grad_accum"):
        Recipe(grad_accum=2, defense="clip")
