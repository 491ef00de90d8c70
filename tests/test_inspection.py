import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file

from tests.test_cli import vitpos
from vitpos import progress
from vitpos.attacks.pictures import own
from vitpos.data.base import load
from vitpos.errors import UserError
from vitpos.inspection.inspect import inspect, of_model, subjects
from vitpos.inspection.offsets import bias_numbers, look_at_offsets
from vitpos.inspection.table import look_at_table
from vitpos.inspection.table_regression import baselines
from vitpos.models import MODELS
from vitpos.report.inspection_page import plain
from vitpos.report.inspection_table import told

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
    assert numbers["projection"]["pca"]["residual"] < 0.01
    assert numbers["spectrum"]["table"]["centred"]["explained_2"] > 0.98
    errors = {name: one["methods"]["ridge"]["grid_mae"] for name, one in numbers["regression"].items()}
    assert errors["table"] < 0.1 < 1 < errors["noise"]
    assert numbers["structure"]["nearby"]["verdict"] == numbers["structure"]["grid"]["verdict"] == "yes"


def test_fixed_waves_are_all_of_one_length():
    found = look_at_table(baselines(torch.zeros(*GRID, 16))["sin_cos"].float()).numbers["structure"]["norm"]
    assert found["verdict"] is None and "of one length" in found["reason"]


def test_biases_that_a_head_does_not_see_are_left_out_of_numbers_and_drawn():
    biases = {"layer 0": torch.randn(3, 7, 13)}
    biases["layer 0"][1, :3] = -torch.inf
    pair = torch.randn(7, 4), torch.randn(13, 4)
    look = look_at_offsets(biases, torch.randn(1, 3, 4, 2), {"layer 0": pair})
    assert set(look.figures) == {"biases", "frequencies", "decomposed-rows", "decomposed-columns"}
    numbers = look.numbers["biases"]["layer 0"]
    numbers |= numbers.pop("noise")
    assert all(
        math.isfinite(x) for values in numbers.values() for x in (values if isinstance(values, list) else [values])
    )


def test_maps_of_layers_with_different_numbers_of_heads_stand_below_each_other():
    drawn = look_at_offsets({"one": torch.randn(3, 7, 13), "two": torch.randn(6, 7, 13)}).figures["biases"].figure
    few, many = drawn.axes[:2]
    assert few.get_xlim() == many.get_xlim() == (-0.5, 6 * 14 - 1.5)


def test_what_biases_go_by_is_told_apart():
    down, right = (torch.arange(1 - side, side).double() for side in GRID)
    heads = [
        -(down[:, None].square() + right.square()).sqrt(),  # distance alone
        down.abs()[:, None].expand(-1, len(right)),  # rows alone
        right.expand(len(down), -1),  # changes its sign with query and key
    ]
    numbers = bias_numbers(torch.stack(heads))
    assert numbers["by_distance"][0] == numbers["by_row"][1] == numbers["turned"][2] == pytest.approx(1)
    assert numbers["turned"][0] == numbers["turned"][1] == pytest.approx(0) and numbers["by_column"][1] < 0.01
    alike = bias_numbers(torch.stack([heads[0], heads[0]]))
    assert alike["diversity"] == pytest.approx(0) and numbers["diversity"] > 0.5
    pairs = torch.randn(1, 7, 13)
    weights = (4 - down.abs())[:, None] * (7 - right.abs())
    spread = torch.cat([value.expand(int(n)) for value, n in zip(pairs.flatten(), weights.flatten(), strict=True)])
    assert bias_numbers(pairs)["deviation"] == [pytest.approx(spread.double().std(correction=0).item())]


def test_biases_without_any_order_are_told_by_what_white_noise_has():
    noise = torch.randn(4000, 7, 13, generator=torch.Generator().manual_seed(0))
    noise[:, 0, 3:5] = -torch.inf
    numbers = bias_numbers(noise)
    for part, share in numbers["noise"].items():
        assert sum(numbers[part]) / 4000 == pytest.approx(share, rel=0.05)
    even = bias_numbers(torch.randn(1, 7, 7))["noise"]
    assert even["by_row"] == pytest.approx(even["by_column"])
    assert even["by_row"] < even["by_distance"] < even["turned"] < 0.5


def test_a_head_that_sees_one_pair_both_ways_has_no_more_turned_than_there_is():
    biases = torch.full((1, 7, 13), -torch.inf)
    biases[0, 4:] = 0.0
    biases[0, 3, 5], biases[0, 3, 7] = -9.0, 9.0
    assert 0 < bias_numbers(biases)["turned"][0] <= 1


def test_many_models_are_shown_in_blocks_that_fit(capsys, monkeypatch):
    monkeypatch.setattr(progress, "output", Console(width=80))
    names = [f"model {number}" for number in range(5)]
    progress.show_columns(names, [("all", list("abcde")), ("some", ["–", "–", "–", "–", "x"])])
    printed = capsys.readouterr().out
    assert all(name in printed for name in names) and max(map(len, printed.splitlines())) <= 80
    assert printed.count("all") == 3 and printed.count("some") == 1


@pytest.mark.parametrize("encoding", ["none", "learned", "rope", "relative", "sape2", "cope", "cpe", "learned + mjp"])
@pytest.mark.parametrize("model", ["vit(patch=(7, 4), dim=16, depth=2, heads=2)", "attention(patch=(7, 4), dim=16)"])
def test_every_encoding_can_be_looked_at(encoding, model):
    data = load("mnist")
    built = MODELS.build(model, data.shape, 10, encoding)
    seen = inspect(of_model("it", built, data, encoding=encoding), images=8)
    numbers = json.loads(json.dumps(plain(seen.look.numbers), allow_nan=False))
    assert numbers["grid"] == [4, 7] and len(numbers["work"]["probe_r2"]) == built.geometry.depth + 1
    assert ("table" in numbers) == ("learned" in encoding)
    assert {"where", "attention", "mean-attention", "mean-logits", "attention-distance"} <= set(seen.look.figures)
    assert "offsets" in numbers or encoding not in ("rope", "relative")
    assert ("gates-0" in seen.look.figures) == (encoding in ("sape2", "cope"))
    assert "place from tokens, R² by layer" in [heading for heading, _, _ in told(seen.look.numbers)]


def test_attention_is_drawn_on_pictures_of_ones_own(tmp_path):
    data = load("mnist")
    files = [tmp_path / f"{number}.png" for number in range(2)]
    for file in files:
        Image.new("L", (28, 28), 90).save(file)
    built = MODELS.build("vit(patch=(7, 4), dim=16, depth=1, heads=2)", data.shape, 10, "learned")
    subject = of_model("it", built, data, encoding="learned")
    drawn = inspect(subject, images=8, files=files).look.figures["attention"].figure
    assert len(drawn.axes) == 2 * (1 + 2 + 1) + 1, "a row for each, with two heads and the rollout, and a bar"


def test_a_picture_of_another_size_is_cut_and_brought_to_the_models_to_be_looked_at_but_not_to_be_attacked(tmp_path):
    data = load("mnist")
    built = MODELS.build("vit(patch=(7, 4), dim=16, depth=1, heads=2)", data.shape, 10, "learned")
    wide = np.zeros((56, 112), np.uint8)
    wide[:, 28:56] = 200  # the left half of its middle
    Image.fromarray(wide).save(tmp_path / "wide.png")
    (shown,) = own(built, data, [tmp_path / "wide.png"], fit=True).test.images
    assert shown.shape == (1, 28, 28) and (shown[0, :, 3:11] == 200).all() and (shown[0, :, 17:25] == 0).all()
    with pytest.raises(UserError, match="56x112 pixels, and the model takes 28x28"):
        own(built, data, [tmp_path / "wide.png"])


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
    for name in ("similarity", "pca-2d", "pca-3d", "spectrum-variance", "spectrum-accumulated", "norms"):
        with Image.open(tmp_path / "out" / f"{name}.png") as picture:
            assert min(picture.size) > 100
    page = (tmp_path / "out" / "inspect.html").read_text()
    assert page.count("data:image/png") == 6 and "http" not in page.replace("http-equiv", "")


def test_compare_sets_two_side_by_side(tmp_path):
    one, other = checkpoint(tmp_path / "one.safetensors"), checkpoint(tmp_path / "other.safetensors", dim=32)
    done = vitpos("compare", one, other, "--out", tmp_path / "out", "--grid", "4x7")
    assert done.returncode == 0, done.stderr
    assert "one.safetensors" in done.stdout and "other.safetensors" in done.stdout
    assert (tmp_path / "out" / "compare.html").exists() and "(CKA)" in done.stdout
    assert len(json.loads((tmp_path / "out" / "compare.json").read_text())) == 2
    each = vitpos("compare", one, other, "--out", tmp_path / "out", "--grid", "4x7", "--grid", "7x4")
    assert each.returncode == 0 and "7×4" in each.stdout
    assert {path.parent.name[:2] for path in (tmp_path / "out").rglob("inspect.json")} == {"01", "02"}


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


def test_cells_that_have_nothing_to_see_do_not_keep_the_others_from_being_seen(tmp_path):
    (tmp_path / "tiny.toml").write_text(
        "data = 'mnist(limit=64)'\nmodel = ['cnn', 'attention(patch=7, dim=8)', 'swin(patch=4, dim=8, depths=(1,), "
        "heads=(2,))']\nencoding = 'none'\n[train]\nepochs = 0\n"
    )
    assert vitpos("run", tmp_path / "tiny.toml", "--out", tmp_path / "run").returncode == 0
    done = vitpos("inspect", tmp_path / "run", "--out", tmp_path / "out", "--images", "8")
    assert done.returncode == 0, done.stderr
    every = {path.parent.name: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/inspect.json")}
    assert len(every) == 3 and sum("without patches" in one.get("why", "") for one in every.values()) == 1
    assert sum("work" in one for one in every.values()) == 1
    (unwatched,) = [name for name, one in every.items() if "stays in windows" in one.get("unwatched", "")]
    assert "swin" in unwatched
    known = vitpos("inspect", tmp_path / "run", "--out", tmp_path / "none", "--grid", "4x4")
    assert known.returncode == 2 and "leave it out" in known.stderr
    ((_, make),) = [pair for pair in subjects(tmp_path / "run") if "swin" in pair[0]]
    swin = make()
    assert list(swin.biases) == ["layer 1"] and swin.biases["layer 1"].shape == (2, 13, 13) and swin.model is None
    alone = next(path for path in (tmp_path / "run" / "cells").iterdir() if "cnn" in path.name)
    refused = vitpos("inspect", alone, "--out", tmp_path / "none")
    assert refused.returncode == 2 and "without patches" in refused.stderr and not (tmp_path / "none").exists()


def test_what_is_slow_is_looked_at_when_asked_for():
    pytest.importorskip("umap")
    numbers = look_at_table(grid_table()[:3, :4], slow=True).numbers
    assert set(numbers["regression"]["table"]["methods"]) == {"ridge", "minimum_norm", "svm", "mlp"}
    assert 0 <= numbers["projection"]["umap"]["residual"] <= 1
    said = [heading for heading, _, _ in told({"table": numbers})]
    assert {"the same by svm, places fitted on", "the same by mlp, places fitted on"} < set(said)
