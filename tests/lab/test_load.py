"""``vitpos.load`` of a trained cell of a run."""

import shutil

import pytest
import torch

import vitpos
from tests.lab import foreign
from vitpos import InputError
from vitpos.lab.cell_models import load_model

TEXT = """
data = "stripes(count=40)"
model = "vit(patch=(2, 4), dim=8, depth=1, heads=2)"
encoding = "learned"
evaluations = ["accuracy"]
train.epochs = 1
"""


def test_the_folder_of_a_cell_gives_its_trained_model(tmp_path):
    (tmp_path / "one.toml").write_text(TEXT)
    vitpos.run(str(tmp_path / "one.toml"), tmp_path / "out", workers=1)
    (folder,) = (tmp_path / "out" / "cells").iterdir()
    model, trained = vitpos.load(folder), load_model(vitpos.CellFolder(folder))
    assert not model.training
    assert all(torch.equal(tensor, trained.state_dict()[name]) for name, tensor in model.state_dict().items())
    with pytest.raises(InputError, match="leave out encoding="):
        vitpos.load(folder, encoding="rope")


def test_a_weights_file_is_loaded_without_its_data(tmp_path):
    images = foreign.image_folder(tmp_path / "images", ["a", "b"])
    (images / "val").rename(images / "train")
    foreign.image_folder(images, ["a", "b"], seed=1)
    text = TEXT.replace("stripes(count=40)", f"image_folder(path='{images}', size=(4, 8))")
    (tmp_path / "one.toml").write_text(text)
    results = vitpos.run(str(tmp_path / "one.toml"), tmp_path / "out", workers=1)
    cell = results.trained[0][1].path
    converted, _ = vitpos.convert(cell, grid=(4, 4), out=tmp_path / "converted.safetensors")
    shutil.rmtree(images)
    loaded = vitpos.load(tmp_path / "converted.safetensors")
    pictures = torch.randn(2, 3, 8, 16)
    with torch.no_grad():
        assert torch.equal(loaded.cpu()(pictures), converted.cpu()(pictures))
    with pytest.raises(InputError, match="--trust"):
        vitpos.evaluate(tmp_path / "converted.safetensors", evaluations="accuracy")
