import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from tests.evaluate import evaluate
from vitpos.attacks import april as april_form
from vitpos.attacks import matching as matching_form
from vitpos.attacks import projection as projection_form
from vitpos.attacks.equations import equations, without_penalty
from vitpos.attacks.matching import Descent, inferred
from vitpos.attacks.recovery import Inapplicable
from vitpos.attacks.residual import smooth_inside, unseen
from vitpos.attacks.victim import Case, Client, exact, share
from vitpos.data.dataset import Dataset, Split
from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.models import MODELS
from vitpos.models.attention import double_backward_attention
from vitpos.patches import patchify, permute_patches, unpatchify
from vitpos.positions import Positions
from vitpos.training.recipe import Recipe

IMAGE = (3, 12, 20)  # neither square
PATCH = (4, 5)
GRID = (3, 4)
LEAKS = [  # what is added to tokens and trained place by place
    "learned",
    "learned(per_layer=True)",
    "learned(prefix_embed=True)",
    "fourier(hidden_dim=64)",
    "coordinate_mlp(activation='relu')",
    "learned + rope",
    "learned + cpe",
    "learned + sape2",
    "factorized + learned",
    "learned + mjp",
]
KEEPS = ["none", "sinusoidal", "fourier(learnable=False)", "rope", "relative", "alibi", "sape2", "cpe", "rope + mjp"]
BARE = "vit(patch=(4, 5), dim=64, depth=2, heads=4, registers=2, april_block=True)"
PLAIN = "vit(patch=(4, 5), dim=32, depth=2, heads=4)"


def victim(encoding, spec="vit(patch=(4, 5), dim=32, depth=2, heads=4, registers=1)", image=IMAGE):
    torch.manual_seed(0)
    return MODELS.build(spec, image, 5, encoding)


def pictures(count=3, image=IMAGE):
    images = torch.randint(256, (count, *image), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    some = Split(images, torch.arange(count) % 5)
    return Dataset(some, some, tuple("abcde"), (0.4,) * image[0], (0.25,) * image[0])


def true_gradients_at_tokens(model, inputs, label, positions=None):
    """(N, D), by asking autograd at the tokens themselves."""
    kept = []
    own = model.patch_tokens

    def patch_tokens(images):
        tokens = own(images)
        tokens.retain_grad()
        kept.append(tokens)
        return tokens

    model.patch_tokens = patch_tokens
    logits, penalty = model.forward_with_penalty(inputs, positions)
    (F.cross_entropy(logits, label) + penalty).backward()
    del model.patch_tokens
    return kept[0].grad[0]


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    "encoding",
    [*LEAKS, *KEEPS, "factorized", "coordinate_mlp", "learned + mjp(slot_index=True, localization='linear')"],
)
def test_every_equation_holds_for_the_true_gradients_at_tokens(encoding, hidden):
    model = exact(victim(encoding))
    with torch.no_grad():
        for parameter in model.encoding.parameters():
            parameter.normal_()
    inputs, label = torch.randn(1, *IMAGE, dtype=torch.float64), torch.tensor([3])
    pos = Positions.from_grid(GRID)
    if hidden:
        pos = pos.hide((torch.arange(12) % 5 == 1)[None])
    gradients = without_penalty(model, share(model, inputs, label, pos), pos)
    told = equations(model, gradients, pos)
    true = true_gradients_at_tokens(model, inputs, label, pos)
    assert torch.allclose(told.weights @ true, told.seen, atol=1e-9 * float(true.abs().max()))


@pytest.mark.parametrize("spec", [PLAIN, "vit(patch=(4, 5), dim=32, depth=3, heads=2, pool='mean', registers=1)"])
@pytest.mark.parametrize("encoding", LEAKS)
def test_pixels_come_back_from_an_unmodified_model(spec, encoding):
    found = evaluate("projection(images=3)", victim(encoding, spec), pictures()).numbers
    assert found["psnr_worst"] > 200 and found["equations"] == found["rank"] == 12
    single = evaluate("projection(images=3, precision='float32')", victim(encoding, spec), pictures()).numbers
    assert single["psnr_worst"] > 50


def test_a_norm_after_the_projection_is_in_the_way():
    model = victim("learned", "swin(patch=4, dim=32, depths=(2,), heads=(2,), window=2, drop_path=0.0)", (3, 8, 16))
    assert "as a norm" in evaluate("projection(images=2)", model, pictures(2, (3, 8, 16))).reason


@pytest.mark.parametrize("encoding", KEEPS)
def test_what_trains_nothing_that_is_added_to_tokens_has_no_closed_form(encoding):
    for attack, spec in (("projection", PLAIN), ("april", BARE)):
        answer = evaluate(f"{attack}(images=1)", victim(encoding, spec), pictures())
        assert answer.numbers == {} and not answer.images and "added to tokens" in answer.reason


def test_without_positions_pictures_with_the_same_patches_share_one_gradient():
    model = exact(victim("none"))
    inputs, label = torch.randn(1, *IMAGE, dtype=torch.float64), torch.tensor([2])
    order = torch.randperm(12)
    moved = share(model, permute_patches(inputs, GRID, order), label)
    for name, gradient in share(model, inputs, label).items():
        assert torch.allclose(gradient, moved[name], atol=1e-12), name


def test_tables_of_rows_and_columns_give_sums_alone():
    answer = evaluate("projection(images=3)", victim("factorized"), pictures()).numbers
    assert answer["equations"] == answer["rank"] == 3 + 4 - 1 and answer["psnr"] < 30
    assert answer["condition"] < 1e12, "what is found is divided by nothing that is rounding"


@pytest.mark.parametrize("encoding", [*LEAKS[:3], "learned + rope", "learned + sape2"])
def test_aprils_form_finds_all_pixels_where_a_patch_has_fewer_than_there_are_channels(encoding):
    found = evaluate("april(images=3)", victim(encoding, BARE), pictures()).numbers
    assert found["psnr_worst"] > 120 and found["rank"] == 12 + 3


def test_aprils_form_stops_at_the_projection_of_patches_with_more_pixels():
    model, data = victim("learned", BARE.replace("dim=64", "dim=32")), pictures(1)
    (case,) = Client(EvalContext(model, data), 1).cases()
    answer = april_form.compared(exact(model), case, april_form.invert(exact(model), case))
    found = answer.inputs
    weight = exact(model).project.weight.detach()
    patches = patchify(case.inputs, PATCH) @ (torch.linalg.pinv(weight) @ weight).mT
    assert torch.allclose(found, unpatchify(patches, GRID, PATCH), atol=1e-5)
    assert (found - case.inputs).abs().max() > 0.1
    wrong = (found - case.inputs).square().sum() / case.inputs.square().sum()
    assert answer.about["token_error"] < 1e-6 < 0.2 < answer.about["lost"] == pytest.approx(float(wrong), rel=1e-4)


@pytest.mark.parametrize(
    ("spec", "encoding", "reason"),
    [
        (PLAIN, "learned", "first attention"),
        (BARE, "learned + cpe(layers=(0,))", "depends on the tokens"),
        ("cnn", "none", "first attention"),
    ],
)
def test_aprils_form_says_why_it_does_not_apply(spec, encoding, reason):
    assert reason in evaluate("april(images=1)", victim(encoding, spec), pictures()).reason


def test_a_convolution_before_the_first_block_is_the_reason_where_it_is():
    answer = evaluate("projection(images=1)", victim("cpe(layers=(0,))"), pictures())
    assert "depends on the tokens" in answer.reason and not answer.numbers


def test_a_model_without_patches_has_no_projection():
    assert "no projection" in evaluate("projection(images=1)", victim("none", "cnn"), pictures()).reason


def masked(attacker, setting="b", encoding="learned + mjp", **options):
    more = "".join(f", {key}={value!r}" for key, value in options.items())
    spec = f"projection(images=3, setting={setting!r}, attacker={attacker!r}{more})"
    return evaluate(spec, victim(encoding), pictures()).numbers


def test_a_shared_unknown_vector_at_gradient_time_is_what_protects():
    naive, adaptive = masked("naive", ratio=0.5), masked("unknown", ratio=0.5)
    assert naive["psnr"] < 30 and adaptive["psnr"] < 30
    assert adaptive["equations"] < 12
    assert masked("naive", ratio=0.5, told=False)["psnr_worst"] > 200, (
        "not told, a trained unknown vector protects nothing"
    )
    assert masked("naive", "a")["psnr_worst"] > 200
    assert masked("unknown", ratio=0.1)["psnr_worst"] > 200, (
        "one hidden patch has the unknown vector's gradient to itself"
    )
    indexed = "learned + mjp(slot_index=True)"
    assert masked("mask", ratio=0.5, encoding=indexed)["psnr_worst"] > 200, "a slot index opens it again"


def test_the_gradient_gives_the_mask_away():
    for encoding in ("learned + mjp", "fourier(hidden_dim=128) + mjp"):
        model = victim(encoding)
        for precision in ("float64", "float32"):
            for case in Client(EvalContext(model, pictures()), 3, "b", 0.5, precision=precision).cases():
                seen = projection_form.assumed(exact(model), case, "unknown")
                assert torch.equal(seen.known, case.positions.known) and not seen.known.all()


def test_what_equations_leave_of_the_gradient_shows_where_the_answer_is_exact():
    model = exact(victim("learned + mjp"))
    for case in Client(EvalContext(model, pictures()), 3, "b", 0.5).cases():
        gradients, pos = projection_form.as_seen(model, case, "residual")
        told = projection_form.told_apart(model, gradients, pos)
        basis = unseen(told, gradients["project.weight"], 1e-16)
        hidden = (~pos.known).sum().item()
        true, found = (
            patchify(x, PATCH)[0] for x in (case.inputs, projection_form.invert(model, case, "residual").inputs)
        )
        apart = (true[~pos.known[0]] - true[~pos.known[0]].mean(0)) @ basis.mT @ basis
        assert len(basis) == hidden - 1 > 1
        assert torch.allclose(apart, true[~pos.known[0]] - true[~pos.known[0]].mean(0), atol=1e-7), (
            "what tells them apart"
        )
        error = found - true
        assert (error - error @ basis.mT @ basis).abs().max() < 1e-7 < 0.1 < error.abs().max()
    numbers = masked("residual", ratio=0.5)
    told = masked("mask", ratio=0.5)
    assert 0.9 < numbers["outside"] < 1 and numbers["psnr"] > told["psnr"] + 1
    assert numbers["psnr_shown"] > told["psnr_shown"] + 5
    whole = masked("residual", "a")
    assert whole["psnr_shown"] == pytest.approx(whole["psnr"]), "where nothing is hidden all is shown"


def test_a_smooth_picture_is_found_where_nothing_is_known_of_it():
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 12), torch.linspace(0, 1, 20), indexing="ij")
    smooth = (rows + columns).expand(1, 3, -1, -1).double()
    patches = patchify(smooth, PATCH)[0]
    basis = torch.linalg.qr(torch.randn(60, 20, generator=torch.Generator().manual_seed(0)).double())[0].mT
    blurred = patches - patches @ basis.mT @ basis
    found = smooth_inside(blurred, basis, Positions.from_grid(GRID), PATCH)
    assert torch.allclose(found - found @ basis.mT @ basis, blurred, atol=1e-9)
    assert (found - patches).norm() < 0.5 * (blurred - patches).norm()


def test_whoever_knows_of_the_noise_does_not_divide_by_it():
    draw = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    at_tokens = random(12, 12) @ torch.diag(10.0 ** -torch.arange(12.0).double()) @ random(12, 32)
    x = random(12, 5)
    noisy = at_tokens + 1e-4 * random(12, 32), at_tokens.mT @ x + 1e-4 * random(32, 5)
    case = Case(torch.zeros(1, dtype=torch.float64), *[None] * 4)
    (told,) = Client(EvalContext(victim("learned"), pictures()), 1, defense="clip + noise(std=0.0001)").cases()
    wise, simple = ((projection_form.solve(*noisy, case, noise)[0] - x).norm() for noise in (told.noise, 0.0))
    assert told.noise == 1e-4 and wise < 1.1 * x.norm() and wise < 0.8 * simple


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize(
    ("encoding", "setting", "attacker"), [("learned", "a", "naive"), ("learned + mjp", "b", "mask")]
)
def test_whoever_knows_that_numbers_were_left_out_does_not_divide_by_what_is_left(encoding, setting, attacker, share):
    model = exact(victim(encoding))
    (case,) = Client(EvalContext(model, pictures()), 1, setting, 0.5, defense=f"prune(fraction={share})").cases()
    wise, simple = (
        (projection_form.invert(model, c, attacker).inputs - case.inputs).norm()
        for c in (case, replace(case, pruned=False))
    )
    assert wise < 1.5 * case.inputs.norm() and wise < 0.8 * simple


def test_noise_on_what_was_pruned_does_not_make_an_attacker_forget_the_pruning():
    def rank(defense):
        spec = f"projection(images=3, defense='{defense}')"
        return evaluate(spec, victim("learned"), pictures()).numbers["rank"]

    pruned, after = rank("prune(fraction=0.7)"), rank("prune(fraction=0.7) + noise(std=1e-09)")
    assert after == pytest.approx(pruned, abs=0.5) and pruned < rank("noise(std=1e-09)")


@pytest.mark.parametrize(
    "encoding", ["learned + mjp", "learned + mjp(localization='linear')", "fourier(hidden_dim=128) + mjp"]
)
def test_clipping_alone_hides_nothing(encoding):
    model = exact(victim(encoding))
    plain, clipped = (
        evaluate(
            "projection(images=2)" if not norm else f"projection(images=2, defense='clip(max_norm={norm})')",
            model,
            pictures(),
        ).numbers["psnr_worst"]
        for norm in (0, 0.01)
    )
    assert min(plain, clipped) > 180


def test_settings_b_and_c_differ_by_what_is_to_be_found():
    model, data = victim("learned"), pictures()
    same, other = ([*Client(EvalContext(model, data), 3, setting, 0.9).cases()] for setting in "bc")
    for b, c in zip(same, other, strict=True):
        assert torch.equal(b.inputs, c.inputs) and torch.equal(b.goal, b.inputs) and not torch.equal(c.goal, c.inputs)
    kept = evaluate("projection(images=3, setting='b', ratio=0.9)", model, data).numbers
    lost = evaluate("projection(images=3, setting='c', ratio=0.9)", model, data).numbers
    assert kept["psnr_worst"] > 200 > 40 > lost["psnr"]


def test_the_penalty_of_hidden_places_misleads_nobody():
    plain, penalised = (
        masked("naive", ratio=0.5, encoding=f"learned + mjp(localization={dal})") for dal in ("None", "'linear'")
    )
    assert plain["rank"] == penalised["rank"] < 12
    assert abs(plain["psnr"] - penalised["psnr"]) < 1


def test_a_guess_is_told_as_such():
    assert masked("unknown", "a")["guess"] == 0 and masked("unknown", ratio=0.5)["guess"] == 1
    assert evaluate("projection(images=2)", victim("factorized"), pictures()).numbers["guess"] == 1
    narrow = victim("learned", "vit(patch=(4, 5), dim=8, depth=2, heads=2)")
    assert evaluate("projection(images=2)", narrow, pictures()).numbers["guess"] == 1, "more places than channels"
    hidden = evaluate("projection(images=1, setting='b', attacker='mask')", victim("rope + mjp"), pictures())
    assert "added to tokens" in hidden.reason and not hidden.numbers, "the sum of the hidden ones tells none of them"


def test_what_single_precision_cannot_tell_from_zero_is_not_divided_by():
    small = torch.diag(torch.tensor([1.0, 1e-3, 1e-9], dtype=torch.float64))
    single, double = (Case(torch.zeros(1, dtype=kind), *[None] * 4) for kind in (torch.float32, torch.float64))
    assert projection_form.solve(small, small, single)[1] == 2 and projection_form.solve(small, small, double)[1] == 3


def test_what_rounding_leaves_of_a_missing_direction_is_not_divided_by():
    draw = torch.Generator().manual_seed(0)
    case = Case(torch.zeros(1, dtype=torch.float64), *[None] * 4)
    for _ in range(20):
        few = torch.randn(64, 15, generator=draw).double() @ torch.randn(15, 96, generator=draw).double()
        assert projection_form.solve(few, few.mT, case)[1] == 15


def test_shares_of_labels_are_means_and_perfect_pictures_have_a_number():
    data = pictures(5)
    shared = evaluate("matching(images=5, steps=1, defense='noise(std=1.0)', seed=3)", victim("learned"), data)
    assert 0 < shared.numbers["label"] < 1 and (5 * shared.numbers["label"]) % 1 == pytest.approx(0)
    black = Split(torch.zeros(1, *IMAGE, dtype=torch.uint8), torch.tensor([0]))
    dark = Dataset(black, black, data.classes, data.mean, data.std)
    perfect = evaluate("projection(images=1)", victim("learned"), dark)
    assert 200 < perfect.numbers["psnr"] <= 320


def test_a_gradient_of_several_pictures_is_refused():
    model = exact(victim("learned"))
    inputs, label = torch.randn(2, *IMAGE, dtype=torch.float64), torch.tensor([1, 2])
    case = Case(inputs, inputs, label, None, share(model, inputs, label))
    with pytest.raises(InputError, match="a gradient of 2 images"):
        projection_form.invert(model, case)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("projection(images=0)", "images=0; take 1 or more"),
        ("projection(ratio=1.5)", "a fraction from 0 to 1"),
        ("april(setting='b')", "does not have"),
        ("matching(steps=0)", "steps=0"),
        ("matching(rate=0.0)", "rate above 0"),
        ("matching(start='projection', restarts=2)", "one start"),
        ("projection(defense='nosie')", "noise"),
        ("projection(defense='noise(std=-1.0)')", "0 or more"),
    ],
)
def test_what_cannot_be_is_refused(spec, message):
    model = victim("none", "cnn") if "setting" in spec else victim("learned")
    with pytest.raises(InputError, match=message):
        evaluate(spec, model, pictures())


SMALL = "vit(patch=4, dim=32, depth=1, heads=2, weight_init='xavier', pool='mean')"


def small(encoding="learned", count=1):
    return victim(encoding, SMALL, (1, 8, 12)), pictures(count, (1, 8, 12))


def test_matching_the_gradient_by_cosine_reconstructs_the_image():
    """Measured on AVX2, AVX-512 and neither, over 3 seeds: 54 dB or more are gained."""
    model, data = small()
    short, long = (evaluate(f"matching(tv=0.0, images=1, steps={steps})", model, data) for steps in (1, 400))
    assert long.numbers["distance"] < 0.05 * short.numbers["distance"]
    assert long.numbers["psnr"] > short.numbers["psnr"] + 20
    assert long.images["trajectory"].shape[:3] == (1, 9, 1) and long.numbers["label"] == 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_matching_the_gradient_by_squared_distance_brings_the_gradients_together(seed):
    """Measured: the distance falls to 0.005 or less of what it is after one step."""
    model, data = small()
    spec = f"matching(loss='l2', rate=0.3, tv=0.0, images=1, seed={seed}, steps="
    short, long = (evaluate(f"{spec}{steps})", model, data) for steps in (1, 400))
    assert long.numbers["distance"] < 0.05 * short.numbers["distance"]


def test_what_position_gives_away_can_be_left_out():
    model, data = small()
    (case,) = Client(EvalContext(exact(model), data), 1).cases()
    other = {name: g + 1 if name.startswith("encoding.") else g for name, g in case.gradients.items()}
    for alpha, moved in ((0.0, False), (1.0, True), (None, True)):
        descent = Descent(exact(model), case.gradients, case.label, None, "cosine", alpha, 0.0, 0.0)
        assert (float(descent.distance(other)) > 1e-3) == moved
        assert float(descent.distance(case.gradients)) < 1e-9


def test_numbers_that_were_left_out_are_not_compared():
    model, data = small()
    (case,) = Client(EvalContext(exact(model), data), 1).cases()
    (pruned,) = Client(EvalContext(exact(model), data), 1, defense="prune(fraction=0.9)").cases()
    (noisy,) = Client(EvalContext(exact(model), data), 1, defense="prune(fraction=0.9) + noise(std=1e-09)").cases()
    for shared in (pruned, noisy):
        for floor, found in ((shared.floor, 0.0), (None, 0.01)):
            descent = Descent(exact(model), shared.gradients, case.label, None, "l2", 1.0, 0.0, 0.0, floor)
            assert (float(descent.distance(case.gradients)) > 1e-9) == (found > 0)
    assert pruned.floor == 0 < noisy.floor and case.floor is None


@pytest.mark.parametrize(
    "encoding", [*sorted(ENCODINGS), *(f"{name} + mjp" for name in sorted(ENCODINGS) if name != "mjp")]
)
def test_descents_go_through_every_encoding(encoding):
    model, data = small(encoding)
    found = evaluate("matching(images=1, steps=2, precision='float64')", model, data)
    assert found.numbers["steps"] == 2 and found.images["reconstruction"].isfinite().all()


def test_alike_gradients_are_at_no_distance_even_in_single_precision():
    one = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    for size in (1.0, 3.0, 1e-6):
        assert 0 <= float(matching_form._apart(size * one, one)) < 1e-12
    assert float(matching_form._apart(one, -one)) == pytest.approx(2)


def test_where_everything_is_hidden_the_closed_form_says_so_and_no_number_is_missing():
    model = victim("learned + mjp")
    for attacker in ("naive", "unknown", "mask", "residual"):
        found = evaluate(f"projection(images=1, setting='b', ratio=1.0, attacker='{attacker}')", model, pictures())
        assert found.reason and not found.numbers, attacker
    small_model, data = small("learned + mjp")
    found = evaluate("matching(images=1, steps=1, setting='b', ratio=1.0)", small_model, data)
    assert "psnr_shown" not in found.numbers and all(map(math.isfinite, found.numbers.values()))


def test_the_picture_as_it_was_is_smooth_across_the_borders_of_hidden_patches():
    data = pictures()
    wave = torch.linspace(0, 3, data.shape[1])[:, None] + torch.linspace(0, 2, data.shape[2])
    smooth = (127 + 120 * wave.sin())[None, None].expand(3, data.shape[0], -1, -1).to(torch.uint8)
    data = replace(data, test=Split(smooth, data.test.labels))
    b, c = (
        evaluate(f"projection(images=3, setting='{s}', ratio=0.5, attacker='residual')", victim("learned + mjp"), data)
        for s in "bc"
    )
    assert c.numbers["psnr"] > b.numbers["psnr"] + 1


def test_a_descent_from_the_closed_form_stays_there():
    model, data = small()
    found = evaluate("matching(images=1, steps=20, start='projection', tv=0.0)", model, data).numbers
    assert found["psnr"] > 60 and found["closed"] == 1


def test_a_descent_begins_from_noise_where_there_is_no_closed_form():
    rope, data = small("rope")
    spec = "matching(images=1, steps=3, start=%r)"
    one, other = (evaluate(spec % start, rope, data) for start in ("projection", "noise"))
    assert one.numbers == other.numbers and one.numbers["closed"] == 0


def test_a_descent_that_no_longer_falls_ends_early():
    model, data = small()
    found = evaluate("matching(images=1, steps=300, start='projection', patience=5, precision='float64')", model, data)
    assert found.numbers["steps"] < 300


def test_the_label_is_read_from_the_gradient():
    model = victim("learned")
    for label in range(5):
        gradients = share(model, torch.randn(1, *IMAGE), torch.tensor([label]))
        assert inferred(gradients).item() == label
    with pytest.raises(Inapplicable, match="no bias"):
        inferred({"head.weight": torch.zeros(1)})


def test_the_gradient_of_the_distance_is_that_of_differences():
    model = exact(small()[0])
    x = torch.randn(1, 1, 8, 12, dtype=torch.float64, requires_grad=True)
    label = torch.tensor([1])
    goal = share(model, torch.randn(1, 1, 8, 12, dtype=torch.float64), label)
    descent = Descent(model, goal, label, None, "l2", 0.5, 0.1, 0.2)

    def total(x):
        return descent.distance(share(model, x, label, again=True)) + descent.prior(x)

    with double_backward_attention():
        assert torch.autograd.gradcheck(total, x, atol=1e-6)


def test_a_context_gives_the_defence_of_training_and_reports_progress():
    fractions = []
    spec = "matching(images=2, steps=3, restarts=2, defense={})"
    ctx = EvalContext(victim("learned"), pictures(), Recipe(defense="noise(std=0.5)"), fractions.append)
    trained, named, plain = (EVALUATIONS.build(spec.format(x), ctx).numbers for x in (None, "'noise(std=0.5)'", "''"))
    assert trained == named != plain
    assert fractions[:12] == pytest.approx([n / 12 for n in range(1, 13)])
