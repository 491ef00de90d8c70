"""Rotary frequencies, offset biases and their variance decomposition."""

import math
from dataclasses import replace

import pytest
import torch

from tests.inspection.models import GRID
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.encodings.protocols import resized
from vitpos.encodings.relative import RelativeBias
from vitpos.inspection.offsets import bias_numbers, inspect_offsets, offset_biases, rotary_frequencies
from vitpos.positions import Positions

TABLE_GRID = (4, 7)


@pytest.mark.parametrize(
    "encoding",
    [
        *("rope", "rope(base=10, ntk_factor=2)", "rope_mixed", "rope_dino", "liere(block_size=2)"),
        *("rope_golden", "rope_spiral", "comrope", "comrope(mode='ap')"),
    ],
)
def test_frequencies_are_those_that_rotate_queries_and_keys(encoding):
    geometry = Geometry(16, 2, 2, GRID, 1)
    part = ENCODINGS.build(encoding, geometry).eval()
    pos = Positions.from_grid(GRID)
    frequencies = rotary_frequencies(part)
    assert frequencies.shape == (2, 2, 4, 2)
    torch.manual_seed(0)
    q = torch.randn(1, 2, 24, 8)
    for layer in (0, 1):
        rotated = part.rotate(q, q, pos, layer)[0]
        coords = part.centered_coords(pos, q.dtype)[0]
        angles = torch.einsum("na,hta->hnt", coords, frequencies[layer])
        pairs = torch.view_as_complex(q[0].unflatten(-1, (4, 2)).contiguous())
        expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        torch.testing.assert_close(rotated[0], expected, atol=1e-5, rtol=1e-4)


def test_frequencies_of_a_sum_are_those_of_its_rotary_parts():
    geometry = Geometry(16, 2, 2, GRID)
    assert rotary_frequencies(ENCODINGS.build("learned + rope_mixed + mjp", geometry)).shape == (2, 2, 4, 2)
    assert rotary_frequencies(ENCODINGS.build("rope + rope_dino", geometry)).shape == (2, 2, 8, 2)
    assert rotary_frequencies(ENCODINGS.build("learned + mjp", geometry)) is None
    assert rotary_frequencies(ENCODINGS.build("liere(block_size=8)", geometry)) is None
    assert rotary_frequencies(ENCODINGS.build("comrope(block_size=4)", geometry)) is None


@pytest.mark.parametrize("encoding", ["relative(std=1.0)", "learned + relative(std=1.0) + mjp"])
def test_offset_biases_of_relative_are_its_table(encoding):
    geometry = Geometry(16, 2, 3, GRID, 1)
    part = ENCODINGS.build(encoding, geometry)
    [table] = [one.table for one in part.parts if isinstance(one, RelativeBias)]
    found = offset_biases(part, geometry)
    assert found.shape == (3, 2, 7, 11)
    assert torch.equal(found, table.detach().permute(0, 3, 1, 2))
    larger = resized(part, (5, 8))
    again = offset_biases(larger, replace(geometry, grid=(5, 8)), train_grid=GRID)
    [table] = [one.table for one in larger.parts if isinstance(one, RelativeBias)]
    torch.testing.assert_close(again, table.detach().permute(0, 3, 1, 2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoding", ["alibi", "lookhere", "cpb", "relative + alibi"])
def test_offset_biases_give_the_bias_of_every_pair(encoding):
    geometry = Geometry(16, 2, 2, GRID)
    part = ENCODINGS.build(encoding, geometry)
    found, pos = offset_biases(part, geometry), Positions.from_grid(GRID)
    at = pos.offsets()[0].long() + torch.tensor(GRID) - 1
    with torch.inference_mode():
        pairs = part.bias(torch.zeros(1, 2, 24, 8), torch.zeros(1, 2, 24, 8), pos, 1)[0]
    torch.testing.assert_close(found[1][:, at[..., 0], at[..., 1]], pairs)


@pytest.mark.parametrize("encoding", ["none", "learned", "rope", "sape2", "cope", "decomposed"])
def test_encodings_without_a_bias_by_offset_have_no_table(encoding):
    geometry = Geometry(16, 2, 2, GRID)
    assert offset_biases(ENCODINGS.build(encoding, geometry), geometry) is None


def test_masked_offsets_are_left_out_of_the_numbers():
    biases = {"layer 0": torch.randn(3, 7, 13)}
    biases["layer 0"][1, :3] = -torch.inf
    pair = torch.randn(7, 4), torch.randn(13, 4)
    section = inspect_offsets(biases, torch.randn(1, 3, 4, 2), {"layer 0": pair})
    assert {figure.name for figure in section.figures} == {
        "biases",
        "frequencies",
        "decomposed-rows",
        "decomposed-columns",
    }
    numbers = section.numbers["biases"]["layer 0"]
    numbers |= numbers.pop("noise")
    assert all(
        math.isfinite(x) for values in numbers.values() for x in (values if isinstance(values, list) else [values])
    )


def test_biases_of_distance_row_and_sign_are_separated():
    down, right = (torch.arange(1 - side, side).double() for side in TABLE_GRID)
    heads = [
        -(down[:, None].square() + right.square()).sqrt(),  # distance alone
        down.abs()[:, None].expand(-1, len(right)),  # rows alone
        right.expand(len(down), -1),  # changes sign when query and key are exchanged
    ]
    numbers = bias_numbers(torch.stack(heads))
    assert numbers["by_distance"][0] == numbers["by_row"][1] == numbers["antisymmetric"][2] == pytest.approx(1)
    assert (
        numbers["antisymmetric"][0] == numbers["antisymmetric"][1] == pytest.approx(0)
        and numbers["by_column"][1] < 0.01
    )
    equal = bias_numbers(torch.stack([heads[0], heads[0]]))
    assert equal["diversity"] == pytest.approx(0) and numbers["diversity"] > 0.5
    pairs = torch.randn(1, 7, 13)
    weights = (4 - down.abs())[:, None] * (7 - right.abs())
    expanded = torch.cat([value.expand(int(n)) for value, n in zip(pairs.flatten(), weights.flatten(), strict=True)])
    assert bias_numbers(pairs)["std"] == [pytest.approx(expanded.double().std(correction=0).item())]


def test_fractions_of_white_noise_match_their_expectation():
    noise = torch.randn(4000, 7, 13, generator=torch.Generator().manual_seed(0))
    noise[:, 0, 3:5] = -torch.inf
    numbers = bias_numbers(noise)
    for part, share in numbers["noise"].items():
        assert sum(numbers[part]) / 4000 == pytest.approx(share, rel=0.05)
    even = bias_numbers(torch.randn(1, 7, 7))["noise"]
    assert even["by_row"] == pytest.approx(even["by_column"])
    assert even["by_row"] < even["by_distance"] < even["antisymmetric"] < 0.5


def test_the_antisymmetric_fraction_is_at_most_one():
    biases = torch.full((1, 7, 13), -torch.inf)
    biases[0, 4:] = 0.0
    biases[0, 3, 5], biases[0, 3, 7] = -9.0, 9.0
    assert 0 < bias_numbers(biases)["antisymmetric"][0] <= 1
