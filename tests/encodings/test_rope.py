"""RoPE agrees with timm and rotary-embedding-torch; prefix modes and NTK scaling."""

import math

import pytest
import torch

from tests.encodings.inputs import CELLS, GRID, N, build, queries_and_keys
from tests.references import peer
from vitpos.models.attention import attention_logits
from vitpos.positions import Positions


def test_rotation_agrees_with_timm():
    """timm's tables put the row before the column where the release puts the column first: the halves are swapped."""
    timm = peer("timm.layers.pos_embed_sincos")
    q, _ = queries_and_keys(dtype=torch.float32)
    ours = build("rope(base=100.0)", dtype=torch.float32).rotate(q, q, Positions.from_grid(GRID), 0)[0]
    bands = 100.0 ** -(torch.arange(4) / 4)
    sin, cos = timm.build_rotary_pos_embed(list(GRID), bands=bands, in_pixels=False)
    swapped = torch.cat([q[..., 8:], q[..., :8]], -1)
    theirs = timm.apply_rot_embed(swapped, sin, cos)
    assert (ours - torch.cat([theirs[..., 8:], theirs[..., :8]], -1)).abs().max() < 1e-5


def test_axial_rotation_agrees_with_rotary_embedding_torch():
    module = peer("rotary_embedding_torch")
    rotary = module.RotaryEmbedding(dim=8, freqs_for="lang", theta=100.0)
    q, _ = queries_and_keys(dtype=torch.float32)
    row, column = (torch.tensor([place[axis] for place in CELLS]).float() for axis in (0, 1))
    # the release: frequencies base^(−t/(d/4)); theirs: theta^(−2t/dim) with dim = d/2, which is the same
    expected = torch.cat(
        [
            module.apply_rotary_emb(rotary.forward(at, seq_len=None), part)
            for at, part in ((column, q[..., :8]), (row, q[..., 8:]))
        ],
        -1,
    )
    ours = build("rope(base=100.0)", dtype=torch.float32).rotate(q, q, Positions.from_grid(GRID), 0)[0]
    assert (ours - expected).abs().max() < 1e-5


@pytest.mark.parametrize("prefix", ["origin", "unrotated", "learned", "center"])
def test_prefix_mode_sets_the_origin_of_rotation_or_leaves_prefix_tokens_out(prefix):
    encoding, (q, k) = build(f"rope(prefix_mode='{prefix}')", num_prefix=1), queries_and_keys(N + 1)

    def logits(pos):
        return attention_logits(q, k, encoding, pos, 0)

    here, there = logits(Positions.from_grid(GRID)), logits(Positions.from_grid(GRID).shift((1, 2)))
    assert torch.allclose(here[..., 1:, 1:], there[..., 1:, 1:]), "patch logits depend on offsets only"
    plain = q @ k.mT / 4
    if prefix == "unrotated":
        assert torch.allclose(here[..., 0, :], plain[..., 0, :]) and torch.allclose(here[..., 0], plain[..., 0])
    else:  # a patch at the origin gets the plain product with the prefix token
        place = (
            encoding.learned_origin.tolist()
            if prefix == "learned"
            else {"origin": (0.0, 0.0), "center": (1.0, 2.0)}[prefix]
        )
        same = logits(Positions.from_grid(GRID).with_coords(torch.tensor(place).expand(1, N, 2)))
        assert torch.allclose(same[..., 0, :], plain[..., 0, :], atol=1e-5)
        assert not torch.allclose(here[..., 0, 1:], plain[..., 0, 1:], atol=1e-3)


def test_ntk_scaling_keeps_the_fastest_pair_and_slows_the_slowest_by_its_factor():
    plain, scaled = build("rope"), build("rope(ntk_factor=4.0)")
    q = torch.zeros(1, 1, 2, 16, dtype=torch.float64)
    q[..., 0::2] = 1
    pos = Positions.from_grid((1, 2))
    angles = [
        torch.atan2(y[..., 1::2], y[..., 0::2])[0, 0, 1, :4]
        for y in (e.rotate(q, q, pos, 0)[0] for e in (plain, scaled))
    ]
    assert angles[0][0] == angles[1][0]
    assert torch.allclose(angles[0][-1] / angles[1][-1], torch.tensor(4.0, dtype=torch.float64))


@pytest.mark.parametrize("pairing", ["neighbors", "halves"])
@pytest.mark.parametrize("axes", ["column_first", "row_first"])
@pytest.mark.parametrize(
    ("options", "at"),
    [
        ("", lambda index, side, ref: index),
        ("offset=1.0, ref_grid=(5, 9), ", lambda index, side, ref: (index + 1) * ref / side),
        (
            "prefix_mode='center', normalized=True, ",
            lambda index, side, ref: 2 * math.pi * (2 * (index + 0.5) / side - 1),
        ),
    ],
)
def test_a_dialect_is_the_literal_rotation_of_each_pair(pairing, axes, options, at):
    """Channel by channel, on a grid that is not square; the logit of two patches is that of the frequencies too."""
    encoding, (q, _) = build(f"rope({options}pairing='{pairing}', axes='{axes}')"), queries_and_keys()
    found, expected = encoding.rotate(q, q, Positions.from_grid(GRID), 0)[0], torch.empty_like(q)
    width = q.shape[-1]
    for token, (row, column) in enumerate(CELLS):
        coords = [at(row, GRID[0], 5), at(column, GRID[1], 9)]
        for pair in range(width // 2):
            second, step = divmod(pair, width // 4)
            axis = second if axes == "row_first" else 1 - second
            angle = coords[axis] * 100.0 ** (-step / (width // 4))
            one, two = (2 * pair, 2 * pair + 1) if pairing == "neighbors" else (pair, pair + width // 2)
            a, b, c, s = q[:, :, token, one], q[:, :, token, two], math.cos(angle), math.sin(angle)
            expected[:, :, token, one], expected[:, :, token, two] = a * c - b * s, a * s + b * c
    assert (found - expected).abs().max() < 1e-12
    angles = encoding.angles(Positions.from_grid(GRID), q.dtype)[0, 0]  # (N, d/2)
    steps = torch.tensor(CELLS, dtype=q.dtype)
    by_frequency = (steps[-1] - steps[0]) @ encoding.frequencies()[0, 0].to(q.dtype).mT
    assert torch.allclose(angles[-1] - angles[0], by_frequency, atol=1e-5)


def test_a_reference_grid_of_no_rows_is_refused():
    with pytest.raises(ValueError, match=r"ref_grid=\(0, 3\)"):
        build("rope(ref_grid=(0, 3))")
