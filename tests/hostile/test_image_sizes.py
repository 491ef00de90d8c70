"""An image size that no stored tensor bounds, as in rotary models, is limited before anything of this size is computed."""

import json

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

import vitpos
from tests.hostile.test_commands import weights
from tests.lab import foreign
from tests.references import peer
from vitpos import InputError, ViT
from vitpos.data import DATASETS
from vitpos.interop.preprocessing import Preprocessing
from vitpos.lab.foreign_data import fit_data
from vitpos.lab.open_models import open_checkpoint
from vitpos.models.image_limits import check_image_size

DATA = "mnist(limit=20, test_limit=8)"
LARGE = 20000


def refused(call, match="too large for an untrusted file"):
    with pytest.raises(InputError, match=match) as caught:
        call()
    assert "\n" not in str(caught.value)


def everything(path, **options):
    """The commands that open a checkpoint."""
    refused(lambda: vitpos.load(path, **options))
    refused(lambda: vitpos.convert(path, grid=(2, 2), **options))


def test_the_size_in_a_folder_of_hugging_face_is_limited(tmp_path):
    transformers = peer("transformers")
    config = transformers.DINOv3ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=28, patch_size=7,
        num_channels=1, num_register_tokens=1,
    )  # fmt: skip
    transformers.DINOv3ViTModel(config).save_pretrained(tmp_path)
    vitpos.load(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"image_size": LARGE}))
    everything(tmp_path)
    everything(f"hf:{tmp_path}")
    refused(lambda: vitpos.load(f"hf:{tmp_path}", pretrained=False))
    refused(lambda: open_checkpoint(tmp_path, DATA, need_classes=False))


def test_the_size_in_a_folder_of_timm_is_limited(tmp_path):
    arguments = {"img_size": 28, "patch_size": 7, "embed_dim": 32, "depth": 2, "num_heads": 2, "use_abs_pos_emb": False}
    theirs = foreign.random_timm("eva02_tiny_patch14_224", classes=10, **arguments)
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    path = tmp_path / "config.json"
    config = {"architecture": "eva02_tiny_patch14_224", "num_classes": 10, "model_args": arguments}
    path.write_text(json.dumps(config))
    vitpos.load(tmp_path)
    path.write_text(json.dumps(config | {"model_args": arguments | {"img_size": LARGE}}))
    match = "too large for an untrusted file|larger than the stored tensors"
    refused(lambda: vitpos.load(tmp_path), match)
    refused(lambda: open_checkpoint(tmp_path, DATA), match)
    path.write_text(json.dumps(config | {"model_args": arguments | {"img_size": 2800}}))
    everything(tmp_path)


def test_the_size_in_a_weights_file_is_limited(tmp_path):
    model = ViT((1, 28, 28), 10, "rope", patch=7, dim=32, depth=2, heads=2)
    stated = {"model": "vit(patch=7, dim=32, depth=2, heads=2)", "encoding": "rope"}
    for name, changes in {
        "image_shape": {"data": "", "image_shape": [1, LARGE, LARGE]},
        "patches": {"data": "", "image_shape": [1, 980, 980]},
        "data": {"data": f"mnist + resize(size={LARGE // 2})", "image_shape": [1, LARGE // 2, LARGE // 2]},
    }.items():
        file = weights(tmp_path / f"{name}.safetensors", **stated | changes)
        about = json.loads(header(file))
        save_file(model.state_dict(), file, {"cell": json.dumps(about)})
        everything(file)
    refused(lambda: vitpos.evaluate(file, evaluations="accuracy"))
    small = weights(tmp_path / "small.safetensors", **stated)
    save_file(model.state_dict(), small, {"cell": header(small)})
    assert vitpos.load(small).geometry.grid == (4, 4)


def header(file):
    with safe_open(file, "pt") as opened:
        return opened.metadata()["cell"]


def test_the_data_of_a_checkpoint_are_not_resized_beyond_the_memory():
    with pytest.raises(InputError, match="are too many for memory; add"):
        fit_data("mnist", (1, 2000, 2000), Preprocessing())
    refused(lambda: fit_data("mnist", (3, LARGE, LARGE), Preprocessing()))
    (_, resized) = DATASETS.parse(fit_data("mnist(limit=9, test_limit=9)", (1, 2000, 2000), Preprocessing()))
    assert resized.options == {"size": 2000}


@pytest.mark.parametrize("size", [0, -1, True, "224", [224], [1, 2, 3], [224, 0], None, 2.0])
def test_what_is_no_size_is_refused(size):
    refused(lambda: check_image_size("a file", size), "no usable size")


def test_usual_sizes_are_taken():
    for size, patch, depth in (
        (224, 16, 12),
        (518, 14, 40),
        (2048, 16, 40),
        ((1024, 512), (16, 8), 24),
        (2048, None, 1),
    ):
        check_image_size("a file", size, patch=patch, depth=depth)
