"""What a hook of an encoding returns is refused in one line if its shape is wrong."""

import pytest
import torch

from tests.testing.broken import Slope
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT
from vitpos.positions import Positions


def encoding_with(hook, value):
    """Returns a class ``Mine`` whose ``hook`` returns ``value(*arguments)``."""

    class Mine(PositionEncoding):
        def __init__(self, geometry):
            super().__init__()

    def call(self, *arguments):
        return value(*arguments)

    return type("Mine", (Mine,), {hook: call})


def vit(encoding):
    return ViT((1, 8, 12), 3, encoding, patch=4, dim=24, depth=2, heads=2, registers=1).eval()  # N = 6, T = 8


def zeros(*shape):
    return lambda *arguments: torch.zeros(shape)


BIAS = r"\(4 or 1, 2 or 1, 6, 6\) or \(…, 8, 8\)"


@pytest.mark.parametrize(
    ("hook", "value", "message"),
    [
        ("bias", zeros(3, 3), rf"bias returned \(3, 3\), expected {BIAS}"),
        ("bias", zeros(6, 6), rf"bias returned \(6, 6\), expected {BIAS}"),
        ("bias", zeros(1, 2, 20, 20), rf"bias returned \(1, 2, 20, 20\), expected {BIAS}"),
        ("bias", zeros(1, 3, 6, 6), rf"bias returned \(1, 3, 6, 6\), expected {BIAS}"),
        ("bias", zeros(1, 1, 7, 7), rf"bias returned \(1, 1, 7, 7\), expected {BIAS}"),
        ("token_bias", zeros(1, 2, 8, 8), r"token_bias returned \(1, 2, 8, 8\), expected \(4 or 1, 2 or 1, 6, 6\)"),
        ("vectors", zeros(1, 6, 5), r"vectors returned \(1, 6, 5\), expected \(4 or 1, 6, 24\)"),
        ("vectors", zeros(24), r"vectors returned \(24,\), expected \(4 or 1, 6, 24\)"),
        ("update", zeros(1, 6, 24), r"update returned \(1, 6, 24\), expected \(4, 6, 24\)"),
        ("update", lambda *arguments: None, r"update returned None, expected \(4, 6, 24\)"),
        ("rotate", lambda q, k, pos, layer: q, r"rotate returned \(4, 2, 6, 12\), expected two values"),
        ("rotate", lambda q, k, pos, layer: (q[:1], k), r"rotate returned \(1, 2, 6, 12\), expected \(4, 2, 6, any\)"),
        (
            "rotate",
            lambda q, k, pos, layer: (q, k[..., :4]),
            r"rotate returned \(4, 2, 6, 4\), expected \(4, 2, 6, 12\)",
        ),
        ("prefix_vectors", zeros(24), r"prefix_vectors returned \(24,\), expected \(2, 24\)"),
        ("augment", lambda x, pos: x, r"augment returned \(4, 6, 24\), expected two values"),
        ("augment", lambda x, pos: (x, x), r"augment returned tokens and \(4, 6, 24\), expected tokens and Positions"),
        ("augment", lambda x, pos: (x[:, 1:], pos), r"augment returned \(4, 5, 24\), expected \(4, 6, 24\)"),
        ("mix_weights", zeros(1, 2, 6, 6), r"mix_weights returned \(1, 2, 6, 6\), expected \(4, 2, 6, 6\)"),
        ("added_values", zeros(4, 2, 8, 12), r"added_values returned \(4, 2, 8, 12\), expected \(4, 2, 6, 12\)"),
    ],
)
def test_a_wrong_shape_is_refused_with_the_encoding_the_hook_and_its_file(hook, value, message):
    broken, images = encoding_with(hook, value), torch.zeros(4, 1, 8, 12)
    expected = rf"^encoding 'Mine': {message} \(.*test_hooks.py, line \d+\)$"
    for encoding in (broken, lambda geometry: Slope(geometry) + broken(geometry)):
        with pytest.raises(InputError, match=expected):
            vit(encoding)(images)


@pytest.mark.parametrize(
    ("hook", "value"),
    [
        ("bias", zeros(1, 1, 6, 6)),
        ("token_bias", zeros(1, 1, 6, 6)),
        ("vectors", zeros(1, 6, 24)),
        ("update", lambda x, pos, layer: x.float()),
        ("rotate", lambda q, k, pos, layer: (q.float(), k.float())),
        ("rotate", lambda q, k, pos, layer: (q, k.float())),
        ("prefix_vectors", zeros(2, 24)),
        ("augment", lambda x, pos: (x.float(), pos)),
        ("mix_weights", lambda weights, pos, layer: weights.float()),
        ("added_values", zeros(4, 2, 6, 12)),
    ],
)
def test_another_dtype_is_refused_except_under_autocast(hook, value):
    model, images = vit(encoding_with(hook, value)), torch.zeros(4, 1, 8, 12)
    expected = (
        rf"^encoding 'Mine': {hook} returned torch.float32, expected torch.float64, .* \(.*test_hooks.py, line \d+\)$"
    )
    with pytest.raises(InputError, match=expected):
        model.double()(images.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert model.float()(images).isfinite().all()


def test_fused_logits_of_a_wrong_shape_are_refused():
    class Fused(Slope):
        def fused_logits(self, q, k, pos, layer):
            return torch.zeros(4, 2, 6, 6)

    with pytest.raises(InputError, match=r"'Fused': fused_logits returned \(4, 2, 6, 6\), expected \(4, 2, 8, 8\)"):
        vit(Fused)(torch.zeros(4, 1, 8, 12))


def test_an_unknown_vector_of_another_width_is_refused():
    broken, hidden = encoding_with("unknown_vector", zeros(3)), torch.ones(1, 6, dtype=torch.bool)
    with pytest.raises(InputError, match=r"unknown_vector returned \(3,\), expected \(24,\)"):
        vit(broken)(torch.zeros(4, 1, 8, 12), Positions.from_grid((2, 3)).hide(hidden))


def test_a_bias_for_the_training_grid_alone_is_refused_on_other_grids():
    model = vit(encoding_with("bias", zeros(1, 2, 6, 6)))
    assert model(torch.zeros(4, 1, 8, 12)).shape == (4, 3)
    for size, count in (((16, 12), 12), ((4, 4), 1)):
        with pytest.raises(InputError, match=rf"bias returned \(1, 2, 6, 6\), expected .*, {count}, {count}\) or"):
            model(torch.zeros(4, 1, *size))


def test_a_bias_inside_windows_is_checked_too():
    model = Swin((1, 8, 8), 3, patch=2, dim=8, depths=(2,), heads=(2,), window=2)
    model.stages[0].encoding = encoding_with("bias", zeros(1, 2, 16, 16))(None)
    with pytest.raises(InputError, match=r"bias returned \(1, 2, 16, 16\), expected \(12 or 1, 2 or 1, 4, 4\) \("):
        model(torch.zeros(3, 1, 8, 8))


@pytest.mark.parametrize("shape", [(1, 1, 6, 6), (4, 1, 6, 6), (1, 2, 8, 8), (4, 2, 8, 8)])
def test_every_documented_shape_of_a_bias_is_accepted(shape):
    model = vit(encoding_with("bias", zeros(*shape)))
    assert torch.equal(model(torch.ones(4, 1, 8, 12)), vit_with_weights_of(model)(torch.ones(4, 1, 8, 12)))


def vit_with_weights_of(model):
    plain = vit("none")
    plain.load_state_dict(model.state_dict())
    return plain


class Forgets(PositionEncoding):
    def __init__(self, geometry):
        self.slope = 0.5


class BiasOfTwo(Slope):
    def bias(self, q, k):
        return None


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (Forgets, r"'Forgets' is not initialized as a torch module; call super\(\).__init__\(\) first"),
        (BiasOfTwo, r"'BiasOfTwo': bias .*; define bias\(self, q, k, pos, layer\)"),
        (encoding_with("fused_logits", None), "fused_logits has no effect without bias or rotate"),
        (encoding_with("rotate_prefix", None), "rotate_prefix has no effect without rotate"),
    ],
)
def test_mistakes_in_a_class_are_refused_when_a_model_is_built(encoding, message):
    for one in (encoding, lambda geometry: Slope(geometry) + encoding(geometry)):
        with pytest.raises(InputError, match=rf"^encoding .*{message}.* \(.*test_hooks.py, line \d+\)$"):
            vit(one)


def test_a_rotation_that_would_crop_prefix_tokens_is_refused():
    narrow = encoding_with("rotate", lambda q, k, pos, layer: (q[..., :4], k[..., :4]))
    with pytest.raises(InputError, match="'Mine': rotate narrows patches to 4 channels, but prefix tokens have 12"):
        vit(narrow)(torch.zeros(4, 1, 8, 12))
