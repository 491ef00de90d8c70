"""The ImageNet recipe as it is shipped, for a few steps on a handful of images."""

import csv

import numpy as np
import pytest
from PIL import Image

from vitpos.block_masks import BlockMaskSampler
from vitpos.lab.experiment import Experiment
from vitpos.lab.runner import run


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("imagenet")
    random = np.random.default_rng(0)
    for half, count in (("train", 4), ("val", 1)):
        for name in ("n01440764", "n01443537"):
            (root / half / name).mkdir(parents=True)
            for n in range(count):
                noise = random.integers(0, 256, (8, 10, 3), np.uint8)
                Image.fromarray(noise).resize((500, 375)).save(root / half / name / f"{n}.JPEG")
    return root


@pytest.mark.slow
def test_the_whole_recipe_runs(images, tmp_path, monkeypatch):
    settings = [
        f"data=image_folder(path={str(images)!r})",
        "train.epochs=1",
        "train.batch_size=4",
        "train.grad_accum=2",
    ]
    experiment = Experiment.load("mjp-imagenet", settings)
    assert len(experiment.cells) == 6
    masks = []
    sample = BlockMaskSampler.sample_mask
    monkeypatch.setattr(
        BlockMaskSampler, "sample_mask", lambda self, *args: masks.append(sample(self, *args)) or masks[-1]
    )
    results = run(experiment, tmp_path, workers=1)
    expected = 3 * 4 + 1  # three models with masks, two batches in two parts each; and the dry run of jigsaw
    assert len(masks) == expected and any(mask is not None and mask.any() for mask in masks)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(results.trained) == 6 and all(folder.log[0]["loss"] < 5 for _, folder in results.trained)
    mask_aware = {row["encoding"] for row in rows if "hide_masked" in row["evaluation"]}
    assert mask_aware == {experiment.cells[1].encoding}, "only models with an unknown vector can use the mask"
    assert all(0 <= float(row["value"]) <= 1 for row in rows if row["metric"] == "consistency")
