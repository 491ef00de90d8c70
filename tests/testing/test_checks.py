"""The public check of encodings finds what is broken and reports it."""

from contextlib import suppress

import pytest
import torch

from tests.testing.broken import (
    ByOrder,
    Caches,
    CachesHeads,
    CachesLayer,
    CachesMean,
    CachesTraining,
    Cropped,
    Device,
    Double,
    DoubleVectors,
    Enumerates,
    FalseTrait,
    Leaks,
    LeaksInUpdate,
    NoEffect,
    Noisy,
    Remembers,
    SeesFromPrefix,
    SeesInUpdate,
    Slope,
    Spins,
    SquareRoot,
    Undeclared,
    Unsaved,
    Unused,
    Waves,
)
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.encodings.learned import Learned
from vitpos.encodings.rope import RoPE
from vitpos.errors import InputError
from vitpos.positions import Positions
from vitpos.testing import EncodingError, check_encoding


@pytest.mark.parametrize(
    ("encoding", "check", "observed"),
    [
        (SquareRoot, "order", "positions are taken from the order of tokens: largest difference"),
        (Cropped, "shapes", "raised RuntimeError: The size of tensor a (12) must match"),
        (Remembers, "state", "a call with other positions depends on the calls before it"),
        (FalseTrait, "traits", "declared 'translation_invariant' (logits of two patches are the same in every crop"),
        (FalseTrait, "traits", "logits of pairs change when both tokens move by the same offset: largest difference"),
        (Undeclared, "traits", "declare 'translation_invariant'"),
        (Double, "dtypes", "it fails with inputs in torch.float32"),
        (Device, "devices", "it fails for inputs on another device"),
        (Leaks, "batches", "an image changes the output of another: largest difference"),
        (SeesInUpdate, "hidden", "hidden positions are used: largest difference"),
        (SeesFromPrefix, "hidden", "hidden positions are used: largest difference"),
        (Enumerates, "counts", "the vector of a token changes when other tokens are left out"),
        (Enumerates, "order", "positions are taken from the order of tokens: largest difference"),
        (DoubleVectors, "dtypes", "it fails with inputs in torch.float32"),
        (LeaksInUpdate, "batches", "an image changes the output of another: largest difference"),
        (ByOrder, "order", "positions are taken from the order of tokens"),
        (Caches, "sharing", "a cache key lacks an option"),
        (CachesLayer, "sharing", "a cache key lacks layer"),
        (CachesTraining, "sharing", "a cache key lacks self.training"),
        (CachesHeads, "sharing", "a cache key lacks q.shape[1]"),
        (CachesMean, "sharing", "a cache key lacks q.shape[1]"),
        (Unused, "gradients", "parameter 'weight' has no useful gradient (none)"),
        (NoEffect, "gradients", "parameter 'weight' has no useful gradient (zero)"),
        (Unsaved, "copies", "register its tensors as buffers"),
        (Noisy, "state", "the same call gives another output"),
    ],
)
def test_a_broken_encoding_is_found(encoding, check, observed):
    with pytest.raises(EncodingError) as error:
        check_encoding(encoding)
    lines = [line for line in str(error.value).splitlines() if line.startswith(f"- {check}: ")]
    assert lines and observed in lines[0], str(error.value)


def test_a_wrong_cache_key_is_not_reported_as_a_trait():
    with pytest.raises(EncodingError) as error:
        check_encoding(CachesLayer)
    assert "- sharing: " in str(error.value) and "traits" not in str(error.value)


@pytest.mark.parametrize("encoding", [Slope, Waves, Spins])
def test_the_model_hides_what_an_encoding_does_not(encoding):
    made, pos, q = encoding(Geometry(32, 2, 2, (3, 4))), Positions.from_grid((3, 4)), torch.randn(1, 2, 12, 16)
    hooks = [
        lambda p: made.vectors(p, 0, q.dtype),
        lambda p: made.bias(q, q, p, 0),
        lambda p: made.rotate(q, q, p, 0)[0],
    ]
    for hook in hooks:  # the encoding itself does the same whether positions are hidden or not
        assert hook(pos) is None or torch.equal(hook(pos), hook(pos.hide(torch.ones(1, 12, dtype=torch.bool))))
    check_encoding(encoding)


def test_the_check_of_hidden_pairs_finds_a_model_that_does_not_hide(monkeypatch):
    monkeypatch.setattr(
        Positions, "known_pairs", lambda pos: torch.ones_like(pos.known[:, None, :, None] & pos.known[:, None, None])
    )
    with pytest.raises(
        EncodingError, match="- hidden_pairs: the logit of a hidden query depends on the position of the key"
    ):
        check_encoding(Slope)


def test_classes_factories_and_specs_pass():
    check_encoding(Slope)
    check_encoding(Slope, slope=2.0)
    check_encoding(lambda geometry: Slope(geometry, slope=0.1))
    check_encoding("learned + rope(base=10)")
    check_encoding("rope", base=10.0)
    check_encoding(Learned, geometry=Geometry(dim=48, heads=3, depth=2, grid=(3, 4)))


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(InputError, match="got 3; give a class, a factory, a spec or an instance"):
        check_encoding(3)
    with pytest.raises(InputError, match="no check 'shape'; did you mean 'shapes'"):
        check_encoding(Slope, skip=["shape"])
    with pytest.raises(InputError, match="makes a int"):
        check_encoding(lambda geometry: 3)


def test_a_made_up_trait_is_refused():
    class MadeUp(Slope):
        traits = ("translation_invariant", "wonderful")

    with pytest.raises(EncodingError, match="declares 'wonderful', which is not a trait"):
        check_encoding(MadeUp)


@pytest.mark.parametrize("encoding", ["learned", Leaks])
def test_random_numbers_of_the_caller_are_left_alone(encoding):
    torch.manual_seed(3)
    with suppress(EncodingError):
        check_encoding(encoding)
    drawn = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(3))


@pytest.mark.parametrize(
    "spec", ["learned(prefix_embed=True)", "rope", "goat", "learned + relative", "rope(register_grid=(1, 2))"]
)
def test_an_instance_is_checked_by_copies(spec):
    made_for = Geometry(48, 4, 3, (5, 7), 3)
    instance = ENCODINGS.build(spec, made_for)
    before = {name: tensor.clone() for name, tensor in instance.state_dict().items()}
    assert check_encoding(instance, geometry=made_for) == ("devices", "traits", "export")
    assert all(torch.equal(tensor, before[name]) for name, tensor in instance.state_dict().items())


def test_the_geometry_of_an_instance_is_its_own_if_it_has_one():
    assert "traits" in check_encoding(RoPE(Geometry(64, 4, 2, (4, 4), 0)))
    with pytest.raises(EncodingError, match="give the one it was made for as geometry="):
        check_encoding(Learned(Geometry(64, 4, 2, (4, 4), 1)))
    with pytest.raises(EncodingError, match="batches: an image changes the output of another"):
        check_encoding(Leaks(None), geometry=Geometry(32, 2, 2, (3, 4), 2))
    with pytest.raises(InputError, match="has its options already; leave out slope"):
        check_encoding(Slope(None), slope=0.2)
    with pytest.raises(InputError, match="2 or more blocks, not 1"):
        check_encoding(RoPE(Geometry(32, 2, 1, (3, 4), 1)))
    assert check_encoding(Slope) == ("export",)


class Keep(Slope):
    """Accepts fractions only."""

    def __init__(self, geometry, *, keep: float = 0.8):
        super().__init__(geometry)
        if not 0 <= keep <= 1:
            raise ValueError(f"keep={keep}")


class Required(Slope):
    """Has an option without a default."""

    def __init__(self, geometry, *, size):
        super().__init__(geometry)
        self.sizes = {"small": 1}[size]


class Misspelled(Slope):
    """Fails inside torch, called by this file."""

    def bias(self, q, k, pos, layer):
        return torch.einsum("ij,jk", q, k)


def test_an_option_is_varied_only_to_values_that_the_class_accepts():
    check_encoding(Keep)


@pytest.mark.parametrize(
    ("encoding", "options", "message"),
    [
        (Required, {}, "encoding 'Required' cannot be built: TypeError: .* missing .* 'size' .*test_checks.py"),
        (Required, {"size": "big"}, r"cannot be built: KeyError: 'big' \(.*test_checks.py, line \d+\)"),
        (RoPE, {"nope": 1}, "cannot be built: TypeError: .* unexpected keyword argument 'nope'"),
        (RoPE, {"base": "x"}, r"cannot be built: TypeError: .*\(.*encodings/\w+.py, line \d+\)"),
        (Slope, {"geometry": (3, 4)}, r"got geometry=\(3, 4\); give Geometry\(dim, heads"),
        (type("NoTraits", (Slope,), {"traits": None}), {}, "traits = None; give a tuple"),
        (type("OneTrait", (Slope,), {"traits": "learnable"}), {}, "traits = 'learnable'; give a tuple"),
    ],
)
def test_an_encoding_that_cannot_be_built_is_refused_in_one_line(encoding, options, message):
    with pytest.raises(InputError, match=message) as error:
        check_encoding(encoding, **options)
    assert "\n" not in str(error.value)


def test_an_error_in_many_checks_is_listed_once_with_the_line_of_the_class():
    with pytest.raises(EncodingError) as error:
        check_encoding(Misspelled)
    _, first, *others = str(error.value).splitlines()
    line = Misspelled.bias.__code__.co_firstlineno + 1
    assert first.startswith("- shapes: raised RuntimeError") and f"test_checks.py, line {line})" in first
    assert "; also in " in first and not any(f"line {line})" in other for other in others)
