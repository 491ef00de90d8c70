import pytest
import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.errors import InputError, Notice
from vitpos.patches import patchify
from vitpos.positions import Positions
from vitpos.training import AUGMENTATIONS
from vitpos.training.recipe import Recipe

LABELS = torch.tensor([0, 1])


def test_jigsaw_permutes_pixels_as_mjp_permutes_tokens():
    images, tokens = torch.randn(2, 3, 28, 42), []
    for per in ("batch", "image"):
        torch.manual_seed(3)
        moved = AUGMENTATIONS.build(f"jigsaw(grid=(14, 7), mask_ratio=0.5, mask_per={per!r})").on_inputs(
            images, LABELS
        )[0]
        torch.manual_seed(3)
        x = patchify(images, (2, 6))
        tokens, _ = ENCODINGS.build(
            f"mjp(mask_ratio=0.5, mask_per={per!r}, unknown=False, localization=None)", Geometry(36, 1, 1, (14, 7))
        ).augment(x, Positions.from_grid((14, 7)))
        assert torch.equal(patchify(moved, (2, 6)), tokens) and not torch.equal(moved, images)


def test_a_jigsaw_of_one_patch_is_a_warning():
    with pytest.warns(Notice, match="masks 1 of the 64 cells of a 8x8 grid and shuffles nothing; take 0.0313 or more"):
        AUGMENTATIONS.build("jigsaw(grid=(8, 8), mask_ratio=0.03)")


def test_patch_pixel_shuffle_keeps_the_pixels_of_a_patch_and_uses_one_permutation():
    images = torch.arange(2 * 1 * 4 * 6.0).view(2, 1, 4, 6)
    torch.manual_seed(0)
    moved = AUGMENTATIONS.build("patch_pixel_shuffle(grid=(2, 2))").on_inputs(images, LABELS)[0]
    before, after = patchify(images, (2, 3)), patchify(moved, (2, 3))
    assert {frozenset(p.tolist()) for p in after[0]} == {frozenset(p.tolist()) for p in before[0]}
    assert torch.equal(after[1] - after[0], torch.full_like(after[0], 24.0))
    inside = [(p - p.min()).tolist() for p in after[0]]
    assert all(x == inside[0] for x in inside) and inside[0] != sorted(inside[0])


def test_specs_are_made_canonical_and_a_wrong_name_gives_a_suggestion():
    assert Recipe(augment="jigsaw( mask_ratio = .5 )").augment == "jigsaw(mask_ratio=0.5)"
    both = AUGMENTATIONS.build("jigsaw(grid=(2, 2), mask_ratio=1.0) + patch_pixel_shuffle(grid=(2, 2))")
    assert both.on_inputs(torch.randn(1, 1, 4, 4), LABELS)[0].shape == (1, 1, 4, 4)
    with pytest.raises(InputError, match="did you mean 'jigsaw'"):
        Recipe(augment="jigsw")
