"""Folders with one checkpoint or its shards."""

import json

import pytest

from tests.interop.checkpoints import GRID, hugging_face, save, vit
from vitpos.errors import InputError
from vitpos.interop.checkpoint import read_checkpoint
from vitpos.interop.tensor_files import read_contents


def test_a_folder_is_read_as_its_only_checkpoint_or_its_shards(tmp_path):
    state = hugging_face(vit())
    names = list(state)
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match="no checkpoint"):
        read_checkpoint(tmp_path)
    first = save(tmp_path / "model-00001-of-00002.safetensors", {name: state[name] for name in names[:2]})
    assert read_contents(tmp_path).tensors.keys() == set(names[:2]), "the only file"
    save(tmp_path / "model-00002-of-00002.safetensors", {name: state[name] for name in names[2:]})
    with pytest.raises(InputError, match=r"2 checkpoints .*give one of them"):
        read_checkpoint(tmp_path)
    weight_map = {name: f"model-0000{1 + (number > 1)}-of-00002.safetensors" for number, name in enumerate(names)}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert read_contents(tmp_path).tensors.keys() == state.keys()
    assert read_checkpoint(tmp_path, grid=GRID).format == "Hugging Face ViT"
    for file, message in (("../x.safetensors", "not a file in its folder"), ("absent.safetensors", "lacks absent")):
        index.write_text(json.dumps({"weight_map": weight_map | {names[0]: file}}))
        with pytest.raises(InputError, match=message):
            read_checkpoint(tmp_path)
    index.write_text(json.dumps({"weight_map": weight_map | {"absent": first.name}}))
    with pytest.raises(InputError, match="lacks 'absent'"):
        read_checkpoint(tmp_path)
    for text in ("[]", "{", "{}", "[" * 100000):
        index.write_text(text)
        with pytest.raises(InputError, match="download it again"):
            read_checkpoint(tmp_path)
