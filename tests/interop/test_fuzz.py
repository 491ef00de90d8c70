"""Damaged and hostile checkpoints give a result or an error of one line, never another exception."""

import json
import time
import warnings
from dataclasses import replace

import pytest
import torch

from tests.interop.checkpoints import (
    COUNT,
    DIM,
    FILE_FORMATS,
    GRID,
    HEADS,
    ODD_NAMES,
    assert_one_line,
    assert_rejected,
    hugging_face,
    mae,
    random,
    save,
    swin_index,
    vit,
)
from vitpos.errors import InputError
from vitpos.inspection.inspect import target_from_checkpoint
from vitpos.inspection.offsets import inspect_offsets
from vitpos.inspection.table import inspect_table
from vitpos.interop.checkpoint import read_checkpoint, recognize
from vitpos.interop.tensor_files import read_contents


@pytest.mark.parametrize("name", ODD_NAMES)
def test_hostile_tensor_names_are_sanitized(tmp_path, name):
    bias = f"{name}.0.attn.relative_position_bias_table"
    for state in (
        {name: random(3), f"{name}2": random(3)},
        {bias: random(45, HEADS)},
        {bias: random(4)},
        {bias: torch.full((45, HEADS), torch.nan)},
        {f"{name}.rel_pos_h": random(5, 4)},
        vit() | {f"{name}.freqs": torch.full((2, 4), torch.nan)},
        {f"pos_embed.{name}": torch.zeros(1).expand(10**6)},
    ):
        assert_rejected(
            save(tmp_path / "x.pth", state), "known vision|gives? grid|not a table|not tables|NaN|claims|no named"
        )
    state = vit() | {
        bias: random(45, HEADS),
        f"{name}.rope.freqs_cos": random(3),
        f"{name}.relative_position_index": random(3),
    }
    save(tmp_path / "pytorch_model.bin", hugging_face(state))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name, "architecture": f"eva02{name}"}))
    found = read_checkpoint(tmp_path, grid=GRID)
    texts = [found.format, found.grid_source, found.axes, *found.encodings.values(), *found.prefix_tokens]
    assert all(text.isprintable() and len(text) < 200 for text in texts), "everything printed"
    assert all(key.isprintable() and "$" not in key for key in found.biases) and found.biases


def test_a_small_file_cannot_cause_much_work(tmp_path):
    state = vit() | {"pos_embed": random(1, 65536, 8), "reg_token": torch.zeros(1, 10**12, 0)}
    start = time.process_time()
    path = save(tmp_path / "x.safetensors", state)
    assert read_checkpoint(path, grid=(256, 256)).prefix_tokens == ("CLS",)
    assert_rejected(path, "65536 positions")
    table = torch.cat([torch.zeros(1, 8), mae((240, 273), 8)])[None]
    assert read_checkpoint(save(path, state | {"pos_embed": table})).grid == (240, 273), "one of 96 factorizations"
    assert time.process_time() - start < 5


def mutants(content, generator):
    """Damaged versions of a file: bytes flipped, cut off, appended, zeroed, moved, header numbers changed."""
    size = len(content)
    positions = torch.randint(size, (8,), generator=generator).tolist()
    start, end = sorted(positions[:2])
    flipped = bytearray(content)
    for position in positions:
        flipped[position] ^= 1 << (position % 8)
    head = bytearray(content)
    for position in positions:
        head[position % min(size, 400)] = position % 256
    tail = bytearray(content)
    for position in positions:
        tail[-1 - position % min(size, 400)] = position % 256
    yield bytes(flipped)
    yield content[:start]
    yield content + content[start:end] + b"\0"
    yield content[:start] + bytes(end - start) + content[end:]
    yield content[start:] + content[:start]
    yield content[:start] + content[end:]
    yield bytes(head)
    yield bytes(tail)
    digits = [position for position in range(min(size, 4000)) if content[position : position + 1].isdigit()]
    yield bytes(
        57 if position in digits[positions[0] % max(len(digits), 1) :][:2] else byte
        for position, byte in enumerate(content)
    )


@pytest.mark.parametrize(("name", "options"), FILE_FORMATS[:4])
def test_mutated_files_give_a_result_or_one_line(tmp_path, name, options):
    """More than 400 files in total, also with the name of another format."""
    generator = torch.Generator().manual_seed(len(name))
    state = vit(depth=1) | {"blocks.0.attn.relative_position_bias_table": random(45, HEADS), "freqs": random(2, 1, 4)}
    content = save(tmp_path / name, state, **options).read_bytes()
    rejected = accepted = 0
    inspected = set()
    for number in range(12):
        for mutant in mutants(content, generator):
            path = tmp_path / f"mutant{FILE_FORMATS[number % 4][0][1:]}"
            path.write_bytes(mutant)
            try:
                with warnings.catch_warnings(action="error"):
                    read_checkpoint(path, grid=GRID)
                    inspect_tables(recognize(read_contents(path), grid=GRID), inspected)
                accepted += 1
            except InputError as error:
                assert_one_line(error, path)
                rejected += 1
    assert accepted + rejected == 108 and rejected > 30 and inspected


def inspect_tables(found, inspected, *, limit=6, tables=2):
    """Inspects tensors that were not inspected before, at most ``limit`` times and ``tables`` position tables."""
    target = target_from_checkpoint(found)
    tensors = [tensor for tensor in (target.table, *target.biases.values(), target.frequencies) if tensor is not None]
    numbers = b"".join(tensor.numpy().tobytes() for tensor in tensors)
    json.dumps(target.metadata).encode()
    if numbers in inspected or len(inspected) >= limit:
        return
    inspected.add(numbers)
    sections = (
        [inspect_offsets(target.biases, target.frequencies)] if target.biases or target.frequencies is not None else []
    )
    if target.table is not None and len(inspected) <= tables:
        sections.append(inspect_table(target.table))
    for section in sections:
        json.dumps(section.numbers)


STATE = {
    "pos_embed": random(1, 1 + COUNT, DIM),
    "blocks.0.attn.relative_position_bias_table": random(45, HEADS),
    "blocks.1.attn.relative_position_index": swin_index(GRID),
    "blocks.1.attn.rel_pos_h": random(5, 4),
    "blocks.1.attn.rel_pos_w": random(9, 4),
    "blocks.1.attn.cpb_mlp.0.weight": random(6, 2),
    "blocks.1.attn.cpb_mlp.0.bias": random(6),
    "blocks.1.attn.cpb_mlp.2.weight": random(HEADS, 6),
    "blocks.1.attn.relative_coords_table": random(1, 5, 9, 2),
    "freqs": random(2, 1, 4),
    "freqs_t_x": torch.arange(COUNT) % 5,
    "freqs_t_y": torch.arange(COUNT) // 5,
    "rope_embed.periods": torch.tensor([1.0, 10.0]),
    "rope.freqs_cos": (AXIAL := torch.stack([torch.arange(COUNT) // 5, torch.arange(COUNT) % 5], 1)).cos(),
    "rope.freqs_sin": AXIAL.sin(),
    "reg_token": random(1, 2, DIM),
    "patch_embed.proj.weight": random(DIM, 3, 2, 4),
}


PRECEDING = {  # rotary encodings that take precedence over the changed one
    "rope_embed.periods": (),
    "rope.freqs_cos": ("rope_embed.periods", "freqs"),
    "rope.freqs_sin": ("rope_embed.periods", "freqs"),
}


CHANGES = {
    "zeros": torch.zeros_like,
    "ones": torch.ones_like,
    "tiny": lambda tensor: torch.full_like(tensor, 1e-42),
    "huge": lambda tensor: torch.full_like(tensor, 3e38) * torch.sign(tensor),
    "large": lambda tensor: 1e5 * tensor,
    "one NaN": lambda tensor: tensor.flatten().index_fill(0, torch.tensor([0]), torch.nan).view_as(tensor),
    "integers": lambda tensor: tensor.long(),
    "half": lambda tensor: tensor.half(),
    "complex": lambda tensor: tensor.to(torch.complex64),
    "booleans": lambda tensor: tensor > 0,
    "scalar": lambda tensor: tensor.flatten()[0],
    "flat": torch.flatten,
    "nothing": lambda tensor: tensor[:0],
    "no width": lambda tensor: tensor[..., :0],
    "one axis more": lambda tensor: tensor[None],
    "transposed": lambda tensor: tensor.mT if tensor.ndim > 1 else tensor.flip(0),
    "one row": lambda tensor: tensor[:1],
    "twice": lambda tensor: torch.cat([tensor, tensor]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STATE)
def test_mutated_tensors_give_a_result_or_one_line(tmp_path, name):
    removed = PRECEDING.get(name, ("rope_embed.periods",))
    whole = {key: tensor for key, tensor in (vit(depth=1) | STATE).items() if key not in removed}
    contents = read_contents(save(tmp_path / "x.pth", whole))
    inspected = set()
    for mutant in (*CHANGES.values(), *ODD_NAMES):
        if callable(mutant):
            changed = whole | {name: mutant(whole[name].float())}
        else:
            changed = {f"{mutant}.{key}" if key == name else key: tensor for key, tensor in whole.items()}
        try:
            with warnings.catch_warnings(action="error"):
                inspect_tables(
                    recognize(replace(contents, tensors=changed), grid=GRID),
                    inspected,
                    tables=8 * (name == "pos_embed"),
                )
        except InputError as error:
            assert_one_line(error, contents.path)
