import numpy as np
import pytest
import torch

from tests.data.mask_folder_files import save_mask_folder
from vitpos.data import SEGMENTATION_SETS
from vitpos.data.segmentation_sets import IGNORE_INDEX
from vitpos.errors import InputError, RunError


@pytest.fixture
def columns(tmp_path):
    """Images of 8×12 whose patches of 4×4 have one of three gray levels, which is their class."""
    classes = np.random.default_rng(0).integers(0, 3, (50, 2, 3))
    wide = classes.repeat(4, 1).repeat(4, 2)
    return tmp_path, wide * 100, wide


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 24, 40)])
def test_masks_of_digit_scenes_cover_the_digits(shape):
    spec = "digit_scenes(count=80, grid=(2, 2), filled=3)"
    made, again, other = (
        SEGMENTATION_SETS.build(s, shape) for s in (spec, spec, spec.replace("count", "seed=1, count"))
    )
    assert made.train.images.shape == (80, *shape) and made.test.masks.shape == (20, *shape[1:]) and made.classes == 11
    assert torch.equal(made.train.images, again.train.images) and torch.equal(made.test.masks, again.test.masks)
    assert not torch.equal(made.train.images, other.train.images)
    for scenes in (made.train, made.test):
        inked = (scenes.images >= 64).any(1)
        assert scenes.masks.max() <= 10 and (scenes.masks[inked] > 0).all()
        quarters = [half for row in scenes.masks.chunk(2, 1) for half in row.chunk(2, 2)]
        full = torch.stack([(q > 0).flatten(1).any(1) for q in quarters])
        assert (full.sum(0) == 3).all() and full.double().mean(1).min() > 0.5, "three random cells of four"
        for quarter in quarters:
            assert all(len(scene[scene > 0].unique()) <= 1 for scene in quarter)
    train, test = ({row.numpy().tobytes() for row in half.images} for half in (made.train, made.test))
    assert not train & test


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mask_folder", "is not a folder"),
        ("mask_folder(path={empty!r})", "found 0 pairs"),
        ("mask_folder(path={sizes!r})", "8x12 pixels and its image 8x8; give them the same size"),
        ("mask_folder(path={rgb!r})", "of mode RGB; save it as a palette or grayscale PNG"),
        ("mask_folder(path={ignored!r})", "all pixels of the masks in .* are 255"),
        ("digit_scenes(grid=(4, 4))", "cells of 10 pixels or more"),
        ("digit_scenes(grid=(2, 2), filled=5)", "fill 1 or more"),
        ("digit_scenes(count=1)", "segmentation .digit_scenes. got count=1, seed=0; take 8 images or more"),
        ("digit_scene", "did you mean 'digit_scenes'"),
    ],
)
def test_a_wrong_segmentation_set_gives_the_value_and_the_remedy(tmp_path, spec, message):
    names = {name: str(tmp_path / name) for name in ("empty", "sizes", "rgb", "ignored")}
    (tmp_path / "empty" / "images").mkdir(parents=True)
    save_mask_folder(tmp_path / "sizes", np.zeros((5, 8, 8)), np.zeros((5, 8, 12)))
    save_mask_folder(tmp_path / "rgb", np.zeros((5, 8, 8)), np.zeros((5, 8, 8, 3)))
    save_mask_folder(tmp_path / "ignored", np.zeros((5, 8, 8)), np.full((5, 8, 8), 255))
    with pytest.raises(InputError, match=message):
        SEGMENTATION_SETS.build(spec.format(**names), (1, 28, 28))


def test_images_and_masks_of_any_size_are_resized_to_the_shape_of_the_model(columns):
    folder, images, masks = columns
    images[:, :, 0] = 255
    masks[0, 0, 0] = IGNORE_INDEX
    made = SEGMENTATION_SETS.build(
        save_mask_folder(folder, images.repeat(3, 1).repeat(5, 2), masks.repeat(3, 1).repeat(5, 2)), (3, 8, 12)
    )
    kept = torch.arange(50) % 5 != 4
    assert torch.equal(made.train.masks, torch.tensor(masks, dtype=torch.uint8)[kept]) and made.classes == 3
    assert made.test.images.shape == (10, 3, 8, 12) and (made.test.images[..., 0] > 200).all()
    assert len(made.train) == 40 and len(made.train.head(3)) == 3


def test_the_error_for_an_unreadable_mask_names_the_file(columns):
    folder, images, masks = columns
    spec = save_mask_folder(folder, images, masks)
    (folder / "masks" / "03.png").write_bytes(b"not an image")
    with pytest.raises(RunError, match=r"03\.png cannot be read.*replace or delete it"):
        SEGMENTATION_SETS.build(spec, (1, 8, 12))
