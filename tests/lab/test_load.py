"""``vitpos.load`` of a trained cell of a run."""

import pytest
import torch

import vitpos
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
