"""``train.weights``: a training that starts from the weights of another, at the same or another image size."""

import json
import pickle

import pytest
import torch
import torch.nn.functional as F

import vitpos
from vitpos.data.dataset import load
from vitpos.errors import InputError, Notice
from vitpos.files import read_tensors, write_json, write_tensors
from vitpos.lab.cell_folder import CellFolder
from vitpos.lab.cell_models import build_model
from vitpos.lab.cells import Cell
from vitpos.lab.dry_run import dry_run
from vitpos.lab.events import Observer, TrainProgress
from vitpos.lab.initial_weights import load_initial_weights
from vitpos.training.recipe import Recipe

MODEL = "vit(patch=(2, 2), dim=8, depth=2, heads=2)"
SMALL, LARGE = "stripes(count=40)", "stripes(count=40) + resize(size=(12, 20))"  # grids of 4×8 and 6×10 patches
TEXT = {
    "name": "first",
    "data": SMALL,
    "model": MODEL,
    "encoding": ["none", "learned"],
    "seeds": [0, 1],
    "train": {"epochs": 1, "lr": 0.01},
}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a run with two encodings and two seeds."""
    return vitpos.run(TEXT, tmp_path_factory.mktemp("first") / "run", workers=1, observer=Observer()).path


def next_run(out, weights, **settings):
    train = {"epochs": 0, "weights": weights} | settings.pop("train", {})
    return vitpos.run(TEXT, out, workers=1, observer=Observer(), train=train, **settings)


def cells_of(path):
    return {(folder.cell.encoding, folder.cell.seed): folder for folder in map(CellFolder, (path / "cells").iterdir())}


def weights_of(folder):
    return read_tensors(folder.path / "weights.safetensors")[0]


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def one_cell(weights, data=SMALL, model=MODEL, encoding="learned", seed=0):
    return Cell(data, model, encoding, seed, Recipe(weights=str(weights)), ("accuracy",))


@pytest.mark.parametrize("given", ["file", "cell", "run"])
def test_a_training_starts_from_a_file_from_a_cell_or_from_the_cell_of_its_encoding_and_seed(first, tmp_path, given):
    source = cells_of(first)
    one = source["learned", 1].path
    path = {"file": one / "weights.safetensors", "cell": one, "run": first}[given]
    encoding = ["none", "learned"] if given == "run" else "learned"
    next_run(tmp_path / "out", path, encoding=encoding)
    started = cells_of(tmp_path / "out")
    assert len(started) == (4 if given == "run" else 2)
    for key, folder in started.items():
        same = source[key if given == "run" else ("learned", 1)]
        assert equal(weights_of(folder), weights_of(same))
        assert folder.initial_weights["path"] == str(same.path / "weights.safetensors")
        assert len(folder.initial_weights["sha256"]) == 64
        stored = json.loads(read_tensors(folder.path / "weights.safetensors")[1]["cell"])
        assert stored["initial_weights"] == folder.initial_weights, "and the new weights say so"


def test_a_table_is_resampled_to_the_new_grid_and_the_run_keeps_its_model(first, tmp_path):
    results = next_run(tmp_path / "out", first, data=LARGE, encoding="learned", train={"epochs": 0})
    for (_, seed), folder in cells_of(tmp_path / "out").items():
        before, after = weights_of(cells_of(first)["learned", seed]), weights_of(folder)
        table = before.pop("encoding.table")[0].permute(2, 0, 1)[None]  # (1, D, 4, 8)
        expected = F.interpolate(table, size=(6, 10), mode="bicubic", align_corners=False)[0].permute(1, 2, 0)
        assert torch.allclose(after.pop("encoding.table")[0], expected, atol=1e-6)
        assert equal(before, after), "everything else is as it was"
    assert len(results.rows) == 2 and vitpos.evaluate(folder.path)["accuracy"].numbers["accuracy"] >= 0


@pytest.mark.parametrize(
    "encoding",
    [
        "learned(per_layer=True, prefix_embed=True)",
        "factorized",
        "factorized(fractional=True)",
        "relative(prefix_bias=True)",
        "decomposed",
        "learned + mjp(slot_index=True)",
        "learned + relative",
    ],
)
@pytest.mark.parametrize("size", [(12, 20), (6, 24), (8, 12)])
def test_the_new_model_computes_what_the_old_one_with_resized_tables_does(tmp_path, encoding, size):
    """Fine-tuning goes on from the model that the evaluation ``resolution(resize_tables='bicubic')`` measures."""
    data, large = load(SMALL), load(f"{SMALL} + resize(size={size})")
    old = build_model(one_cell("", encoding=encoding), data).eval()
    for parameter in old.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    about = {"data": SMALL, "image_shape": data.shape}
    file = write_tensors(tmp_path / "weights.safetensors", old.state_dict(), {"cell": json.dumps(about)})
    cell = one_cell(file, large.spec, encoding=encoding, seed=1)
    new = build_model(cell, large).eval()
    load_initial_weights(new, cell, large, file)
    images = large.normalize(large.test.images[:6])
    with torch.no_grad():
        expected = old.resized((size[0] // 2, size[1] // 2))(images)
        assert torch.allclose(new(images), expected, atol=1e-4)
        assert not torch.allclose(build_model(cell, large).eval()(images), expected, atol=1e-2), "unlike a new model"


class Interrupt(Observer):
    """Stops a run in the middle of its second epoch."""

    def __init__(self):
        self.batches = 0

    def on_event(self, event):
        self.batches += isinstance(event, TrainProgress)
        if self.batches == 6:
            raise KeyboardInterrupt


def test_an_interrupted_training_ends_with_the_same_bits_also_if_the_file_is_gone(first, tmp_path):
    source = CellFolder(tmp_path / "source")
    source.path.mkdir()
    file = source.path / "weights.safetensors"
    original = cells_of(first)["learned", 0].path / "weights.safetensors"
    file.write_bytes(original.read_bytes())
    train = {"epochs": 3, "batch_size": 10, "position_lr_factor": 0.1, "log_test_accuracy": True}
    settings = {"data": LARGE, "encoding": "learned", "seeds": [0], "evaluations": ["accuracy", "learning_curve"]}
    whole = next_run(tmp_path / "whole", source.path, train=train, **settings)
    with pytest.raises(KeyboardInterrupt):
        vitpos.run(
            TEXT, tmp_path / "out", workers=1, observer=Interrupt(), train=train | {"weights": str(source.path)}, **settings
        )  # fmt: skip
    (stopped,) = cells_of(tmp_path / "out").values()
    assert stopped.load_checkpoint()[0] == 1 and not stopped.trained
    file.unlink()
    with pytest.warns(Notice, match=r"weights\.safetensors, from which trainings in .*out started, is gone"):
        resumed = next_run(tmp_path / "out", source.path, train=train, **settings)
    ours, theirs = (results.trained[0][1].path / "weights.safetensors" for results in (resumed, whole))
    assert ours.read_bytes() == theirs.read_bytes() and resumed.rows == whole.rows
    assert not equal(read_tensors(ours)[0], read_tensors(original)[0])


def test_a_file_that_has_changed_is_one_line_before_anything_is_trained(first, tmp_path):
    file = tmp_path / "weights.safetensors"
    cells = cells_of(first)
    file.write_bytes((cells["learned", 0].path / "weights.safetensors").read_bytes())
    next_run(tmp_path / "out", file, encoding="learned", seeds=[0])
    file.write_bytes((cells["learned", 1].path / "weights.safetensors").read_bytes())
    with pytest.raises(InputError, match=r"has changed since trainings in .*out started from it \(sha256 .*restore it"):
        next_run(tmp_path / "out", file, encoding="learned", seeds=[0, 1])
    assert len(cells_of(tmp_path / "out")) == 1
    with pytest.warns(Notice, match="has changed since trainings in"):
        vitpos.lab.evaluate.evaluate_run(tmp_path / "out", ["confusion"], Observer())
    next_run(tmp_path / "other", file, encoding="learned", seeds=[0])


@pytest.mark.parametrize(
    ("weights", "settings", "message"),
    [
        ("{run}/nowhere", {}, "nowhere', where nothing is trained; give a weights file, or the folder of a cell"),
        (
            "{run}",
            {"seeds": [7]},
            "has no trained cells with model vit.*, encoding learned and seed 7; give the folder",
        ),
        (
            "{cell}",
            {"encoding": "rope"},
            "does not fit: encoding.table is not in the model; start from weights of the same",
        ),
        ("{cell}", {"encoding": "learned(prefix_embed=True)"}, "encoding.prefix_table is missing; start from"),
        (
            "{cell}",
            {"model": MODEL.replace("dim=8", "dim=12")},
            r"project.weight is 8x4 instead of 12x4, project.bias is 8 instead of 12.* and \d+ more; start from",
        ),
        (
            "{cell}",
            {"model": MODEL.replace("(2, 2)", "(4, 4)"), "data": LARGE},
            "project.weight is 8x4 instead of 8x16",
        ),
        (
            "{cell}",
            {"model": MODEL.replace("(2, 2)", "(3, 4)"), "data": LARGE},
            r"was trained on images of 8x16 pixels: an image of 8x16 pixels cannot be cut into patches of 3x4",
        ),
    ],
)
def test_weights_that_do_not_fit_are_one_line_that_names_the_tensors(first, tmp_path, weights, settings, message):
    path = weights.format(run=first, cell=cells_of(first)["learned", 0].path)
    with pytest.raises(InputError, match=message) as raised:
        next_run(tmp_path / "out", path, **{"encoding": "learned", "seeds": [0]} | settings)
    assert "\n" not in str(raised.value) and not (tmp_path / "out").exists()


def test_an_encoding_whose_tables_cannot_be_resized_is_named_with_them(tmp_path):
    out = vitpos.run(TEXT, tmp_path / "first", workers=1, observer=Observer(), encoding="sape2", seeds=[0]).path
    message = r"cannot be resized from 4x8 to 6x10 patches: encoding.tables.0 is 2x9x4 instead of 2x11x4"
    with pytest.raises(InputError, match=message):
        next_run(tmp_path / "out", out, encoding="sape2", seeds=[0], data=LARGE)


def written(folder, about, **changes):
    model = build_model(one_cell(""), load(SMALL))
    folder.mkdir(exist_ok=True)
    weights = model.state_dict() | changes
    return write_tensors(folder / "weights.safetensors", weights, {"cell": json.dumps(about)})


@pytest.mark.parametrize(
    ("about", "data", "message"),
    [
        ({"data": SMALL}, SMALL, ""),  # of an older version, trained on the same data
        ({"data": SMALL}, LARGE, "holds no model of a 'vitpos run' with its image size"),
        ({"data": SMALL, "image_shape": [1, 8, 16]}, LARGE, ""),
        ({"data": SMALL, "image_shape": [10**9, 8, 16]}, LARGE, ""),  # its channels are in the shapes of its tensors
        ({"data": SMALL, "image_shape": [1, 8]}, SMALL, "an image shape of"),
        ({"data": SMALL, "image_shape": [1, 8, "16\n"]}, SMALL, r"an image shape of \[1, 8, '16\\n'\]; give weights"),
        ({"data": SMALL, "image_shape": [1, 8, 10**9]}, SMALL, "at most 16 times as high and wide"),
        ([], SMALL, "is damaged, or holds no model"),
    ],
)
def test_what_a_file_states_is_checked(tmp_path, about, data, message):
    file = written(tmp_path, about)
    if message:
        with pytest.raises(InputError, match=message) as raised:
            dry_run([one_cell(file, data)])
        assert "\n" not in str(raised.value)
    else:
        dry_run([one_cell(file, data)])


def test_a_file_is_data_and_runs_nothing(tmp_path):
    marker, plugin = tmp_path / "marker", tmp_path / "plugin.py"
    plugin.write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    orders = {"data": f"{plugin}:data", "model": f"{plugin}:Model", "encoding": f"{plugin}:Encoding"}
    about = {**orders, "image_shape": [1, 8, 16], "plugins": {str(plugin): {"path": str(plugin), "sha256": ""}}}
    dry_run([one_cell(written(tmp_path / "cell", about))])
    write_json(tmp_path / "run" / "cells" / "one" / "cell.json", {**orders, "seed": 0})
    written(tmp_path / "run" / "cells" / "one", about)
    with pytest.raises(InputError, match="has no trained cells with model"):
        dry_run([one_cell(tmp_path / "run")])
    (tmp_path / "weights.pt").write_bytes(pickle.dumps({"weight": print}))
    with pytest.raises(InputError, match=r"weights\.pt is damaged, or holds no model of a 'vitpos run'"):
        dry_run([one_cell(tmp_path / "weights.pt")])
    with pytest.raises(InputError, match="has weights that are not finite"):
        bad = torch.full((2,), torch.nan)
        dry_run([one_cell(written(tmp_path / "bad", {"image_shape": [1, 8, 16]}, **{"head.bias": bad}))])
    assert not marker.exists()


def test_a_cell_keeps_its_name_unless_the_new_options_are_used():
    """Runs that were stored before the options existed are found again."""
    cell = Cell("mnist", "vit(dim=64)", "learned", 3, Recipe(epochs=2, lr=0.01), ("accuracy",))
    assert cell.folder_name == "learned-vit-dim-64-mnist-seed3-1f3e703a"
    options = {"weights": "runs/a", "position_lr_factor": 0.1, "log_test_accuracy": True}
    names = {
        Cell(cell.data, cell.model, cell.encoding, 3, Recipe(epochs=2, lr=0.01, **{name: value}), ()).folder_name
        for name, value in options.items()
    }
    assert len(names | {cell.folder_name}) == 4
