"""Folders of Hugging Face from elsewhere: their code is not run, and what they name is not looked up."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitpos
from tests.hostile.limits import Limits
from tests.lab import foreign
from tests.processes import ENVIRONMENT, finish, start
from tests.references import peer, pretend_torchvision_operators
from vitpos import InputError, ViT

ANSWER_YES = "import os; r, w = os.pipe(); os.write(w, b'y\\n' * 9); os.dup2(r, 0)"
EVIL = "import os\nos._exit(79)\n"
OPEN = """
import sys
import vitpos
for what in sys.argv[1:]:
    try:
        vitpos.load(what)
    except vitpos.InputError as error:
        print(error)
    else:
        print("loaded")
"""


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = ViT((1, 28, 28), 10, "learned(prefix_embed=True)", patch=7, dim=32, depth=2, heads=2)
    return foreign.save_huggingface(model, tmp_path / "model")


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


class Answering(Limits):
    """The limits of hostile tests in a process whose standard input answers y, and which ends if it is read."""

    def __call__(self):
        pretend_torchvision_operators()
        peer("transformers.models.vit.modeling_vit")
        exec(ANSWER_YES)
        super().__call__()
        sys.addaudithook(self.check_input)

    @staticmethod
    def check_input(event, arguments):
        import os

        if event == "builtins.input" or (event == "open" and "configuration_evil" in str(arguments[0])):
            os._exit(79)


def opened(tmp_path, *words):
    """Returns the lines that a script prints for each folder, after checking that nothing was run or looked up."""
    script = tmp_path / "open_folders.py"
    script.write_text(OPEN)
    done = finish(
        start(script, *words, folder=tmp_path, cwd=tmp_path, env=ENVIRONMENT, before=Answering(str(tmp_path), 60))
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "LOAD REPORT" not in done.stdout + done.stderr
    return done.stdout.splitlines()


def test_code_in_a_folder_is_not_run_though_standard_input_answers_yes(folder, tmp_path):
    (folder / "configuration_evil.py").write_text(EVIL)
    names = {"AutoConfig": "configuration_evil.C", "AutoModel": "configuration_evil.M"}
    edit(folder, auto_map=names)
    other = tmp_path / "other"
    other.mkdir()
    (other / "configuration_evil.py").write_text(EVIL)
    (other / "config.json").write_text(json.dumps({"model_type": "zzz", "auto_map": names}))
    save_file({"a": torch.zeros(2)}, other / "model.safetensors")
    lines = opened(tmp_path, folder, f"hf:{folder}", other, f"hf:{other}")
    assert len(lines) == 4 and all("names Python code (auto_map" in line for line in lines)


def test_names_in_a_folder_are_not_looked_up(folder, tmp_path):
    edit(
        folder, _attn_implementation="evil/kernel", attn_implementation="evil/kernel", _name_or_path="evil/model",
        backbone="evil/backbone", use_pretrained_backbone=True, use_timm_backbone=True, transformers_weights="/etc/passwd",
    )  # fmt: skip
    assert opened(tmp_path, folder, f"hf:{folder}") == ["loaded"] * 2
    edit(folder, model_type="upernet")
    assert "is of the type 'upernet'; a folder may have the types vit, " in opened(tmp_path, folder)[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "has quantized weights"),
        ({"model_type": "upernet"}, "is of the type 'upernet'"),
        ({"model_type": ["vit"]}, "does not state its architecture"),
        ({"image_size": 20000}, "states images of 20000×20000 pixels"),
        ({"patch_size": 0}, "states no usable size"),
        ({"num_hidden_layers": 3}, "has not all weights of a ViTForImageClassification, such as vit.layers.2"),
        ({"num_hidden_layers": 1}, "has weights that a ViTForImageClassification has not, such as vit.layers.1"),
        ({"intermediate_size": 64}, "has weights of other shapes than a ViTForImageClassification"),
        ({"architectures": ["ViTModel"]}, "has weights that a ViTModel has not, such as classifier.bias"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_in_one_line(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(InputError, match=message) as caught:
        vitpos.load(folder)
    assert "\n" not in str(caught.value)


def test_an_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "evil/model"}')
    with pytest.raises(InputError, match="which names another model"):
        vitpos.load(folder)


def test_only_the_pooler_may_be_missing_and_is_left_out_then(folder):
    path = folder / "model.safetensors"
    tensors = {
        name.removeprefix("vit."): tensor for name, tensor in load_file(path).items() if "classifier" not in name
    }
    save_file(tensors, path, {"format": "pt"})
    edit(folder, architectures=["ViTModel"])
    images = torch.randn(2, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(vitpos.load(folder)(images), vitpos.load(folder)(images)), "no part of it is random"
    save_file({f"x.{name}": tensor for name, tensor in tensors.items()}, path, {"format": "pt"})
    with pytest.raises(InputError, match="has not all weights of a ViTModel"):
        vitpos.load(folder)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ("CLIPVisionConfig", "CLIPVisionModelWithProjection"),
        ("DeiTConfig", "DeiTForImageClassificationWithTeacher"),
        ("DINOv3ViTConfig", "DINOv3ViTModel"),
        ("SiglipVisionConfig", "SiglipVisionModel"),
    ],
)
def test_a_folder_gives_the_class_that_was_saved(tmp_path, capfd, config, kind):
    transformers = peer("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    theirs = getattr(transformers, kind)(getattr(transformers, config)(**sizes, image_size=28, patch_size=7)).eval()
    theirs.save_pretrained(tmp_path)
    capfd.readouterr()
    loaded, images = vitpos.load(tmp_path), torch.randn(2, 3, 28, 28)
    assert capfd.readouterr() == ("", "")
    with torch.no_grad():
        assert torch.equal(loaded(images), vitpos.load(theirs)(images))
    assert vitpos.load(f"hf:{tmp_path}", pretrained=False).geometry == loaded.geometry
