import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from tests.evaluate import evaluate, numbers_of
from vitpos.data.dataset import Dataset, Split, load
from vitpos.data.image_ops import resize
from vitpos.encodings import ENCODINGS
from vitpos.encodings.protocols import ntk_scaled
from vitpos.errors import InputError
from vitpos.evaluations import EVALUATIONS
from vitpos.evaluations.context import EvalContext
from vitpos.evaluations.resolution import nearest
from vitpos.models import MODELS
from vitpos.models.activations import relative_error
from vitpos.models.base import Classifier
from vitpos.patches import patchify, seeded_permutation
from vitpos.positions import Positions


class Oracle(Classifier):
    """Answers what the first pixel says: the label, plus one where the second pixel is set."""

    head = torch.nn.Identity()

    def forward_features(self, images, positions=None):
        label = (images[:, 0, 0, 0] + images[:, 0, 0, 1]).long()
        return torch.nn.functional.one_hot(label % 3, 3).float()


def small(labels, wrong) -> Dataset:
    images = torch.zeros(len(labels), 1, 4, 6, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = torch.tensor(labels), torch.tensor(wrong)
    split = Split(images, torch.tensor(labels))
    return Dataset(split, split, ("a", "b", "c"), (0.0,), (1 / 255,))


def test_accuracy_pairs_and_confusion_count_right():
    data = small([0, 0, 1, 1, 2, 2, 2, 2], [0, 1, 0, 0, 0, 0, 0, 1])
    assert numbers_of("accuracy", Oracle(), data) == {"accuracy": 6 / 8}
    confusion = evaluate("confusion", Oracle(), data).arrays["confusion"]
    assert confusion.tolist() == [[0.5, 0.5, 0], [0, 1, 0], [0.25, 0, 0.75]]
    assert numbers_of("pairs(classes=(0, 1))", Oracle(), data) == {"all_classes": 3 / 4, "two_logits": 3 / 4}
    assert numbers_of("pairs(classes=(0, 2))", Oracle(), data)["all_classes"] == 4 / 6


def trained_like(encoding, spec="minimal"):
    torch.manual_seed(0)
    model = MODELS.build(spec, (1, 28, 28), 10, encoding)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
        for parameter in model.encoding.parameters():
            parameter.normal_()
    return model


@pytest.mark.parametrize("spec", ["minimal", "minimal(patch=2)", "vit(dim=16, depth=2, heads=2, registers=1)"])
@pytest.mark.parametrize("encoding", ["none", "learned", "sinusoidal", "nearby"])
@pytest.mark.parametrize("per", ["dataset", "image"])
def test_patches_that_keep_their_positions_are_predicted_as_the_original_image(spec, encoding, per):
    data = load("mnist")
    few = Dataset(data.train, data.test.head(200), data.classes, data.mean, data.std)
    follow = f"jigsaw(grid=(7, 7), per='{per}')"
    assert numbers_of(follow, trained_like(encoding, spec), few)["agreement"] == 1


@pytest.mark.parametrize("encoding", ["none", "learned"])
def test_positions_that_stay_matter_to_a_model_that_has_them(encoding):
    data = load("mnist")
    few = Dataset(data.train, data.test.head(300), data.classes, data.mean, data.std)
    numbers = numbers_of("jigsaw(positions='stay')", trained_like(encoding), few)
    assert (numbers["agreement"] == 1) == (encoding == "none")


def test_a_model_without_patches_sees_the_rearranged_picture():
    data = load("mnist")
    few = Dataset(data.train, data.test.head(100), data.classes, data.mean, data.std)
    cnn = MODELS.build("cnn", (1, 28, 28), 10)
    follow, stay = (numbers_of(f"jigsaw(grid=(7, 7), positions='{p}')", cnn, few) for p in ("follow", "stay"))
    moved = load("mnist + permute_patches(grid=(7, 7))")
    same = Dataset(moved.train, moved.test.head(100), moved.classes, moved.mean, moved.std)
    assert follow == stay
    assert follow["accuracy"] == numbers_of("accuracy", cnn, same)["accuracy"]
    with pytest.raises(InputError, match="needs grid"):
        numbers_of("jigsaw", cnn, few)


def test_tokens_counts_blank_and_distinct_patches():
    images = torch.zeros(2, 1, 4, 6, dtype=torch.uint8)
    images[0, 0, 0, 0] = images[0, 0, 0, 4] = images[0, 0, 2, 3] = 9  # patches 2×2: two alike, one other, three blank
    data = Dataset(*[Split(images, torch.tensor([0, 1]))] * 2, ("a", "b"), (0.0,), (1.0,))
    for encoding, after in (("none", 2.0), ("learned(std=1.0)", 6.0)):
        model = MODELS.build("minimal(patch=2)", data.shape, 2, encoding)
        numbers = numbers_of("tokens", model, data)
        assert numbers == {"patches": 6, "blank": 9 / 12, "distinct_before": 2.0, "distinct_after": after}


@pytest.mark.parametrize(
    ("spec", "encoding", "positions"),
    [
        ("minimal(dim=8)", "learned", 49 * 8),
        ("swin(dim=8, depths=(1, 1), heads=(1, 2))", "learned", 49 * 8 + 13 * 13 + 7 * 7 * 2),
        ("resnet(depths=(1,), width=4)", "none", 0),
    ],
)
def test_cost_counts_parameters_and_leaves_the_model_as_it_is(spec, encoding, positions):
    model = MODELS.build(spec, (1, 28, 28), 10, encoding)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = numbers_of("cost(batch=4, steps=1)", model, load("mnist"))
    assert numbers["position_parameters"] == positions and numbers["step_milliseconds"] > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_moving_by_nothing_changes_nothing_and_moving_keeps_what_stays_in_view():
    data = load("mnist")
    few = Dataset(data.train, data.test.head(100), data.classes, data.mean, data.std)
    seen = []
    model = trained_like("learned")
    assert numbers_of("translation(by=(0, 0))", model, few)["agreement"] == 1
    features = model.forward_features
    model.forward_features = lambda images, positions=None: seen.append(images) or features(images, positions)
    numbers_of("translation(by=(-1, 2))", model, few)
    moved, usual = seen[0], data.normalize(few.test.images)
    assert torch.equal(moved[:, :, :24, 8:], usual[:, :, 4:, :20])
    assert (moved[:, :, 24:] == usual.min()).all() and (moved[:, :, :, :8] == usual.min()).all()


def test_the_trained_size_is_answered_as_usual_and_another_size_needs_whole_patches():
    data = load("mnist")
    few = Dataset(data.train, data.test.head(200), data.classes, data.mean, data.std)
    model = trained_like("learned")
    usual = numbers_of("accuracy", model, few)["accuracy"]
    for coordinates in ("fit", "beyond"):
        same = numbers_of(f"resolution(size=(28, 28), coordinates='{coordinates}')", model, few)
        assert same["accuracy"] == usual
    with pytest.raises(InputError, match="whole patches of 4x4; give multiples of 4 and 4"):
        numbers_of("resolution(size=(30, 28))", model, few)


def test_the_example_of_an_evaluation_works():
    model, data = trained_like("learned"), few_digits(300)
    expected = right(model, data, data.test.images.flip(3))
    assert numbers_of("mirrored", model, data)["accuracy"] == expected != right(model, data, data.test.images)


def test_a_context_predicts_unchanged_images_once_and_another_context_anew():
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


def few_digits(count=100):
    data = load("mnist")
    return Dataset(data.train, data.test.head(count), data.classes, data.mean, data.std)


@pytest.mark.parametrize("spec", ["none", "none + none"])
def test_shuffling_is_nothing_to_a_model_without_positions(spec):
    numbers = numbers_of("shuffle(ratio=0.5)", trained_like(spec), few_digits())
    assert numbers["consistency"] == 1 and numbers["difference_relative"] < 1e-5
    assert numbers["consistent_and_right"] == numbers["accuracy"]


def test_shuffled_patches_that_bring_their_positions_change_nothing_and_those_that_do_not_do():
    model, data = trained_like("learned"), few_digits()
    follow, stay = (numbers_of(f"shuffle(ratio=0.5, positions='{x}')", model, data) for x in ("follow", "stay"))
    assert follow["consistency"] == 1 and follow["difference_relative"] < 1e-5
    assert stay["difference_relative"] > 1e-3 and 0.4 < stay["shuffled"] <= 0.5


def test_differences_are_squared_unsquared_and_relative():
    model, data = trained_like("learned"), few_digits(3)
    moved = []
    features = model.forward_features
    model.forward_features = lambda images, positions=None: moved.append(features(images, positions)) or moved[-1]
    numbers = numbers_of("shuffle(ratio=1.0)", model, data)
    usual, shuffled = (x.double() for x in moved)
    lengths = [(a - b).norm().item() for a, b in zip(usual, shuffled, strict=True)]
    assert numbers["difference"] == pytest.approx(sum(x * x for x in lengths) / 3)
    assert numbers["difference_unsquared"] == pytest.approx(sum(lengths) / 3)
    expected = sum(x / a.norm().item() for x, a in zip(lengths, usual, strict=True)) / 3
    assert numbers["difference_relative"] == pytest.approx(expected)


def test_the_divergence_is_that_of_probabilities_from_those_of_the_whole_picture():
    model, data = trained_like("learned"), few_digits(4)
    said = []
    model.head.register_forward_hook(lambda *call: said.append(call[2].double().softmax(1).tolist()))
    stay, follow = (numbers_of(f"shuffle(ratio=1.0, positions='{x}')", model, data) for x in ("stay", "follow"))
    whole, shuffled = said[:2]
    pairs = [(p, q) for row in zip(whole, shuffled, strict=True) for p, q in zip(*row, strict=True)]
    assert stay["divergence"] == pytest.approx(sum(p * math.log(p / q) for p, q in pairs) / 4)
    assert stay["divergence"] > 0.001 and abs(follow["divergence"]) < 1e-9


def test_only_a_model_with_an_unknown_vector_can_be_told():
    told = "shuffle(ratio=0.5, positions='told', grid={})"
    assert numbers_of(told.format("None"), trained_like("learned"), few_digits()) == {}
    model = trained_like("learned + mjp", "minimal(patch=2)")
    for grid in ("None", "(7, 2)"):
        assert numbers_of(told.format(grid), model, few_digits())["difference"] > 0
    hidden = []
    features = model.forward_features
    model.forward_features = lambda images, positions=None: hidden.append(positions) or features(images, positions)
    numbers_of(told.format("(7, 2)"), model, few_digits(2))
    with pytest.raises(InputError, match="4x4 grid do not consist of whole patches of a 14x14 grid"):
        numbers_of(told.format("(4, 4)"), model, few_digits(2))
    blocks = hidden[1].known.unflatten(1, (7, 2, 2, 7))
    assert (blocks == blocks[:, :, :1, :, :1]).all() and not blocks.all()


def right(model, data, images, positions=None):
    """The share of right answers on pictures of bytes, without an evaluation."""
    with torch.no_grad():
        answers = model(data.normalize(images), positions).argmax(1)
    return (answers == data.test.labels).double().mean().item()


def test_each_option_of_resolution_evaluates_the_model_it_describes():
    model, data = trained_like("learned + rope"), few_digits(300)
    images, beyond = resize(data.test.images, (40, 20)), Positions.from_grid((10, 5))
    scaled = deepcopy(model)
    scaled.encoding = ntk_scaled(scaled.encoding, 10 / 7)
    expected = {
        "coordinates='fit'": right(model, data, images),
        "coordinates='beyond'": right(model, data, images, beyond),
        "coordinates='ntk'": right(scaled, data, images, beyond),
        "tables='bicubic-antialias'": right(model.resized((10, 5), mode="bicubic-antialias"), data, images),
        "tables='area-norm', coordinates='beyond'": right(
            model.resized((10, 5), mode="area-norm"), data, images, beyond
        ),
    }
    found = {
        options: numbers_of(f"resolution(size=(40, 20), {options})", model, data)["accuracy"] for options in expected
    }
    assert found == expected and len(set(found.values())) >= 4, "and they differ"


def test_tables_resized_by_plain_bicubic_read_as_a_fitted_grid_does():
    model, data = trained_like("learned"), few_digits(20)
    inputs = data.normalize(resize(data.test.images, (40, 20)))
    with torch.no_grad():
        fitted, resized = model(inputs), model.resized((10, 5), mode="bicubic")(inputs)
    assert torch.allclose(fitted, resized, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", ["shuffle(ratio=0.0, positions='follow')", "jigsaw(grid=(1, 1), positions='follow')"])
def test_following_nothing_changes_nothing_on_a_resized_model(spec):
    data = load("mnist(limit=8)")
    data = replace(data, test=data.test.head(8))
    model = MODELS.build("vit(patch=7, dim=16, depth=1, heads=2)", (1, 28, 28), 10, "rope").resized((8, 8))
    larger = data.test.images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    found = numbers_of(spec, model, replace(data, test=replace(data.test, images=larger)))
    assert found.get("consistency", found.get("agreement")) == 1 and found.get("difference", 0) == 0


def test_a_model_without_tokens_has_nothing_that_could_follow():
    data = load("mnist(limit=8)")
    data = replace(data, test=data.test.head(8))
    model = MODELS.build("cnn", (1, 28, 28), 10)
    assert numbers_of("shuffle(grid=(4, 4), positions='follow')", model, data) == {}
    with pytest.raises(InputError, match="a seed of"):
        numbers_of("shuffle(grid=(4, 4), seed=99999999999999999999)", model, data)


def few_pictures(count=6):
    data = load("mnist(limit=8)")
    return replace(data, test=data.test.head(count))


def a_model(encoding, spec="vit(patch=4, dim=16, depth=2, heads=2, pool='mean', weight_init='xavier')"):
    torch.manual_seed(0)
    return MODELS.build(spec, (1, 28, 28), 10, encoding).double()


class InDouble(Dataset):
    """A data set with float64 inputs, so that rounding errors stay below the tolerances."""

    def normalize(self, images):
        return super().normalize(images).double()


def in_double(data):
    return InDouble(data.train, data.test, data.classes, data.mean, data.std)


@pytest.mark.parametrize("by", [(1, 0), (-2, 3)])
def test_without_positions_tokens_move_with_the_picture(by):
    result = evaluate(f"translation(by={by}, border='wrap')", a_model("none"), in_double(few_pictures()))
    found, tokens = result.numbers, result.curves["tokens"]
    assert found["agreement"] == 1 and found["tokens"] < 1e-12 and found["logits"] < 1e-12 and tokens[1] < 1e-12
    assert found["tokens"] == tokens[2] and list(tokens) == [1, 2]


RELATIVE = [name for name in ENCODINGS if "translation_invariant" in ENCODINGS.describe(name).traits]
assert len(RELATIVE) >= 12, "a trait that no encoding has would leave this test empty"


@pytest.mark.parametrize("encoding", [*RELATIVE, "learned", "sinusoidal", "liere"])
@pytest.mark.parametrize("by", [(0, 1), (-2, 1)])
def test_relative_encodings_say_the_same_of_what_two_crops_share(encoding, by):
    model = a_model(encoding)
    for parameter in model.encoding.parameters():
        torch.nn.init.normal_(parameter)
    found = numbers_of(f"translation(by={by}, border='crop')", model, in_double(few_pictures()))
    assert (found["logits"] < 1e-10) == (encoding in RELATIVE) and found["tokens"] > 0


def test_a_pair_that_only_one_sees_counts_as_an_error_and_one_that_none_sees_does_not():
    hidden = -torch.inf
    expected = torch.tensor([[3.0, 4.0, hidden, hidden]]).expand(3, 4)
    found = torch.tensor([[3.0, 4.0, hidden, hidden], [3.0, hidden, hidden, hidden], [3.0, 4.5, 7.0, hidden]])
    usual = math.sqrt((9 + 16) / 2)
    errors = [0, usual / 5, math.hypot(0.5, usual) / 5]
    assert relative_error(found, expected).tolist() == pytest.approx(errors)
    assert relative_error(torch.tensor([[math.nan]]), torch.ones(1, 1)).isnan()


@pytest.mark.parametrize("border", ["zeros", "wrap", "crop"])
def test_heads_that_mask_some_pairs_give_finite_numbers(border):
    found = numbers_of(f"translation(by=(0, 1), border='{border}')", a_model("lookhere"), in_double(few_pictures()))
    assert all(map(math.isfinite, found.values()))


def test_a_constant_classifier_is_exposed():
    class Constant(Classifier):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1, 10)
            torch.nn.init.zeros_(self.head.weight)

        def forward_features(self, images, positions=None):
            return images.new_zeros(len(images), 1)

    data, model = load("mnist(limit=8)"), Constant()
    shifted = numbers_of("shifts(most=3, draws=1)", model, data)
    chance = numbers_of("accuracy", model, data)["accuracy"]
    assert shifted == {"consistency": 1.0, "accuracy": chance, "worst": chance} and chance < 0.15
    shuffled = numbers_of("shuffle(grid=(7, 7))", model, data)
    assert shuffled["consistency"] == 1 and shuffled["consistent_and_right"] == chance


def seen_by(model, spec, data):
    """The inputs and positions of the first batch that an evaluation shows to a model."""
    seen = []
    features = model.forward_features
    model.forward_features = lambda images, positions=None: (
        seen.append((images, positions)) or features(images, positions)
    )
    numbers_of(spec, model, data)
    return seen[0]


@pytest.mark.parametrize("size", [(48, 32), (20, 36), (28, 56), (28, 28), (16, 12)])
@pytest.mark.parametrize("coordinates", ["", ", coordinates='beyond'", ", coordinates='ntk'"])
def test_the_patches_of_a_padded_image_keep_their_trained_positions(size, coordinates):
    data = few_digits(3)
    shown, pos = seen_by(trained_like("rope"), f"resolution({size=}, protocol='pad'{coordinates})", data)
    assert shown.shape[2:] == size and pos.grid == (size[0] // 4, size[1] // 4)
    own = patchify(data.normalize(data.test.images), (4, 4)).unflatten(1, (7, 7))
    black = data.normalize(torch.zeros(3, 1, 4, 4, dtype=torch.uint8)).flatten(1)
    patches = patchify(shown, (4, 4))  # (3, N, 16)
    for patch, (row, column) in zip(patches.unbind(1), pos.coords[0].long().tolist(), strict=True):
        inside = 0 <= row < 7 and 0 <= column < 7
        assert torch.equal(patch, own[:, row, column] if inside else black), (row, column)
    first = [int((28 - side) / 8) for side in size]  # of an odd number of patches the larger half comes last
    assert pos.coords[0, 0].tolist() == first and torch.equal(
        pos.coords - pos.coords[:, :1], Positions.from_grid(pos.grid).coords
    )


def test_a_padded_picture_can_be_fitted_as_a_whole_and_resized_ones_are_stretched():
    model, data = trained_like("learned"), few_digits(3)
    fitted = Positions.from_grid((14, 10), train_grid=(7, 7)).coords
    assert torch.equal(
        seen_by(model, "resolution(size=(56, 40), protocol='pad', coordinates='fit')", data)[1].coords, fitted
    )
    shown, pos = seen_by(trained_like("learned"), "resolution(size=(56, 40))", data)
    assert torch.equal(shown, data.normalize(resize(data.test.images, (56, 40)))) and torch.equal(pos.coords, fitted)


def test_a_curve_of_sizes_is_made_of_single_sizes_and_its_area_is_a_mean():
    model, data = trained_like("learned"), few_pictures(60)
    found = evaluate("resolutions(factors=(0.5, 1.0, 2.0))", model, data)
    single = [
        numbers_of(f"resolution(size=({side}, {side}))", model, data)["accuracy"]
        for side in (16, 28, 56)  # seven patches of 4: half of them, to the nearest, are four
    ]
    assert found.curves == {"accuracy": dict(zip((0.5, 1.0, 2.0), single, strict=True))}
    low, high = math.log(28 / 16), math.log(56 / 28)
    area = (low * (single[0] + single[1]) / 2 + high * (single[1] + single[2]) / 2) / (low + high)
    assert found.numbers == {"area": pytest.approx(area), "worst": min(single)}


def test_halves_of_a_patch_go_up_and_a_grid_has_one_patch_at_least():
    assert [nearest((side, side), 0.5)[0] for side in (5, 6, 7, 8, 9)] == [3, 3, 4, 4, 5]
    assert nearest((7, 3), 0.01) == (1, 1) and nearest((7, 10), 0.35) == (2, 4) and nearest((10, 50), 0.29) == (3, 15)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resolutions(factors=(1000.0, 1.0))", "above 0, up to 16"),
        ("resolutions(factors=(1.0, 1e400))", "above 0, up to 16"),
        ("resolutions(factors=(0.0, 1.0))", "above 0, up to 16"),
        ("resolutions(factors=(1.0, 1.05))", "the same in whole patches of a grid of 7x7; give some further apart"),
        ("resolution(size=(28, 40000))", "no more than 16 times"),
        ("resolution(size=(0, 28))", "give 1 patch or more"),
        ("resolution(tables='foo')", "cannot resample with mode 'foo'; use bicubic"),
        ("resolution(tables='')", "cannot resample with mode ''; use bicubic"),
    ],
)
def test_a_size_that_cannot_be_is_refused_at_once(spec, message):
    with pytest.raises(InputError, match=message):
        numbers_of(spec, trained_like("none"), few_digits(3))


def test_a_tuned_copy_learns_the_new_size_and_the_model_stays():
    model, data = (
        a_model("learned", "vit(patch=7, dim=16, depth=1, heads=2, weight_init='xavier')").float(),
        few_pictures(200),
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = replace(data, train=data.test)
    usual = numbers_of("resolution(size=(42, 35), protocol='pad')", model, data)["accuracy"]
    spec = "resolution(size=(42, 35), protocol='pad', tables='bicubic', tune=150, rate=0.01)"
    tuned = numbers_of(spec, model, data)["accuracy"]
    assert tuned > usual + 0.2 and tuned == numbers_of(spec, model, data)["accuracy"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_work_and_memory_are_counted():
    data = few_pictures()
    found = {
        encoding: numbers_of("cost(batch=4, steps=1)", a_model(encoding).float(), data)
        for encoding in ("none", "learned", "relative")
    }
    # of a ViT on 7×7 patches without CLS, in order: patches, q k v and the output, attention, feed-forward, head
    expected = 49 * 16 * 16 + 2 * (49 * 4 * 16 * 16 + 2 * 49 * 49 * 16 + 49 * 8 * 16 * 16) + 16 * 10
    assert found["none"]["multiply_adds"] == found["learned"]["multiply_adds"] == expected
    assert found["relative"]["peak_megabytes"] > found["none"]["peak_megabytes"] > 4 * 49 * 16 * 4 * 10 / 1e6
    assert all(numbers["step_ratio"] > 0 for numbers in found.values())


def test_the_peak_of_memory_is_that_of_tensors_alive_at_the_same_time():
    class Wasteful(Classifier):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(784, 10)

        def forward_with_penalty(self, images, positions=None):
            for _ in range(3):
                images = images + (torch.zeros(250_000) + 1).sum()  # two million bytes, freed before the next two
            return self.head(images.flatten(1)), 0.0

        def forward(self, images, positions=None):
            return self.forward_with_penalty(images)[0]

    model, data = Wasteful(), few_pictures()
    taken = numbers_of("cost(batch=4, steps=1)", model, data)["peak_megabytes"]
    weights = 4 * 7850 / 1e6
    assert 2 + weights < taken < 2.2 + 2 * weights
    assert "step_ratio" not in numbers_of("cost(batch=4, steps=1)", model, data)


def test_a_curve_of_moves_is_made_of_single_moves():
    model, data = trained_like("learned"), few_pictures(50)
    curves = evaluate("translations(steps=(4, 1), limit=None)", model, data).curves
    for step in (1, 4):
        one = numbers_of(f"translation(by=(0, {step}), unit='pixels')", model, data)
        assert curves["accuracy"][step] == one["accuracy"] and curves["agreement"][step] == one["agreement"]
    assert [*curves["accuracy"]] == [*curves["agreement"]] == [1, 4]


def test_what_a_context_keeps_is_not_taken_over_by_one_with_other_data_or_another_model():
    ctx = EvalContext(trained_like("learned"), few_pictures(40))
    assert len(ctx.predict()) == 40
    assert len(replace(ctx, data=replace(ctx.data, test=ctx.data.test.head(10))).predict()) == 10
    assert not torch.equal(replace(ctx, model=trained_like("none")).predict(), ctx.predict())


LIMITED = ["resolution(size=(28, 28), limit={})", "resolutions(factors=(1.0, 0.5), limit={})", "translation(limit={})"]
LIMITED += ["translations(steps=(1,), limit={})", "corruption(kinds=('contrast',), severities=(1,), limit={})"]


@pytest.mark.parametrize("spec", LIMITED)
def test_so_many_images_are_drawn_from_all_of_them_and_kept_in_order(spec):
    data = few_digits(300)
    data = replace(data, test=data.test.subset(data.test.labels.argsort()))  # class after class, as folders are
    few = replace(data, test=data.test.subset(seeded_permutation(300, seed=0)[:40].sort().values))
    assert len(few.test.labels.unique()) > 5, "of all classes"
    model = trained_like("learned")
    every, none_left_out = (evaluate(spec.format(limit), model, few) for limit in (None, 40))
    found = evaluate(spec.format(40), model, data)
    drawn = {name for name in found.numbers if not spec.startswith("translation(") or name in ("tokens", "logits")}
    assert none_left_out == every and found.curves == every.curves
    assert all(found.numbers[name] == every.numbers[name] for name in drawn)


@pytest.mark.parametrize("limit", [0, -1])
@pytest.mark.parametrize("spec", [*LIMITED, "outliers(against='left_right(count=96)', limit={})"])
def test_a_limit_below_one_is_refused(spec, limit):
    with pytest.raises(InputError, match=f"limit={limit}; take 1 image or more, or limit=None for all"):
        numbers_of(spec.format(limit), trained_like("learned"), few_digits(3))


def test_a_sample_of_the_data_is_drawn_once_so_that_evaluations_share_its_predictions():
    data, model = few_digits(60), trained_like("learned")
    ctx = EvalContext(model, data)
    assert ctx.sample(20) is ctx.sample(20) is not ctx.sample(20, seed=1) and ctx.sample(60) is ctx.sample(None) is ctx
    passes = []
    model.head.register_forward_hook(lambda *_: passes.append(1))
    EVALUATIONS.build("translations(steps=(1, 2), limit=20)", ctx)
    assert len(passes) == 3, "two moves, and once before them"
    EVALUATIONS.build("corruption(kinds=('contrast',), severities=(1,), limit=20)", ctx)
    assert len(passes) == 4
