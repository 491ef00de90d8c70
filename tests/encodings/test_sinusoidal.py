"""Sinusoids are their formula and agree with timm."""

import math

import torch

from tests.encodings.inputs import GRID, build
from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models.token_embedding import embed
from vitpos.positions import Positions

GEOMETRY = Geometry(dim=16, heads=2, depth=2, grid=(3, 5))


def added(spec, pos, dim=16):
    encoding = ENCODINGS.build(spec, GEOMETRY)
    return embed(encoding, torch.zeros(1, pos.index.shape[1], dim), pos, 0)[0]


def test_sinusoids_follow_the_formula_row_before_column():
    vectors = added("sinusoidal(temperature=100.0)", Positions.from_grid((3, 5)))
    for row in range(3):
        for column in range(5):
            expected = [
                wave(at * 100.0 ** (-k / 4)) for wave in (math.sin, math.cos) for at in (row, column) for k in range(4)
            ]
            assert torch.allclose(vectors[row * 5 + column], torch.tensor(expected), atol=1e-5)


def test_inner_products_of_sinusoids_depend_on_the_offset_alone():
    vectors = added("sinusoidal", Positions.from_grid((3, 5)))
    moved = added("sinusoidal", Positions.from_grid((3, 5)).shift((4, 7)))
    assert torch.allclose(vectors @ vectors.mT, moved @ moved.mT, atol=1e-4)


def test_sines_agree_with_timm():
    timm = peer("timm.layers.pos_embed_sincos")
    theirs = timm.build_sincos2d_pos_embed(list(GRID), 32, temperature=100.0)
    assert (
        build("sinusoidal(temperature=100.0)").vectors(Positions.from_grid(GRID), 0, torch.float32)[0] - theirs
    ).abs().max() < 1e-5
