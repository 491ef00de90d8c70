"""What can be said of a model by watching it: attention, position against content, probes, gates, frequencies."""

import math
from dataclasses import replace

import pytest
import torch

from vitpos.data.base import Dataset, Split, load
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, parts
from vitpos.encodings.relative import Relative
from vitpos.encodings.steps import lookup
from vitpos.errors import UserError
from vitpos.evaluations.layers import layers
from vitpos.inspection._batches import pictures
from vitpos.inspection.attention_stats import (
    attention_distance,
    attention_maps,
    attention_rollout,
    distances,
    head_diversity,
    mean_attention,
    uniform_distance,
)
from vitpos.inspection.biases import bias_effects
from vitpos.inspection.content_gates import bias_by_content, gates_seen_from
from vitpos.inspection.linear_probe import probe_places
from vitpos.inspection.logits import logit_parts
from vitpos.inspection.offset_tables import offset_biases, rotary_frequencies
from vitpos.inspection.where import where_position_lives
from vitpos.models import MODELS
from vitpos.models.activations import look_inside
from vitpos.positions import Positions
from vitpos.training.fit import fit
from vitpos.training.recipe import Recipe

SHAPE = (1, 8, 18)  # with patches of 2×3 pixels a grid of 4×6
GRID, PATCH = (4, 6), (2, 3)
VITS = [
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, init='xavier')",
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, init='xavier', pool='mean')",
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, init='xavier', registers=2)",
    "vit(patch=(2, 3), dim=16, depth=2, heads=2, init='xavier', april=True, pool='mean', registers=1)",
]
TINY = [*VITS, "attention(patch=(2, 3), dim=16)", "attention(patch=(2, 3), dim=16, residual=True)"]
ASKED = ["none", "cpe(blocks=(0,))", "rope", "relative(std=1.0)", "sape2", "learned(std=1.0)"]


def noise(count=60, *, shape=SHAPE, seed=0) -> Dataset:
    """Pictures whose patches are independent of each other and of their places."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
    part = Split(images, torch.arange(count) % 3)
    return Dataset(part, part, ("a", "b", "c"), (0.5,), (0.25,))


def build(spec=VITS[0], encoding="none", *, seed=0, grow=1.0):
    torch.manual_seed(seed)
    model = MODELS.build(spec, SHAPE, 3, encoding).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name:
                parameter.mul_(grow)
    return model


def inputs(data, count=3):
    return data.inputs(data.test.images[:count])


def blind(model):
    """Without content in its logits: zero q and k."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name:
                parameter[: 2 * len(parameter) // 3] = 0
    return model


# watching


@pytest.mark.parametrize("spec", TINY)
@pytest.mark.parametrize("encoding", ["none", "learned + rope", "sape2", "lookhere"])
def test_what_is_heard_is_what_the_model_computes(spec, encoding):
    model, images = build(spec, encoding), inputs(noise())
    heard, attended = {}, []
    with torch.inference_mode():
        expected = model.tokens(images)[0]
        look_inside(model, images, tokens=heard.__setitem__, attention=attended.append)
        depth, prefix = model.geometry.depth, model.geometry.prefix
        assert list(heard) == list(range(depth + 1)) and [one.layer for one in attended] == list(range(depth))
        assert torch.equal(heard[0], model.placed(images)[0])
        last = model.norm(heard[depth]) if hasattr(model, "norm") else heard[depth]
        torch.testing.assert_close(last, expected[:, prefix:])
        one = attended[-1]
        v = one.module.prepared(one.x, one.encoding, one.layer)[2]
        mixed = one.module.proj((one.weights() @ v).transpose(1, 2).flatten(2))
        torch.testing.assert_close(mixed, one.module(one.x, one.encoding, one.pos, one.layer))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_first_block_of_april_is_a_layer_too():
    tokens, logits = layers(build(VITS[3]), inputs(noise()))
    assert len(tokens) == len(logits) == 2


@pytest.mark.parametrize("spec", ["cnn", "resnet", "swin(dim=8, depths=(1, 1), heads=(1, 2), window=2)"])
def test_models_without_attention_over_one_grid_are_refused(spec):
    data = noise(shape=(1, 16, 16))
    model = MODELS.build(spec, (1, 16, 16), 3)
    images = inputs(data)
    for look in (mean_attention, logit_parts, probe_places, bias_by_content, where_position_lives):
        with pytest.raises(UserError, match="needs attention over all patches of one grid"):
            look(model, data)
    for look in (attention_maps, attention_rollout):
        with pytest.raises(UserError, match="take a vit or attention"):
            look(model, images)


def test_shuffled_pictures_have_the_same_patches_in_an_order_of_their_own():
    model, data = build(), noise(7)
    plain = torch.cat(list(pictures(model, data, limit=None)))
    mixed = torch.cat(list(pictures(model, data, limit=None, shuffled=True)))
    some = torch.cat(list(pictures(model, data, limit=None, shuffled=True, which=torch.tensor([1, 4]))))
    assert torch.equal(some, mixed[[1, 4]]), "which images are asked for changes none of them"
    with torch.inference_mode():
        before, after = (model.patch_tokens(x).sum(2).sort(1).values for x in (plain, mixed))
    torch.testing.assert_close(before, after)
    assert not any(torch.equal(a, b) for a, b in zip(plain, mixed, strict=True))


# attention


def test_distances_are_in_pixels_of_patches_that_need_not_be_square():
    far = distances(GRID, PATCH)
    assert far[0, 1] == 3 and far[0, 6] == 2 and far[0, 7] == pytest.approx(math.hypot(2, 3))
    assert far[0, -1] == pytest.approx(math.hypot(3 * 2, 5 * 3))


def test_uniform_attention_reaches_about_half_of_a_square():
    assert uniform_distance((14, 14), (16, 16)) / 224 == pytest.approx(0.52, abs=0.005)
    attention = torch.full((2, 3, 24, 24), 1 / 24, dtype=torch.float64)
    assert attention_distance(attention, GRID, PATCH).flatten().tolist() == pytest.approx(
        [uniform_distance(GRID, PATCH)] * 6
    )
    assert attention_distance(torch.eye(24), GRID, PATCH) == 0


@pytest.mark.parametrize("spec", TINY)
def test_mean_attention_is_that_of_images_one_by_one_without_prefix_tokens(spec):
    model, data = build(spec, "learned(std=1.0)", grow=3.0), noise(9)
    expected = torch.zeros(model.geometry.depth, model.geometry.heads, 24, 24, dtype=torch.float64)
    prefix = model.geometry.prefix

    def add(one):
        weights = one.weights()[0, :, prefix:, prefix:].double()
        expected[one.layer] += weights / weights.sum(-1, keepdim=True) / 9

    with torch.inference_mode():
        for image in inputs(data, 9).split(1):
            look_inside(model, image, attention=add)
    torch.testing.assert_close(mean_attention(model, data), expected, atol=1e-6, rtol=1e-5)


def test_a_head_that_sees_only_near_patches_has_a_short_distance():
    model = blind(build(encoding="alibi"))
    found = attention_distance(mean_attention(model, noise(4)), GRID, PATCH)
    slopes = Positions.of(GRID).offsets()[0].norm(dim=-1).double()
    for head, slope in enumerate((2.0**-4, 2.0**-8)):
        expected = attention_distance((-slope * slopes).softmax(-1), GRID, PATCH).item()
        assert found[:, head].tolist() == pytest.approx([expected] * 2, rel=1e-5)
    assert (found < uniform_distance(GRID, PATCH)).all()


def test_heads_that_look_alike_have_no_diversity_and_heads_apart_have_one_bit():
    one, two = torch.eye(24).double(), torch.eye(24).double().roll(1, 1)
    assert head_diversity(torch.stack([one, one])) == pytest.approx(0)
    assert head_diversity(torch.stack([one, two])) == pytest.approx(1)
    assert head_diversity(torch.stack([one, one, two])) == pytest.approx(2 / 3)
    assert head_diversity(one[None]).isnan()


def test_heads_that_look_alike_on_average_may_differ_in_every_image():
    model, data = build(VITS[2], grow=4.0), noise(12)
    found = where_position_lives(model, data)
    expected = torch.zeros(2, dtype=torch.float64)
    with torch.inference_mode():
        for image in inputs(data, 12).split(1):
            alone = {}
            look_inside(model, image, attention=lambda one, alone=alone: alone.update({one.layer: one.logits()}))
            for layer, logits in alone.items():
                expected[layer] += head_diversity(logits[0, :, 3:, 3:].double().softmax(-1)) / 12
    torch.testing.assert_close(found.diversity, expected, atol=1e-6, rtol=1e-5)
    numbers = found.numbers()
    for average, own in zip(numbers["head_diversity"], numbers["head_diversity_of_images"], strict=True):
        assert 0 <= average < own <= 1
    torch.testing.assert_close(found.attention, mean_attention(model, data))
    alone = logit_parts(model, data)
    torch.testing.assert_close(found.pictures.bias, alone.bias)
    torch.testing.assert_close(found.pictures.content, alone.content)
    fixed = where_position_lives(blind(build(encoding="alibi")), noise(6)).numbers()
    assert fixed["head_diversity_of_images"] == pytest.approx(fixed["head_diversity"], abs=1e-6), "places alone decide"


@pytest.mark.parametrize("spec", TINY)
def test_maps_show_what_the_tokens_look_at_that_the_head_reads(spec):
    model, images = build(spec, "learned(std=1.0)", grow=3.0), inputs(noise())
    attended = []
    with torch.inference_mode():
        look_inside(model, images, attention=attended.append)
        weights = torch.stack([one.weights() for one in attended], 1)  # (B, depth, H, T, T)
    reads_cls = "pool='mean'" not in spec and spec.startswith("vit")
    prefix = model.geometry.prefix
    row = weights[..., 0, :] if reads_cls else weights[..., prefix:, :].mean(-2)
    expected = row[..., prefix:].unflatten(-1, GRID)
    torch.testing.assert_close(attention_maps(model, images), expected[:, -1:])
    torch.testing.assert_close(attention_maps(model, images, layers=[0], heads=[-1]), expected[:, :1, -1:])


def test_only_layers_and_heads_that_exist_can_be_shown():
    model, images = build(), inputs(noise())
    with pytest.raises(UserError, match=r"layers=\[2\] are not in a model that has 2; choose from 0 to 1"):
        attention_maps(model, images, layers=[2])
    with pytest.raises(UserError, match="heads"):
        attention_maps(model, images, heads=[])


def test_attention_is_computed_again_only_for_the_layers_asked_for(monkeypatch):
    model, images = build(), inputs(noise())
    asked = []
    for layer, block in enumerate(model.blocks):
        plain = block.attention.logits
        monkeypatch.setattr(block.attention, "logits", lambda *x, n=layer, p=plain: asked.append(n) or p(*x))
    attention_maps(model, images, layers=[1])
    assert asked == [1]


@pytest.mark.parametrize("spec", TINY)
def test_rollout_multiplies_half_attention_and_half_the_token_itself(spec):
    model, images = build(spec, "learned(std=1.0)", grow=3.0), inputs(noise())
    attended = []
    with torch.inference_mode():
        look_inside(model, images, attention=attended.append)
        whole = torch.eye(attended[0].x.shape[1])
        for one in attended:
            whole = (one.weights().mean(1) / 2 + torch.eye(len(whole[0])) / 2) @ whole
    prefix = model.geometry.prefix
    reads_cls = "pool='mean'" not in spec and spec.startswith("vit")
    row = whole[:, 0] if reads_cls else whole[:, prefix:].mean(1)
    found = attention_rollout(model, images)
    torch.testing.assert_close(found, row[:, prefix:].unflatten(1, GRID))
    assert (found.sum((1, 2)) <= 1 + 1e-6).all()


# position against content


@pytest.mark.parametrize("spec", TINY)
def test_without_positions_no_logit_goes_by_place(spec):
    found = logit_parts(build(spec, grow=2.0), noise(300), limit=None)
    assert found.images == 300 and found.share.abs().max() < 0.01
    assert (found.content > 0).all()


def test_logits_made_of_a_bias_alone_are_all_position():
    model = blind(build(encoding="relative(std=1.0)"))
    found = logit_parts(model, noise(12))
    torch.testing.assert_close(found.share, torch.ones(2, 2).double())
    with torch.inference_mode():
        table = torch.stack(
            [model.encoding.bias(torch.zeros(1, 2, 24, 8), None, Positions.of(GRID), n)[0] for n in (0, 1)]
        )
    others = ~torch.eye(24, dtype=torch.bool)
    expected = table - (table * others).sum(-1, keepdim=True) / 23
    torch.testing.assert_close(found.bias, expected.double(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.position, expected.double().square()[..., others].mean(-1), atol=1e-6, rtol=1e-5)


def test_a_known_mixture_of_position_and_content_is_taken_apart():
    model, data = build("attention(patch=(2, 3), dim=16)", "relative(std=1.0)", grow=2.0), noise(400)
    content = logit_parts(build("attention(patch=(2, 3), dim=16)", grow=2.0), data, limit=None)
    position = logit_parts(blind(build("attention(patch=(2, 3), dim=16)", "relative(std=1.0)")), data, limit=None)
    both = logit_parts(model, data, limit=None)
    assert both.content.item() == pytest.approx(content.content.item(), rel=0.01)
    assert both.position.item() == pytest.approx(position.position.item(), rel=0.05)


def test_the_position_part_is_unbiased_however_few_the_images():
    model = build(grow=2.0)
    few = torch.stack([logit_parts(model, noise(5, seed=seed), limit=None).share for seed in range(40)])
    assert few.mean() == pytest.approx(0, abs=0.01), "a biased one would be near 1 / 5"
    with pytest.raises(UserError, match="take a limit from 2"):
        logit_parts(model, noise(), limit=1)


def test_pairs_that_a_head_does_not_see_are_left_out():
    model = blind(build(encoding="lookhere"))
    found = logit_parts(model, noise(6))
    torch.testing.assert_close(found.share, torch.ones(2, 2).double())
    hidden = found.bias.isneginf()
    assert hidden.any() and not hidden.diagonal(dim1=-2, dim2=-1).any()
    seen = found.bias.masked_fill(hidden | torch.eye(24, dtype=torch.bool), 0)
    assert seen.sum(-1).abs().max() < 1e-5, "rows are centred on what they see"
    mixed = logit_parts(build(encoding="lookhere", grow=2.0), noise(6))
    assert mixed.share.isfinite().all() and (mixed.share < 1).all()


def test_mean_logits_tell_what_a_bias_prefers():
    found = bias_effects(logit_parts(blind(build(encoding="alibi")), noise(4)).bias, GRID)
    slope = (2.0**-4 + 2.0**-8) / 2
    for layer in (0, 1):
        assert found["nearby"][layer] > slope and abs(found["same_row_beyond_distance"][layer]) < 0.1 * slope
    seen = bias_effects(logit_parts(build(encoding="lookhere"), noise(4)).bias, GRID)
    assert all(math.isfinite(x) for values in seen.values() for x in values)


def test_what_the_average_picture_shows_at_a_place_is_no_position_once_patches_are_shuffled():
    data = noise(200)
    light = torch.linspace(0, 1, 18).expand(8, 18)  # brighter and brighter to the right
    part = replace(data.test, images=(data.test.images * light).to(torch.uint8))
    data = replace(data, test=part)
    model = build(grow=2.0)
    assert logit_parts(model, data, limit=None).share.min() > 0.02
    assert logit_parts(model, data, limit=None, shuffled=True).share.abs().max() < 0.01


# probes


@pytest.mark.parametrize("spec", TINY)
def test_places_cannot_be_told_without_positions(spec):
    for probe in probe_places(build(spec), noise(200), limit=None):
        assert probe.r2 == pytest.approx(0, abs=0.01)
        assert probe.chance == pytest.approx((1 + 1.5) / 2) and probe.error == pytest.approx(probe.chance, rel=0.01)


def test_what_tokens_hold_of_places_is_found():
    wide = "vit(patch=(2, 3), dim=32, depth=2, heads=2, init='xavier')"  # more channels than places
    entering, *_, last = probe_places(build(wide, "learned(std=10.0)"), noise(200))
    assert entering.r2 > 0.98 and entering.error < 0.15 and last.r2 > 0.9
    narrow = probe_places(build(encoding="learned(std=10.0)"), noise(200))[0]
    assert narrow.r2 == pytest.approx(16 / 23, abs=0.3), "vectors of no order: one channel for each place but one"
    for encoding in ("rope", "relative(std=1.0)"):
        assert abs(probe_places(build(encoding=encoding), noise(200))[0].r2) < 0.01, "nothing is added to tokens"
    entering, _, after = probe_places(build(encoding="cpe(blocks=(0, 1))"), noise(300))
    assert abs(entering.r2) < 0.01 < after.r2, "zeros around the picture tell of its border"


def test_a_probe_is_the_textbooks_ridge_regression():
    model, data = build("attention(patch=(2, 3), dim=16)", "learned(std=0.5)"), noise(50)
    images = torch.cat(list(pictures(model, data, limit=None, shuffled=True)))
    with torch.inference_mode():
        x = model.placed(images)[0].double()
    y = Positions.of(GRID).coords[0].double().expand(50, -1, -1)
    fitted, held, tested = (torch.arange(50) % 5 < 3, torch.arange(50) % 5 == 3, torch.arange(50) % 5 == 4)

    def flat(z, part):
        return z[part].flatten(0, 1)

    mean, centre = flat(x, fitted).mean(0), y[0].mean(0)
    a = flat(x, fitted) - mean
    best, line = math.inf, None
    for strength in (10.0**power for power in range(-8, 5)):
        ridge = strength * a.square().mean() * len(a) * torch.eye(16)
        slope = torch.linalg.solve(a.mT @ a + ridge, a.mT @ (flat(y, fitted) - centre))
        error = ((flat(x, held) - mean) @ slope + centre - flat(y, held)).square().sum().item()
        if error < best:
            best, line = error, slope
    wrong = (flat(x, tested) - mean) @ line + centre - flat(y, tested)
    found = probe_places(model, data)[0]
    r2 = 1 - wrong.square().mean(0) / (flat(y, tested) - centre).square().mean(0)
    assert found.r2 == pytest.approx(r2.mean().item()) and found.error == pytest.approx(wrong.abs().mean().item())
    each = 1 - (wrong.unflatten(0, (10, -1)).square().mean(1) / (y[0] - centre).square().mean(0)).mean(1)
    assert found.standard_error == pytest.approx(each.std().item() / 10**0.5)


def test_an_axis_of_one_place_does_not_count():
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=(8, 3), dim=16, depth=1, heads=2)", SHAPE, 3, "learned(std=3.0)")
    assert probe_places(model, noise(100))[0].r2 > 0.9
    one = MODELS.build("vit(patch=(8, 18), dim=16, depth=1, heads=2)", SHAPE, 3, "none")
    with pytest.raises(UserError, match="of 1x1 patches"):
        probe_places(one, noise(20))
    with pytest.raises(UserError, match="got 4 images"):
        probe_places(model, noise(4))


def test_training_on_digits_brings_no_place_into_tokens_without_positions():
    data = load("mnist")
    few = replace(data, train=data.train.first(600), test=data.test.first(200))
    torch.manual_seed(0)
    model = MODELS.build("vit(patch=(7, 4), dim=16, depth=2, heads=2, init='xavier')", (1, 28, 28), 10)
    list(fit(model, few, Recipe(epochs=1, batch=50)))
    numbers = where_position_lives(model, few).numbers()
    assert max(map(abs, numbers["probe_r2"])) < 0.02 and max(map(abs, numbers["position_share"])) < 0.02
    assert max(numbers["position_share_pictures"]) > 0.02, "digits lie in the middle"


# gates


def sape2(spec=VITS[0], encoding="sape2", std=1.0):
    model = build(spec, encoding, grow=2.0)
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.normal_(std=std)
    return model


@pytest.mark.parametrize("options", ["", "axes=False", "scaled_gates=False", "gated=False", "dot='q'"])
def test_the_counts_of_sape2_are_those_that_its_bias_is_made_of(options):
    part = ENCODINGS.build(f"sape2({options})", Geometry(16, 2, 1, GRID))
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 2, 25, 8)  # with a prefix token
    pos = Positions.of(GRID)
    expected = part.bias(q, k, pos, 0)
    total = torch.zeros_like(expected)
    for (gates, counts), table in zip(part.counts(q, k, pos, 0), part.tables, strict=True):
        counted = ~counts.isnan()
        length = int(counted[0, 0, 0].sum())
        assert (counted.sum(-1) == length).all() and torch.equal(counted, ~gates.isnan())
        lines = counts[counted].unflatten(0, (3, 2, 24, length))
        z = lookup((k if part.dot == "k" else q)[:, :, 1:] @ table[0].mT, lines)
        total += torch.cdist(z, z) * part.factor
        assert (lines[..., :-1] >= lines[..., 1:]).all(), "counted to the edge"
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("encoding", ["sape2", "learned + sape2 + mjp", "cope", "rope + cope(causal=True)"])
@pytest.mark.parametrize("spec", [VITS[2], TINY[-1]])
def test_gates_are_shown_from_a_place(encoding, spec):
    model, images = build(spec, encoding), inputs(noise())
    found = gates_seen_from(model, images, (1, 4))
    assert len(found) == (2 if "sape2" in encoding else 1)
    for one in found:
        assert one.gates.shape == one.counts.shape == (3, model.geometry.heads, *GRID)
    if "sape2" in encoding:
        row, column = found
        assert not row.gates[:, :, 1].isnan().any() and row.gates[:, :, [0, 2, 3]].isnan().all()
        assert not column.counts[..., 4].isnan().any() and column.counts[..., :4].isnan().all()
        torch.testing.assert_close(row.counts[:, :, 1, 0], row.gates[:, :, 1].sum(-1))
    else:
        torch.testing.assert_close(found[0].counts[..., 0, 0], found[0].gates.sum((-1, -2)))
    with pytest.raises(UserError, match=r"no place \(4, 0\)"):
        gates_seen_from(model, images, (4, 0))


def test_only_an_encoding_that_counts_by_content_has_gates():
    with pytest.raises(UserError, match="take one with sape2 or cope"):
        bias_by_content(build(encoding="relative"), noise())


def test_the_bias_against_content_is_a_partial_correlation_at_equal_offsets():
    model, data = sape2(), noise(3)
    found = bias_by_content(model, data)
    attended = []
    with torch.inference_mode():
        look_inside(model, inputs(data), attention=attended.append)
        one = attended[1]
        bias = model.encoding.bias(*one.queries_and_keys(), one.pos, 1).double()
        x = torch.nn.functional.normalize(one.x[:, 1:].double(), dim=-1)
    groups = {}
    for i in range(24):
        for n in range(24):
            if i != n:
                groups.setdefault((abs(i // 6 - n // 6), abs(i % 6 - n % 6)), []).append((i, n))
    for head in range(2):
        each = []
        for image in range(3):
            left, right = [], []
            for pairs in groups.values():
                i, n = torch.tensor(pairs).T
                for values, into in ((bias[image, head, i, n], left), ((x[image, i] * x[image, n]).sum(1), right)):
                    into.append(values - values.mean())
            each.append(torch.corrcoef(torch.stack([torch.cat(left), torch.cat(right)]))[0, 1])
        assert found.correlation[1, head].item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)
        assert found.spread[1, head].item() == pytest.approx(torch.stack(each).std().item(), abs=1e-5)


@pytest.mark.parametrize("spec", TINY)
def test_the_bias_of_sape2_is_less_between_patches_that_are_alike(spec):
    """A distance between functions of the patches: what is alike is near."""
    found = bias_by_content(sape2(spec), noise(30))
    assert (found.correlation < -0.05).all() and (found.spread > 0).all() and found.images == 30
    turned = bias_by_content(sape2(spec, "sape2(sign=-1)"), noise(30))
    assert (turned.correlation > 0.05).all()


def test_a_bias_of_nothing_goes_with_nothing():
    assert bias_by_content(build(encoding="cope"), noise(4)).correlation.isnan().all(), "its table starts at zero"


# frequencies and tables


@pytest.mark.parametrize("encoding", ["rope", "rope(base=10, ntk=2)", "rope_mixed", "rope_dino", "liere(block=2)"])
def test_frequencies_are_those_that_turn_q_and_k(encoding):
    geometry = Geometry(16, 2, 2, GRID, 1)
    part = ENCODINGS.build(encoding, geometry).eval()
    pos = Positions.of(GRID)
    waves = rotary_frequencies(part)
    assert waves.shape == (2, 2, 4, 2)
    torch.manual_seed(0)
    q = torch.randn(1, 2, 24, 8)
    for layer in (0, 1):
        turned = part.rotate(q, q, pos, layer)[0]
        coords = part.coords(pos, q.dtype)[0]
        angles = torch.einsum("na,hta->hnt", coords, waves[layer])
        pairs = torch.view_as_complex(q[0].unflatten(-1, (4, 2)).contiguous())
        expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        torch.testing.assert_close(turned[0], expected, atol=1e-5, rtol=1e-4)


def test_frequencies_are_found_inside_a_sum():
    geometry = Geometry(16, 2, 2, GRID)
    assert rotary_frequencies(ENCODINGS.build("learned + rope_mixed + mjp", geometry)).shape == (2, 2, 4, 2)
    assert rotary_frequencies(ENCODINGS.build("rope + rope_dino", geometry)).shape == (2, 2, 8, 2)
    assert rotary_frequencies(ENCODINGS.build("learned + mjp", geometry)) is None
    assert rotary_frequencies(ENCODINGS.build("liere(block=8)", geometry)) is None


@pytest.mark.parametrize("encoding", ["relative(std=1.0)", "learned + relative(std=1.0) + mjp"])
def test_the_table_of_a_relative_bias_is_the_stored_one(encoding):
    geometry = Geometry(16, 2, 3, GRID, 1)
    part = ENCODINGS.build(encoding, geometry)
    [table] = [one.table for one in parts(part) if isinstance(one, Relative)]
    found = offset_biases(part, geometry)
    assert found.shape == (3, 2, 7, 11)
    assert torch.equal(found, table.detach().permute(0, 3, 1, 2))
    larger = part.resized((5, 8))
    again = offset_biases(larger, replace(geometry, grid=(5, 8)), span=GRID)
    [table] = [one.table for one in parts(larger) if isinstance(one, Relative)]
    torch.testing.assert_close(again, table.detach().permute(0, 3, 1, 2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoding", ["alibi", "lookhere", "cpb", "relative + alibi"])
def test_a_bias_by_offset_is_what_every_pair_gets(encoding):
    geometry = Geometry(16, 2, 2, GRID)
    part = ENCODINGS.build(encoding, geometry)
    found, pos = offset_biases(part, geometry), Positions.of(GRID)
    at = pos.offsets()[0].long() + torch.tensor(GRID) - 1
    with torch.inference_mode():
        whole = part.bias(torch.zeros(1, 2, 24, 8), torch.zeros(1, 2, 24, 8), pos, 1)[0]
    torch.testing.assert_close(found[1][:, at[..., 0], at[..., 1]], whole)


@pytest.mark.parametrize("encoding", ["none", "learned", "rope", "sape2", "cope", "decomposed"])
def test_without_a_bias_by_offset_there_is_no_table(encoding):
    geometry = Geometry(16, 2, 2, GRID)
    assert offset_biases(ENCODINGS.build(encoding, geometry), geometry) is None


# all of it


@pytest.mark.parametrize("spec", [*VITS[:3], TINY[-1]])
@pytest.mark.parametrize("encoding", ASKED)
def test_every_encoding_is_told_on_the_same_axes(spec, encoding):
    model = build(spec, encoding)
    numbers = where_position_lives(model, noise(20)).numbers()
    depth = model.geometry.depth
    assert len(numbers["probe_r2"]) == len(numbers["probe_error"]) == depth + 1
    for name in ("position_share", "position_share_pictures", "attention_distance"):
        assert len(numbers[name]) == depth
    for name in ("head_diversity", "head_diversity_of_images"):
        assert (name in numbers) == (model.geometry.heads > 1)
    flat = [x for value in numbers.values() for x in (value if isinstance(value, list) else [value])]
    assert all(type(x) is float and math.isfinite(x) for x in flat)
    assert numbers["uniform_distance"] == pytest.approx(uniform_distance(GRID, PATCH))


@pytest.mark.parametrize("encoding", [*ASKED, "lookhere", "cope", "learned + rope + mjp", "decomposed", "liere"])
def test_pictures_of_another_size_and_resized_models_are_told_of_too(encoding):
    data, model = noise(10, shape=(1, 12, 15)), build(VITS[2], encoding)  # a grid of 6×5 in the span of 4×6
    for one in (model, model.resized((6, 5))):
        numbers = where_position_lives(one, data).numbers()
        assert numbers["uniform_distance"] == pytest.approx(uniform_distance((6, 5), PATCH))
        assert all(math.isfinite(x) for x in numbers["probe_r2"] + numbers["position_share"])
        assert attention_maps(one, inputs(data)).shape == (3, 1, 2, 6, 5)
        assert attention_rollout(one, inputs(data)).shape == (3, 6, 5)
        if "sape2" in encoding or "cope" in encoding:
            assert gates_seen_from(one, inputs(data), (5, 4))[0].gates.shape == (3, 2, 6, 5)
            assert bias_by_content(one, data).correlation.shape == (2, 2)


def test_looking_twice_gives_the_same_numbers_and_leaves_the_model_as_it_was():
    model, data = build(encoding="learned + rope"), noise(20)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.random.get_rng_state()
    assert where_position_lives(model, data).numbers() == where_position_lives(model, data).numbers()
    assert torch.equal(drawn, torch.random.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
