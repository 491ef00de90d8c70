import json
import math
import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.test_cli import vitpos
from vitpos.analysis.looks import look_at_offsets, look_at_table
from vitpos.data.base import load
from vitpos.errors import UserError
from vitpos.inspection import inspect, of_model, subjects
from vitpos.models import MODELS
from vitpos.report.inside import plain, told

GRID = (4, 7)


def grid_table(noise=0.05, dim=24):
    """Position vectors that are places by a random turn, plus noise."""
    draw = torch.Generator().manual_seed(0)
    places = torch.cartesian_prod(*(torch.arange(side).double() for side in GRID))
    turned = torch.linalg.qr(torch.randn(dim, dim, generator=draw, dtype=torch.float64))[0][:2]
    table = places @ turned + noise * torch.randn(len(places), dim, generator=draw, dtype=torch.float64)
    return table.unflatten(0, GRID)


def checkpoint(path, dim=16, depth=2):
    """A ViT in timm's names, with CLS and a table for 4×7 places that no number in the file tells."""
    draw = torch.Generator().manual_seed(0)
    table = grid_table(dim=dim).flatten(0, 1).float()
    shapes = {"cls_token": (1, 1, dim), "patch_embed.proj.weight": (dim, 3, 4, 4), "patch_embed.proj.bias": (dim,)}
    for layer in range(depth):
        shapes[f"blocks.{layer}.attn.qkv.weight"] = (3 * dim, dim)
        shapes[f"blocks.{layer}.attn.proj.weight"] = (dim, dim)
        shapes[f"blocks.{layer}.mlp.fc1.weight"] = (4 * dim, dim)
    tensors = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    save_file(tensors | {"pos_embed": torch.cat([torch.zeros(1, dim), table])[None]}, path)
    return path


def test_a_table_made_of_places_is_seen_as_one():
    numbers = look_at_table(grid_table()).numbers
    assert numbers["projection"]["pca_residual"] < 0.01
    assert numbers["spectrum"]["table"]["centred"]["explained_2"] > 0.98
    errors = {name: methods["ridge"]["grid_mae"] for name, methods in numbers["regression"].items()}
    assert errors["table"] < 0.1 < 1 < errors["noise"]
    assert numbers["structure"]["nearby"]["verdict"] == numbers["structure"]["grid"]["verdict"] == "yes"


def test_biases_that_a_head_does_not_see_are_left_out_of_numbers_and_drawn():
    biases = {"layer 0": torch.randn(3, 7, 13)}
    biases["layer 0"][1, :3] = -torch.inf
    look = look_at_offsets(biases, torch.randn(1, 3, 4, 2))
    assert set(look.figures) == {"biases", "frequencies"}
    assert all(math.isfinite(x) for numbers in look.numbers["biases"].values() for x in numbers.values())


@pytest.mark.parametrize("encoding", ["none", "learned", "rope", "relative", "sape2", "cope", "cpe", "learned + mjp"])
@pytest.mark.parametrize("model", ["vit(patch=(7, 4), dim=16, depth=2, heads=2)", "attention(patch=(7, 4), dim=16)"])
def test_every_encoding_can_be_looked_at(encoding, model):
    data = load("mnist")
    built = MODELS.build(model, data.shape, 10, encoding)
    seen = inspect(of_model("it", built, data, encoding=encoding), images=8)
    numbers = json.loads(json.dumps(plain(seen.look.numbers), allow_nan=False))
    assert numbers["grid"] == [4, 7] and len(numbers["work"]["probe_r2"]) == built.geometry.depth + 1
    assert ("table" in numbers) == ("learned" in encoding)
    assert {"where", "attention", "mean-attention", "attention-distance"} <= set(seen.look.figures)
    assert ("gates-0" in seen.look.figures) == (encoding in ("sape2", "cope"))
    assert "place from tokens, R² by layer" in told(seen.look.numbers)


def test_attention_is_drawn_on_pictures_of_ones_own(tmp_path):
    data = load("mnist")
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file in files:
        Image.new("L", (28, 28), 90).save(file)
    built = MODELS.build("vit(patch=(7, 4), dim=16, depth=1, heads=2)", data.shape, 10, "learned")
    subject = of_model("it", built, data, encoding="learned")
    drawn = inspect(subject, images=8, files=files).look.figures["attention"]
    assert len(drawn.axes) == 2 * (1 + 2 + 1), "a row for each, with two heads and the rollout"
    with pytest.raises(UserError, match="28x28"):
        Image.new("L", (20, 28)).save(files[0])
        inspect(subject, images=8, files=files)


def test_a_model_without_patches_has_no_positions_to_look_at():
    data = load("mnist")
    with pytest.raises(UserError, match="without patches"):
        of_model("it", MODELS.build("cnn", data.shape, 10, "none"), data, encoding="none")


def test_inspect_tells_a_foreign_checkpoint_and_draws_it(tmp_path):
    file = checkpoint(tmp_path / "vit.safetensors")
    asked = vitpos("inspect", file, "--out", tmp_path / "out")
    assert asked.returncode == 2 and "4x7, 7x4" in asked.stderr and "--grid" in asked.stderr
    done = vitpos("inspect", file, "--out", tmp_path / "out", "--grid", "4x7")
    assert done.returncode == 0, done.stderr
    assert "learned" in done.stdout and "yes (effect" in done.stdout
    numbers = json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert numbers["grid"] == [4, 7] and numbers["prefix_tokens"] == ["CLS"] and numbers["kind"] == "timm"
    for name in ("similarity", "pca-2d", "pca-3d", "spectrum", "norms"):
        with Image.open(tmp_path / "out" / f"{name}.png") as picture:
            assert min(picture.size) > 100
    page = (tmp_path / "out" / "inspect.html").read_text()
    assert page.count("data:image/png") == 5 and "http" not in page.replace("http-equiv", "")


def test_compare_sets_two_side_by_side(tmp_path):
    one, other = checkpoint(tmp_path / "one.safetensors"), checkpoint(tmp_path / "other.safetensors", dim=32)
    done = vitpos("compare", one, other, "--out", tmp_path / "out", "--grid", "4x7")
    assert done.returncode == 0, done.stderr
    assert "one.safetensors" in done.stdout and "other.safetensors" in done.stdout
    assert (tmp_path / "out" / "compare.html").exists()
    assert {path.parent.name[:2] for path in (tmp_path / "out").rglob("inspect.json")} == {"00", "01"}


def test_whoever_gives_something_else_is_told_in_one_line(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.write_text, (tmp_path / "sprung", "x")

    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"pos_embed": Trap()}))
    (tmp_path / "text.safetensors").write_text("hello")
    file = checkpoint(tmp_path / "vit.safetensors")
    for arguments in (
        [tmp_path / "evil.pth"],
        [tmp_path / "text.safetensors"],
        [tmp_path / "nothing"],
        [file, "--grid", "fourteen"],
        [file, "--grid", "5x5"],
        [tmp_path],
    ):
        done = vitpos("inspect", *arguments, "--out", tmp_path / "out")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "out").exists()


def test_runs_of_ours_are_known_by_their_folders_and_by_their_weights(tmp_path):
    (tmp_path / "tiny.toml").write_text(
        "data = 'mnist(limit=64)'\nmodel = 'attention(patch=7, dim=8)'\nencoding = 'learned'\n[train]\nepochs = 0\n"
    )
    done = vitpos("run", tmp_path / "tiny.toml", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    (cell,) = (tmp_path / "run" / "cells").iterdir()
    for path in (tmp_path / "run", cell, cell / "weights.safetensors"):
        ((name, make),) = subjects(path)
        assert name.startswith("learned · attention") and make().table.shape == (4, 4, 8)
    with pytest.raises(UserError, match="knows its grid"):
        subjects(cell, (4, 4))
