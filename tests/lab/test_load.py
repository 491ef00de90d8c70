"""``vitpos.load`` of a trained cell of a run."""

import json
import shutil
import warnings

import pytest
import torch

import vitpos
from tests.lab import foreign
from tests.processes import vitpos as vitpos_command
from vitpos import InputError
from vitpos.lab.cell_models import load_model
from vitpos.registry.plugins import PluginWarning

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
    with pytest.raises(InputError, match=r"images"):  # it is looked for, and gone
        vitpos.evaluate(tmp_path / "converted.safetensors", evaluations="accuracy", trust=True)


PLUGIN = """
from vitpos import PositionEncoding


class Mine(PositionEncoding):
    pass
"""


def saved_with_code(folder, name):
    """A folder of ``save_pretrained`` whose configuration names code."""
    model = vitpos.ViT((1, 8, 8), 10, "none", patch=4, dim=8, depth=1, heads=2)
    vitpos.save_pretrained(model, folder / "saved")
    (folder / name).write_text(PLUGIN)
    path = folder / "saved" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"encoding": f"{folder / name}:Mine"}))
    return folder / "saved"


@pytest.mark.parametrize("use", ["load", "convert", "evaluate"])
def test_code_in_a_saved_folder_is_imported_only_if_trusted(tmp_path, use):
    folder = saved_with_code(tmp_path, f"mine_{use}.py")
    data = "mnist(limit=20, test_limit=10) + resize(size=8)"
    call = {
        "load": lambda **options: vitpos.load(folder, **options),
        "convert": lambda **options: vitpos.convert(folder, out=tmp_path / "out.safetensors", **options)[0],
        "evaluate": lambda **options: vitpos.evaluate(folder, data, **options),
    }[use]
    with pytest.raises(InputError, match="if you trust it, use --trust, or trust=True in Python"):
        call()
    found = call(trust=True)
    assert use == "evaluate" or type(found.encoding).__name__ == "Mine"


def test_code_that_a_run_names_is_imported_once_it_is_trusted(tmp_path):
    (tmp_path / "named.py").write_text(PLUGIN)
    text = TEXT.replace('"learned"', f'"{tmp_path / "named.py"}:Mine"')
    (tmp_path / "one.toml").write_text(text.replace("stripes(count=40)", "mnist(limit=20, test_limit=10)"))
    done = vitpos_command("run", tmp_path / "one.toml", "--out", tmp_path / "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    (tmp_path / "out" / ".signature").unlink()
    (folder,) = (tmp_path / "out" / "cells").iterdir()
    with pytest.warns(PluginWarning), pytest.raises(InputError, match="trust=True in Python"):
        vitpos.load(folder)
    with warnings.catch_warnings(action="error", category=PluginWarning):
        assert vitpos.run(str(tmp_path / "one.toml"), tmp_path / "out", workers=1, trust=True).trained
        assert type(vitpos.load(folder, trust=True).encoding).__name__ == "Mine"
    with pytest.raises(InputError, match="is a run; give one of its cells"):
        vitpos.load(tmp_path / "out")
