"""``vitpos convert``: reports on standard output, one line for a mistake, a file in place whole and last."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import vitpos
from tests.interop.test_load import SMALL
from tests.processes import vitpos as command
from tests.references import peer, pretend_torchvision_operators

TEXT = """
data = "mnist(limit=64, test_limit=40)"
model = "vit(patch=7, dim=16, depth=1, heads=2)"
encoding = "learned"
evaluations = ["accuracy"]
train.epochs = 0
"""


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "one.toml").write_text(TEXT)
    vitpos.run(str(folder / "one.toml"), folder / "out", workers=1)
    (path,) = (folder / "out" / "cells").iterdir()
    return path


def test_everything_at_once_prints_a_report_of_each_step(cell, tmp_path):
    out = tmp_path / "new.safetensors"
    data = "mnist(limit=64, test_limit=40)"
    done = command(
        *("convert", cell, "--grid", "5x6", "--patch", "8x4", "--encoding", "learned + rope", "--heal", data),
        *("--data", data, "--out", out),
    )
    assert done.returncode == 0, done.stderr
    steps = [line.partition(":")[0] for line in done.stdout.splitlines() if line and line[0] not in " ("]
    assert steps == ["patch", "grid", "encoding", "heal", "format"]
    assert "grid 4x4 → 5x6, tables: bicubic-antialias" in done.stdout and "agreement before healing" in done.stdout
    assert done.stderr == f"file: {out}\n"
    assert vitpos.load(out)(torch.zeros(1, 1, 40, 24)).shape == (1, 10)


def test_trust_lets_a_saved_folder_name_code(tmp_path):
    model = vitpos.ViT((1, 8, 8), 10, "none", patch=4, dim=8, depth=1, heads=2)
    config = vitpos.save_pretrained(model, tmp_path / "saved") / "config.json"
    code = "from vitpos import PositionEncoding\n\n\nclass Mine(PositionEncoding):\n    pass\n"
    (tmp_path / "mine.py").write_text(code)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"encoding": f"{tmp_path / 'mine.py'}:Mine"}))
    words = ("convert", tmp_path / "saved", "--out", tmp_path / "out.safetensors")
    done = command(*words)
    assert done.returncode == 2 and "if you trust it, use --trust, or trust=True in Python" in done.stderr
    done = command(*words, "--trust")
    assert done.returncode == 0 and (tmp_path / "out.safetensors").exists(), done.stderr


def test_json_is_alone_on_standard_output(cell, tmp_path):
    done = command("convert", cell, "--grid", "3x3", "--mode", "all", "--json", "--out", tmp_path / "a.safetensors")
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert reports[0] == {"step": "mode", "change": "bicubic-antialias", "numbers": reports[0]["numbers"], "note": ""}
    assert {report["step"] for report in reports} == {"mode", "grid", "format"}


def test_all_modes_are_compared_in_one_table(cell):
    done = command("convert", cell, "--grid", "6x3", "--mode", "all", "--data", "mnist(test_limit=20)")
    assert done.returncode == 0, done.stderr
    assert "bicubic-align_corners" in done.stdout and "recommended and used: " in done.stdout
    assert "accuracy after" in done.stdout


def test_a_file_of_timm_keeps_its_weights_and_names(tmp_path):
    timm = peer("timm")
    theirs = timm.create_model("vit_small_patch16_224", img_size=32, **SMALL)
    torch.save(theirs.state_dict(), tmp_path / "a.pth")
    arguments = {"architecture": "vit_small_patch16_224", "model_args": {"img_size": 32} | SMALL}
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text(json.dumps(arguments))
    (tmp_path / "a.pth").rename(tmp_path / "folder" / "pytorch_model.bin")
    out = tmp_path / "b.safetensors"
    words = ("convert", tmp_path / "folder", "--to", "timm", "--out", out)
    done = command(*words, before=pretend_torchvision_operators)
    assert done.returncode == 0, done.stderr
    again = load_file(out)
    assert all(torch.equal(tensor, again[name]) for name, tensor in theirs.state_dict().items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to convert; give --out FILE, or --grid"),
        (("--grid", "14"), "--grid '14' is not a grid; give rows and columns, such as 24x24"),
        (("--grid", "0x3"), "--grid '0x3' is not a size; give numbers of 1 or more, such as 24x24"),
        (("--patch", "a"), "--patch 'a' is not a size; give numbers of 1 or more, such as 8 or 8x16"),
        (("--grid", "5x5", "--mode", "lanczos"), "cannot resample with mode 'lanczos'"),
        (("--encoding", "ropes"), "encoding 'ropes': "),
        (("--encoding", "rope", "--mode", "all"), "--mode all is for another grid, patch size or window; add --grid"),
        (("--encoding", "rope", "--coords", "ntk"), "--coords ntk is for another grid"),
        (("--encoding", "rope", "--patch-mode", "area"), "--patch-mode area is for another grid"),
        (("--encoding", "rope", "--epochs", "0"), "--epochs 0.0 is for the healing; add --heal DATA"),
        (("--encoding", "rope", "--lr", "0.1"), "--lr 0.1 is for the healing; add --heal DATA"),
        (("--grid", "5x5", "--dynamic-size"), "dynamic_size is for ONNX"),
        (("--grid", "5x5", "--to", "hf", "--out", "a.bin"), "a.bin does not fit the format 'hf'; give a folder"),
        (("--grid", "5x5", "--to", "tf"), "Invalid value for '--to'"),
    ],
)
def test_a_mistake_is_one_line_with_the_remedy_and_exit_code_2(cell, tmp_path, words, message):
    done = command("convert", cell, *words, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and not done.stdout
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_checkpoint_is_one_line(tmp_path):
    done = command("convert", tmp_path / "no.safetensors", "--grid", "5x5")
    assert done.returncode == 2 and "does not exist; give a ViT checkpoint" in done.stderr


def test_a_file_from_elsewhere_is_data(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.write_text, (tmp_path / "sprung", "x")

    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"pos_embed": Trap()}))
    (tmp_path / "half.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    for file in ("evil.pth", "half.safetensors"):
        words = ("--architecture", "vit_small_patch16_224", "--grid", "5x5", "--out", tmp_path / "out")
        done = command("convert", tmp_path / file, *words, "--to", "timm")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"evil.pth", "half.safetensors"}


def test_an_encoding_of_a_plugin_is_swapped_in(cell, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from vitpos import PositionEncoding, register_encoding\n\n\n"
        "@register_encoding('near')\nclass Near(PositionEncoding):\n"
        "    def bias(self, q, k, pos, layer):\n        return -pos.offsets().norm(dim=-1)[:, None].to(q.dtype)\n"
    )
    out = tmp_path / "new.safetensors"
    plugin = ("--plugin", tmp_path / "mine.py")
    done = command("convert", cell, "--encoding", "near", "--out", out, *plugin)
    assert done.returncode == 0, done.stderr
    again = command("convert", out, "--grid", "6x6", "--out", tmp_path / "larger.safetensors", *plugin)
    assert again.returncode == 0, again.stderr
    assert "coordinates: interpolate" in again.stdout
