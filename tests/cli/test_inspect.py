"""``vitpos inspect`` and ``vitpos compare`` on checkpoints and runs."""

import json
import pickle
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file

from tests.inspection.tables import plane
from tests.processes import vitpos
from vitpos.cli import tables
from vitpos.lab.inspection_targets import find_targets


def checkpoint(path, dim=16, depth=2, grid=(4, 7)):
    """A ViT with timm's names, CLS and a position table; nothing in the file determines the grid."""
    generator = torch.Generator().manual_seed(0)
    table = plane(grid, dim, 0.05).flatten(0, 1).float()
    shapes = {"cls_token": (1, 1, dim), "patch_embed.proj.weight": (dim, 3, 4, 4), "patch_embed.proj.bias": (dim,)}
    for layer in range(depth):
        shapes[f"blocks.{layer}.attn.qkv.weight"] = (3 * dim, dim)
        shapes[f"blocks.{layer}.attn.proj.weight"] = (dim, dim)
        shapes[f"blocks.{layer}.mlp.fc1.weight"] = (4 * dim, dim)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    save_file(tensors | {"pos_embed": torch.cat([torch.zeros(1, dim), table])[None]}, path)
    return path


def run_of(folder, models, encoding):
    """A run of untrained models on a few digits; returns its folder."""
    (folder / "tiny.toml").write_text(
        f"data = 'mnist(limit=64)'\nmodel = {models}\nencoding = '{encoding}'\n[train]\nepochs = 0\n"
    )
    done = vitpos("run", folder / "tiny.toml", "--out", folder / "run", "--workers", 1)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_inspect_writes_numbers_figures_and_a_page_for_a_checkpoint(tmp_path):
    file = checkpoint(tmp_path / "vit.safetensors")
    without_grid = vitpos("inspect", file, "--out", tmp_path / "out")
    assert without_grid.returncode == 2 and "4x7, 7x4" in without_grid.stderr and "give grid RxC" in without_grid.stderr
    done = vitpos("inspect", file, "--out", tmp_path / "out", "--grid", "4x7")
    assert done.returncode == 0, done.stderr
    assert "learned" in done.stdout and "yes (effect" in done.stdout
    numbers = json.loads((tmp_path / "out" / "inspect.json").read_text())
    assert numbers["grid"] == [4, 7] and numbers["prefix_tokens"] == ["CLS"] and numbers["format"] == "timm"
    for name in ("similarity", "pca-2d", "pca-3d", "spectrum-variance", "spectrum-cumulative", "norms"):
        with Image.open(tmp_path / "out" / f"{name}.png") as image:
            assert min(image.size) > 100
    assert (tmp_path / "out" / "inspect.html").read_text().count("data:image/png") == 6


def test_a_square_grid_is_assumed_with_a_note_on_how_to_give_another(tmp_path):
    file = checkpoint(tmp_path / "vit.safetensors", grid=(6, 6))
    done = vitpos("inspect", file, "--out", tmp_path / "out")
    assert done.returncode == 0 and done.stderr.startswith("note: ") and "give grid RxC" in done.stderr.splitlines()[0]
    assert json.loads((tmp_path / "out" / "inspect.json").read_text())["grid"] == [6, 6]
    other = vitpos("inspect", file, "--out", tmp_path / "other", "--grid", "4x9")
    assert other.returncode == 0 and "note: " not in other.stderr


def test_compare_shows_two_checkpoints_side_by_side(tmp_path):
    one, other = checkpoint(tmp_path / "one.safetensors"), checkpoint(tmp_path / "other.safetensors", dim=32)
    done = vitpos("compare", one, other, "--out", tmp_path / "out", "--grid", "4x7")
    assert done.returncode == 0, done.stderr
    assert "one.safetensors" in done.stdout and "other.safetensors" in done.stdout and "(CKA)" in done.stdout
    assert (tmp_path / "out" / "compare.html").exists()
    assert len(json.loads((tmp_path / "out" / "compare.json").read_text())) == 2
    each = vitpos("compare", one, other, "--out", tmp_path / "out", "--grid", "4x7", "--grid", "7x4")
    assert each.returncode == 0 and "7×4" in each.stdout
    assert {path.parent.name[:2] for path in (tmp_path / "out").rglob("inspect.json")} == {"01", "02"}


def test_wrong_input_gives_one_line_and_writes_nothing(tmp_path):
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
        [file, "--grid", "4x7", "--image", file],
        [tmp_path],
    ):
        done = vitpos("inspect", *arguments, "--out", tmp_path / "out")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "sprung").exists() and not (tmp_path / "out").exists()


def test_runs_cells_and_weights_are_recognized(tmp_path):
    run = run_of(tmp_path, ["minimal(patch=7, dim=8)"], "learned")
    (cell,) = (run / "cells").iterdir()
    for path in (run, cell, cell / "weights.safetensors"):
        ((name, load_target),) = find_targets(path)
        assert name.startswith("learned · minimal") and load_target().table.shape == (4, 4, 8)


def test_a_model_that_cannot_be_inspected_does_not_stop_the_others(tmp_path):
    models = ["cnn", "minimal(patch=7, dim=8)", "swin(patch=4, dim=8, depths=(1,), heads=(2,))"]
    run = run_of(tmp_path, models, "none")
    done = vitpos("inspect", run, "--out", tmp_path / "out", "--images", "8")
    assert done.returncode == 0, done.stderr
    numbers = {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/inspect.json")}
    assert len(numbers) == 3 and sum("without patches" in one.get("reason", "") for one in numbers.values()) == 1
    assert sum("model" in one for one in numbers.values()) == 1
    (windowed,) = [name for name, one in numbers.items() if "windowed" in one.get("skipped", "")]
    assert "swin" in windowed
    with_grid = vitpos("inspect", run, "--out", tmp_path / "none", "--grid", "4x4")
    assert with_grid.returncode == 2 and "leave it out" in with_grid.stderr
    cnn = next(path for path in (run / "cells").iterdir() if "cnn" in path.name)
    rejected = vitpos("inspect", cnn, "--out", tmp_path / "none")
    assert rejected.returncode == 2 and "without patches" in rejected.stderr and not (tmp_path / "none").exists()


def test_many_models_are_printed_in_blocks_that_fit_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr(tables, "output", Console(width=80))
    names = [f"model {number}" for number in range(5)]
    tables.show_columns(names, [("all", list("abcde")), ("some", ["–", "–", "–", "–", "x"])])
    printed = capsys.readouterr().out
    assert all(name in printed for name in names) and max(map(len, printed.splitlines())) <= 80
    assert printed.count("all") == 3 and printed.count("some") == 1
