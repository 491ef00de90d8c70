"""What takes the place of data sets whose files are not on the machine."""

import pytest

from vitpos.data import DOWNLOADS
from vitpos.data.dataset import load
from vitpos.errors import InputError
from vitpos.lab.dry_run import dry_run
from vitpos.lab.experiment import Experiment
from vitpos.lab.stand_ins import SHAPES, stand_ins, substitute

MODEL = {"model": "vit(patch=8, dim=8, depth=1, heads=1)", "encoding": "learned"}


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("VITPOS_CACHE", str(tmp_path / "cache"))


def test_every_download_has_a_shape():
    assert set(SHAPES) == {name for name in DOWNLOADS if DOWNLOADS.load(name).sources}


def test_missing_files_are_replaced_and_views_and_other_data_stay(tmp_path):
    (tmp_path / "here").mkdir()
    here = f"image_folder(path={str(tmp_path / 'here')!r})"
    specs = ["cifar10(limit=9) + classes(keep=(6, 9))", "mnist", here, "image_folder(path='nowhere', size=(32, 48))"]
    found = stand_ins(Experiment.load({"data": specs, **MODEL}).cells)
    assert list(found) == ["cifar10(limit=9)", "image_folder(path='nowhere', size=(32, 48))"]
    data = load(substitute(specs[0], found))
    assert data.shape == (3, 32, 32) and data.classes == ("cifar10 6", "cifar10 9")
    folder = load(substitute(specs[3], found))
    assert folder.shape == (3, 32, 48) and len(folder.classes) == len(folder.train) == 1000
    assert [substitute(spec, found) for spec in specs[1:3]] == specs[1:3]


def test_a_dry_run_on_noise_checks_model_recipe_and_evaluations(tmp_path):
    written = {"data": "image_folder(path='nowhere', size=32)", **MODEL, "evaluations": ["accuracy", "cost"]}
    cells = Experiment.load(written | {"seeds": [0, 1]}).cells
    parameters = dry_run(cells, stand_ins=stand_ins(cells))
    assert set(parameters) == set(cells) and len(set(parameters.values())) == 1
    for key, value in {
        "encoding": "rope",
        "model": "vit(patch=5)",
        "train": {"augment": "jigsaw(grid=(5, 5))"},
    }.items():
        wrong = Experiment.load(
            written | {key: value, **({"model": "vit(dim=9, heads=3)"} if key == "encoding" else {})}
        )
        with pytest.raises(InputError, match="on image_folder"):
            dry_run(wrong.cells, stand_ins=stand_ins(wrong.cells))
    assert not (tmp_path / "cache").exists(), "nothing is downloaded"


def test_evaluations_on_missing_data_are_tried_on_noise():
    evaluations = ["ood(dataset='cifar100')", "ood(dataset='fashion_mnist')"]
    cells = Experiment.load({"data": "cifar10", **MODEL, "evaluations": evaluations}).cells
    assert list(stand_ins(cells)) == ["cifar10", "cifar100", "fashion_mnist"]
    dry_run(cells, stand_ins=stand_ins(cells))
    cells = Experiment.load({"data": "cifar10", **MODEL, "evaluations": ["ood(dataset='cifar10')"]}).cells
    with pytest.raises(InputError, match="the model's own data"):
        dry_run(cells, stand_ins=stand_ins(cells))
