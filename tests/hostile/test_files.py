"""Checksums, damaged run files, formulas and escapes: promises of the readers and writers of files."""

import csv
import json
import os

import pytest
import torch

from vitpos.checksums import has_wrong_checksum
from vitpos.errors import RunError
from vitpos.files import locked, read_csv, read_json, read_tensors, write_csv, write_tensors
from vitpos.inspection.budget import Budget
from vitpos.lab.trust import is_trusted, sign
from vitpos.plotting import image_strips, svg
from vitpos.printable import printable
from vitpos.regular_files import read_regular


def test_one_flipped_bit_is_found_and_equal_tensors_give_equal_files(tmp_path):
    tensors, about = {"b": torch.arange(6.0).view(2, 3), "a": torch.zeros(1)}, {"z": "1", "cell": "ü"}
    one, other = (write_tensors(tmp_path / name, tensors, about) for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    found, metadata = read_tensors(one)
    assert torch.equal(found["b"], tensors["b"]) and metadata["cell"] == "ü"
    content = one.read_bytes()
    for position in (len(content) - 1, len(content) - 20, content.index(b"cell") + 8):
        damaged = bytearray(content)
        damaged[position] ^= 1
        one.write_bytes(bytes(damaged))
        with pytest.raises(RunError, match=r"checksum|damaged"):
            read_tensors(one)


def test_files_without_a_checksum_are_read(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "old.safetensors", {"cell": "{}"})
    assert not has_wrong_checksum(tmp_path / "old.safetensors")
    assert read_tensors(tmp_path / "old.safetensors")[0]["a"].sum() == 2


@pytest.mark.parametrize("text", ["", "[1]", "3", "{", "[" * 100_000, '{"a": 1'])
def test_json_of_another_shape_is_one_line(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RunError, match="damaged") as caught:
        read_json(tmp_path / "x.json")
    assert "\n" not in str(caught.value)


def test_truncated_csv_is_one_line_and_formulas_are_texts(tmp_path):
    (tmp_path / "log.csv").write_text("epoch,loss\n1,0.5\n2")
    with pytest.raises(RunError, match="fewer values"):
        read_csv(tmp_path / "log.csv")
    path = write_csv(tmp_path / "x.csv", ["name", "value"], [["=1+1", -1.5], ["rope", 2]])
    with path.open(newline="") as file:
        assert list(csv.reader(file))[1:] == [["'=1+1", "-1.5"], ["rope", "2"]]


def test_a_lock_that_is_a_folder_or_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(OSError), locked(tmp_path, wait=False):
        pass
    with pytest.raises(OSError, match="FIFO"):
        read_regular(tmp_path / ".lock")


def test_a_run_is_trusted_if_its_own_key_signed_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("VITPOS_TRUST", raising=False)
    (tmp_path / "experiment.json").write_text(json.dumps({"name": "a"}))
    assert not is_trusted(tmp_path)
    sign(tmp_path)
    assert is_trusted(tmp_path) and is_trusted(tmp_path / "cells" / "x" / "weights.safetensors")
    (tmp_path / "experiment.json").write_text(json.dumps({"name": "b"}))
    assert not is_trusted(tmp_path)
    (tmp_path / "experiment.json").write_text(json.dumps({"name": "a"}))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_trusted(tmp_path), "another user's key"


def test_names_print_without_escapes_and_draw_with_dollar_signs():
    assert printable("a\x1b[31mb\nc") == "a\\x1b[31mb\nc"
    images = torch.zeros(2, 4, 4, 1, dtype=torch.uint8).numpy()
    assert b"<svg" in svg(image_strips({"$x^$": images}))


def test_what_exceeds_the_budget_is_subsampled_with_a_note():
    notes = []
    budget = Budget()
    assert budget.table(torch.zeros(500, 400, 8), notes).shape[:2].numel() <= 400
    assert len(budget.biases({f"{n}": torch.zeros(2, 3, 3) for n in range(2000)}, notes)) == 64
    pair = budget.decomposed({"a": (torch.zeros(20_001, 4), torch.zeros(9, 4))}, notes)["a"]
    assert len(pair[0]) <= 1024 and len(notes) == 3
    usual = torch.zeros(37, 37, 1024)
    assert budget.table(usual, notes) is usual and len(notes) == 3
