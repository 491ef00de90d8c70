"""The encoder of Hugging Face's MAE as our ViT: same tokens without masks, from a model, a folder and old names."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitpos
from tests.interop.test_attach import randomize
from tests.interop.test_load import huggingface_model, random_images
from vitpos import InputError
from vitpos.interop import to_huggingface

SIZES = {"image_size": 64, "decoder_hidden_size": 16, "decoder_num_attention_heads": 2}
DECODER = {"decoder_num_hidden_layers": 1, "decoder_intermediate_size": 24}
OLD = {  # pattern in the names of today → names of published files
    r"layers\.(\d+)\.attention\.([qkv])_proj": r"encoder.layer.\1.attention.attention.\2",
    r"layers\.(\d+)\.attention\.o_proj": r"encoder.layer.\1.attention.output.dense",
    r"layers\.(\d+)\.mlp\.fc1": r"encoder.layer.\1.intermediate.dense",
    r"layers\.(\d+)\.mlp\.fc2": r"encoder.layer.\1.output.dense",
    r"^(vit\.)?layers\.": r"\1encoder.layer.",
    r"\.attention\.q\.": ".attention.query.",
    r"\.attention\.k\.": ".attention.key.",
    r"\.attention\.v\.": ".attention.value.",
}


def mae(name="ViTMAEModel", dtype=torch.float64, **options):
    return randomize(huggingface_model("vit_mae", "ViTMAEConfig", name, SIZES | DECODER | options), dtype=dtype)


def expected_tokens(theirs, x):
    """The tokens of their encoder without masks; increasing noise keeps the order of the patches."""
    encoder = getattr(theirs, "vit", theirs)
    encoder.config.mask_ratio = 0.0
    noise = torch.arange(16.0).expand(len(x), 16)
    with torch.no_grad():
        return encoder(x, noise=noise).last_hidden_state


def difference(ours, expected, x):
    with torch.no_grad():
        tokens, _ = ours.forward_tokens(x)
        assert torch.equal(ours(x), tokens[:, 0])
    assert tokens.shape == expected.shape == (2, 17, 32) and expected.abs().max() > 0.1
    return (tokens - expected).abs().max()


@pytest.mark.parametrize("name", ["ViTMAEModel", "ViTMAEForPreTraining"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_the_encoder_has_the_same_tokens_and_gives_its_weights_back(name, dtype, tolerance):
    theirs, x = mae(name, dtype), random_images((3, 64, 64)).to(dtype)
    ours = vitpos.load(theirs)
    assert difference(ours, expected_tokens(theirs, x), x) < tolerance
    again, before = to_huggingface(ours), getattr(theirs, "vit", theirs).state_dict()
    assert set(again) == set(before) and all(torch.equal(again[key], before[key]) for key in before)
    assert type(theirs).__name__ == name  # the given model is as it was


def test_biases_and_activation_are_read_from_the_configuration():
    theirs, x = mae(qkv_bias=False, hidden_act="quick_gelu"), random_images((3, 64, 64))
    assert difference(vitpos.load(theirs), expected_tokens(theirs, x), x) < 1e-10


@pytest.mark.parametrize("name", ["ViTMAEModel", "ViTMAEForPreTraining"])
@pytest.mark.parametrize("old", [False, True])
def test_a_folder_is_loaded_also_with_the_names_of_published_files(tmp_path, name, old):
    theirs, x = mae(name, torch.float32), random_images((3, 64, 64)).float()
    theirs.save_pretrained(tmp_path)
    if old:
        renamed = {}
        for key, tensor in theirs.state_dict().items():
            for pattern, new in OLD.items():
                key = re.sub(pattern, new, key)
            renamed[key] = tensor
        assert any("attention.attention.query" in key for key in renamed)
        save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    assert difference(vitpos.load(f"hf:{tmp_path}"), expected_tokens(theirs, x), x) < 1e-4


def test_a_folder_with_missing_weights_is_refused_and_its_decoder_is_not_built(tmp_path):
    mae("ViTMAEForPreTraining").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"decoder_num_hidden_layers": 1 << 30}))
    assert isinstance(vitpos.load(tmp_path), vitpos.ViT)
    tensors = load_file(tmp_path / "model.safetensors")
    missing = next(key for key in tensors if "layernorm.weight" in key)
    save_file({key: one for key, one in tensors.items() if key != missing}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="not all weights"):
        vitpos.load(tmp_path)


def test_it_is_converted_to_another_grid_as_the_library_interpolates_it():
    theirs, x = mae(), random_images((3, 32, 96))
    ours, _ = vitpos.convert(theirs, grid=(2, 6), mode="hf", coords="rebuild")
    theirs.config.mask_ratio = 0.0
    with torch.no_grad():
        expected = theirs(x, noise=torch.arange(12.0).expand(2, 12), interpolate_pos_encoding=True).last_hidden_state
        assert (ours(x) - expected[:, 0]).abs().max() < 1e-10
