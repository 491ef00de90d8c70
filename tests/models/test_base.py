"""What all models share: refusal of wrong options and inputs; encodings as classes, factories and instances."""

from functools import partial

import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.learned import Learned
from vitpos.errors import InputError
from vitpos.models import MODELS
from vitpos.models.cnn import CNN
from vitpos.models.swin import Swin
from vitpos.models.vit import ViT
from vitpos.positions import Positions


@pytest.mark.parametrize(
    ("spec", "encoding", "message"),
    [
        ("vit(dim=30, heads=4)", "none", "dim=30 is not divisible by heads=4; choose a multiple"),
        ("vit(heads=0)", "none", "heads=0; choose 1 or more"),
        ("vit(depth=-1)", "none", "depth=-1; choose 1 or more"),
        ("vit(registers=-1)", "none", "registers=-1.* 0 registers or more"),
        ("vit(drop_path=1.5)", "none", "drop_path from 0"),
        ("minimal(dim=0)", "none", "dim=0; choose 1 or more"),
        ("minimal(hidden_dim=0)", "none", "hidden_dim=0; choose 1 or more"),
        ("vit(patch=5)", "none", "cannot be cut into patches of 5x5"),
        ("cnn", "learned", "model 'cnn' has no tokens .* 'learned'; set it to 'none'"),
        ("resnet", "rope", "model 'resnet' has no tokens .* 'rope'; set it to 'none'"),
        ("resnet(depths=())", "none", r"depths=\(\)"),
        ("resnet(width=0)", "none", "width=0"),
        ("swin(depths=(2, 2))", "none", r"depths=\(2, 2\), heads=\(3, 6, 12, 24\)"),
        ("swin(window=(7, 0))", "none", r"window=\(7, 0\)"),
        ("swin(heads=(3, 6, 12, 25))", "none", "width 768 of stage 4 is not divisible by 25 heads; choose another dim"),
        ("swin(drop_path=1.0)", "none", "drop_path from 0"),
        ("swin(patch=5)", "none", "cannot be cut into patches of 5x5"),
        ("swin(window_encoding='rpoe')", "none", "no encoding 'rpoe'; did you mean 'rope'"),
        ("swin(window_encoding='learned + mjp')", "none", "of which 'mjp' acts on the whole grid; .* 'learned . mjp'"),
    ],
)
def test_wrong_options_give_the_value_and_the_remedy(spec, encoding, message):
    with pytest.raises(ValueError, match=message):
        MODELS.build(spec, (1, 28, 28), 10, encoding)


def test_positions_that_do_not_fit_the_patches_are_refused():
    model = MODELS.build("minimal", (1, 28, 28), 10, "none")
    with pytest.raises(ValueError, match="4 positions for 1 images do not fit 2 images of 49 patches"):
        model(torch.randn(2, 1, 28, 28), Positions.from_grid((2, 2)))


@pytest.mark.parametrize(
    ("shape", "message"), [((2, 3, 8, 8), "(2, 3, 8, 8)"), ((1, 8, 8), "(1, 8, 8)"), ((2, 1, 7, 8), "cannot be cut")]
)
def test_images_that_do_not_fit_are_refused_in_words(shape, message):
    with pytest.raises(ValueError) as error:
        MODELS.build("vit(dim=16, depth=1, heads=2)", (1, 8, 8), 4)(torch.randn(shape))
    assert message in str(error.value)


GEOMETRY = Geometry(dim=16, heads=2, depth=1, grid=(2, 3))


IMAGE = (1, 8, 12)


class Nothing(PositionEncoding):
    """Does nothing."""

    traits = ("permutation_invariant", "grid_shape_invariant", "translation_invariant")

    def __init__(self, geometry, *, scale: float = 1.0):
        super().__init__()


def test_models_take_classes_factories_and_instances():
    for encoding in (Learned, partial(Learned, std=1.0), lambda geometry: Learned(geometry, std=1.0)):
        assert isinstance(ViT(IMAGE, 3, encoding, patch=4, dim=16, depth=1, heads=2).encoding, Learned)
    own = Learned(GEOMETRY)
    assert ViT(IMAGE, 3, own, patch=4, dim=16, depth=1, heads=2).encoding is own
    assert isinstance(MODELS.build(CNN, IMAGE, 3), CNN)
    CNN(IMAGE, 3, Nothing)
    for wrong in (Learned, own):
        with pytest.raises(InputError, match="'cnn' has no tokens and cannot use encoding"):
            CNN(IMAGE, 3, wrong)
    with pytest.raises(InputError, match="'RoPE' acts inside windows"):
        Swin(IMAGE, 3, ENCODINGS["rope"], patch=2, dim=16, depths=(1,), heads=(2,))
    for wrong in (3, None, ["learned"]):
        with pytest.raises(InputError, match=r"encoding.* give a class or a spec"):
            ViT(IMAGE, 3, wrong, patch=4, dim=16, depth=1, heads=2)


def test_one_seed_gives_a_class_the_weights_of_its_name():
    torch.manual_seed(0)
    by_class = ViT(IMAGE, 3, Learned, patch=4, dim=16, depth=1, heads=2)
    torch.manual_seed(0)
    by_name = ViT(IMAGE, 3, "learned", patch=4, dim=16, depth=1, heads=2)
    assert all(torch.equal(a, b) for a, b in zip(by_class.parameters(), by_name.parameters(), strict=True))
