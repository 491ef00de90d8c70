"""Checkpoints from elsewhere that are evaluated, attacked or inspected on given data: their files order nothing."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from tests.hostile.limits import Limits
from tests.lab import foreign
from tests.processes import ENVIRONMENT, finish, start
from tests.references import peer, pretend_torchvision_operators
from vitpos import ViT

DATA = "mnist(limit=20, test_limit=20)"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    torch.manual_seed(0)
    model = ViT((1, 28, 28), 10, "learned(prefix_embed=True)", patch=7, dim=32, depth=2, heads=2)
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        "timm": foreign.save_timm(model, folder / "timm"),
        "hf": foreign.save_huggingface(model, folder / "hf"),
    }


class Prepared(Limits):
    """The limits of hostile tests, after timm and transformers were imported."""

    def __call__(self):
        pretend_torchvision_operators()
        peer("timm"), peer("transformers.models.vit.modeling_vit")
        super().__call__()


def answer(folder, *words):
    done = finish(
        start("-m", "vitpos", *words, folder=folder, cwd=folder, env=ENVIRONMENT, before=Prepared(str(folder), 60))
    )
    assert done.returncode not in (77, 78), f"network access or a read outside the folder: {done.stderr}"
    assert done.returncode >= 0, f"killed by signal {-done.returncode}"
    assert "Traceback" not in done.stderr and "\x1b" not in done.stdout + done.stderr, done.stderr
    assert "traceback is in" not in done.stderr, done.stderr
    return done


CONFIGS = {  # library → what its config.json becomes
    "another architecture": ("timm", {"architecture": "vit_giant_patch14_224"}),
    "an architecture of the hub": ("timm", {"architecture": "hf-hub:evil/model"}),
    "a path for an architecture": ("timm", {"architecture": "../../etc/passwd"}),
    "a wide model": ("timm", {"model_args": {"embed_dim": 1 << 20, "num_heads": 2}}),
    "a deep model": ("timm", {"model_args": {"depth": 1 << 30}}),
    "sizes that are no numbers": ("timm", {"model_args": {"img_size": "x", "patch_size": [0, 0], "depth": -1}}),
    "a file to load": ("timm", {"model_args": {"checkpoint_path": "/etc/passwd", "pretrained": True}}),
    "a wide model of Hugging Face": ("hf", {"hidden_size": 1 << 24, "num_attention_heads": 1}),
    "a deep model of Hugging Face": ("hf", {"num_hidden_layers": 1 << 30}),
    "large images": ("hf", {"image_size": 1 << 16}),
    "code on the hub": (
        "hf",
        {"auto_map": {"AutoConfig": "evil/repo--a.B", "AutoModel": "evil/repo--a.C"}, "model_type": "x"},
    ),
    "an unknown type": ("hf", {"model_type": "\x1b[31mevil"}),
    "a list": ("hf", []),
    "a name that is no text": ("hf", {"model_type": ["vit"]}),
    "names that are no texts": ("hf", {"id2label": {"0": ["x"]}, "num_labels": 10}),
}


FEW = ("a wide model", "code on the hub")  # in the default tests; a process imports timm and transformers anew


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGS]
)
def test_a_configuration_orders_nothing(checkpoints, tmp_path, name):
    library, changes = CONFIGS[name]
    folder = shutil.copytree(checkpoints[library], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes if isinstance(changes, dict) else changes))
    done = answer(tmp_path, "evaluate", folder, "--data", DATA, "--with", "accuracy", "--out", tmp_path / "out")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert (done.returncode in (1, 2) and len(errors) == 1) or (done.returncode == 0 and not errors)
    if name not in ("a file to load", "names that are no texts"):
        assert done.returncode == 2, done.stderr


@pytest.mark.slow
def test_an_odd_preprocessor_and_odd_names_are_ignored_or_written_out(checkpoints, tmp_path):
    folder = shutil.copytree(checkpoints["hf"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(config | {"id2label": {n: f"\x1b[3{n}m$x^$={n}" for n in range(10)}})
    )
    odd = {
        "size": {"height": -1, "width": 10**9},
        "image_mean": ["x"],
        "image_std": [0],
        "resample": 99,
        "crop_size": [],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(odd))
    names = tmp_path / "names.txt"
    names.write_text("\n".join("0123456789"))
    for words in (["evaluate", "--with", "accuracy"], ["attack", "--with", "closed_form(images=1)"]):
        out = tmp_path / words[0]
        done = answer(tmp_path, words[0], folder, *words[1:], "--data", DATA, "--classes", names, "--out", out)
        assert done.returncode == 0, done.stderr
    done = answer(tmp_path, "evaluate", folder, "--data", DATA, "--with", "accuracy", "--out", tmp_path / "named")
    assert done.returncode in (0, 2)
    for kind in ("preprocessor_config.json", "config.json", "names.txt"):
        path = names if kind == "names.txt" else folder / kind
        before = path.read_bytes()
        path.unlink()
        path.symlink_to("/dev/zero")
        words = ["--data", DATA, "--with", "accuracy", "--classes", names, "--out", tmp_path / f"device-{kind}"]
        answer(tmp_path, "evaluate", folder, *words)
        path.unlink()
        path.write_bytes(before)


@pytest.mark.slow
def test_a_file_of_another_kind_is_one_line(tmp_path):
    (tmp_path / "text.safetensors").write_text("x")
    save_file({"a": torch.zeros(2)}, tmp_path / "small.safetensors")
    for name in ("text.safetensors", "small.safetensors"):
        for command in ("evaluate", "attack"):
            words = ["--data", DATA, "--architecture", "vit_tiny_patch16_224", "--out", tmp_path / "out"]
            done = answer(tmp_path, command, tmp_path / name, *words, "--with", "closed_form")
            assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
