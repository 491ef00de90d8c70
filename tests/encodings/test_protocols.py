"""The encoding interface serves methods that act on values, on tokens, after the softmax or on the width of q and k.

Each method is written here in a few lines and compared with a loop over its formula in a whole ViT, plain and with
hidden positions.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitpos.encodings.base import PositionEncoding
from vitpos.models.attention import SelfAttention
from vitpos.positions import Positions

GRID, DIM, HEADS, PREFIX = (2, 3), 16, 2, 1
N, T, D = 6, 7, DIM // HEADS
HIDDEN = torch.tensor([[False, True, False, False, True, False]])


def weights_of(seed, *shape):
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


class Shaw(PositionEncoding):
    """Relative vectors on keys and values, offsets clipped to ±1 on each axis (Shaw et al., 2018)."""

    def __init__(self):
        super().__init__()
        self.on_keys, self.on_values = weights_of(1, 9, D), weights_of(2, 9, D)

    def index(self, pos):
        clipped = pos.offsets().clamp(-1, 1).long() + 1
        return clipped[..., 0] * 3 + clipped[..., 1]  # (1, N, N)

    def bias(self, q, k, pos, layer):
        return torch.einsum("bhid,xijd->bhij", q[:, :, -len(pos.coords[0]) :], self.on_keys[self.index(pos)]) * D**-0.5

    def added_values(self, weights, v, pos, layer):
        return torch.einsum("bhij,xijd->bhid", weights, self.on_values[self.index(pos)])


class GTA(PositionEncoding):
    """Values rotated at the key and rotated back at the query (Miyato et al., ICLR 2024), in one plane."""

    def turn(self, v, pos, sign):
        angle = sign * (pos.coords[..., 0] + 0.5 * pos.coords[..., 1]).double()[:, None, :, None]
        a, b = v[..., :1], v[..., 1:2]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), v[..., 2:]], -1)

    def added_values(self, weights, v, pos, layer):
        return self.turn(weights @ self.turn(v, pos, 1), pos, -1) - weights @ v


class Parabolic(PositionEncoding):
    """Parabolas of the offset whose shape depends on the token that enters attention (PaPE)."""

    def __init__(self):
        super().__init__()
        self.a, self.b = weights_of(3, DIM, HEADS), weights_of(4, DIM, HEADS)

    def token_bias(self, x, pos, layer):
        offset = pos.offsets()[..., 0][:, None].double()  # (1, 1, N, N)
        a, b = (F.softplus(x @ self.a).mT[..., None], (x @ self.b).mT[..., None])
        return D**-0.5 * (-a * offset**2 + b * offset)


class GPSA(PositionEncoding):
    """Attention weights mixed with weights that depend on the distance (ConViT)."""

    gate = 0.3

    def position_weights(self, pos):
        return (-pos.offsets().norm(dim=-1)).softmax(-1)[:, None].double()

    def mix_weights(self, weights, pos, layer):
        return (1 - self.gate) * weights + self.gate * self.position_weights(pos)


class PoPE(PositionEncoding):
    """Magnitude by content, angle by position: q and k become twice as wide, the scale of the logits stays."""

    unrotated_prefix = True

    def rotate(self, q, k, pos, layer):
        angle = pos.coords[..., 0].double()[:, None, :, None] * 0.7
        return tuple(torch.cat([F.softplus(x) * angle.cos(), F.softplus(x) * angle.sin()], -1) for x in (q, k))


class GOAT(PositionEncoding):
    """A prior over offsets that takes the place of some channels of each head."""

    unrotated_prefix = True

    def rotate(self, q, k, pos, layer):
        angle = pos.coords[..., 1].double()[:, None, :, None].expand(len(q), HEADS, -1, -1)
        features = torch.cat([angle.cos(), angle.sin()], -1)
        return torch.cat([q[..., :-2], 2 * features], -1), torch.cat([k[..., :-2], features], -1)


def logit(encoding, q, k, x, pos, i, j):
    """The logit of patches i and j (counted without the prefix) by the formula of the method."""
    plain = q[PREFIX + i] @ k[PREFIX + j] * D**-0.5
    (ri, ci), (rj, cj) = pos.coords[0, i].tolist(), pos.coords[0, j].tolist()
    match encoding:
        case Shaw():

            def clip(d):
                return int(max(-1, min(1, d))) + 1

            return plain + q[PREFIX + i] @ encoding.on_keys[clip(ri - rj) * 3 + clip(ci - cj)] * D**-0.5
        case Parabolic():
            a, b = F.softplus(x[PREFIX + i] @ encoding.a), x[PREFIX + i] @ encoding.b
            return plain + D**-0.5 * (-a * (ri - rj) ** 2 + b * (ri - rj))  # (heads,)
        case PoPE():
            product = F.softplus(q[PREFIX + i]) * F.softplus(k[PREFIX + j]) * math.cos(0.7 * (ri - rj))
            return product.sum() * D**-0.5
        case GOAT():
            return (q[PREFIX + i, :-2] @ k[PREFIX + j, :-2] + 2 * math.cos(ci - cj)) * D**-0.5
    return plain


def by_loops(attention, encoding, x, pos):
    """Attention of one image (T, DIM) by loops over pairs; a pair with a hidden position gets the plain product."""
    qkv = attention.qkv(x).unflatten(1, (3, HEADS, D))
    known = [True] * PREFIX + pos.known[0].tolist()
    out = torch.zeros(T, HEADS, D, dtype=torch.float64)
    for h in range(HEADS):
        q, k, v = qkv[:, 0, h], qkv[:, 1, h], qkv[:, 2, h]
        logits = q @ k.mT * D**-0.5
        for i in range(N):
            for j in range(N):
                if known[PREFIX + i] and known[PREFIX + j]:
                    value = logit(encoding, q, k, x, pos, i, j)
                    logits[PREFIX + i, PREFIX + j] = value[h] if value.ndim else value
        weights = logits.softmax(-1)
        if isinstance(encoding, GPSA):
            position = encoding.position_weights(pos)[0, 0]
            mixed = weights.clone()
            for i in range(PREFIX, T):
                seen = [j for j in range(PREFIX, T) if known[i] and known[j]]
                sums = weights[i, seen].sum()
                shares = 0.7 * weights[i, seen] / sums + 0.3 * position[i - PREFIX, [j - PREFIX for j in seen]]
                mixed[i, seen] = sums * shares / shares.sum()
            weights = mixed
        for i in range(T):
            for j in range(T):
                value = v[j]
                if i >= PREFIX <= j and known[i] and known[j]:
                    a, b = i - PREFIX, j - PREFIX
                    if isinstance(encoding, Shaw):
                        (ri, ci), (rj, cj) = pos.coords[0, a].tolist(), pos.coords[0, b].tolist()

                        def clip(d):
                            return int(max(-1, min(1, d))) + 1

                        value = value + encoding.on_values[clip(ri - rj) * 3 + clip(ci - cj)]
                    if isinstance(encoding, GTA):
                        there = encoding.turn(value[None, None, None].expand(1, 1, N, D), pos, 1)[0, 0, b]
                        value = encoding.turn(there[None, None, None].expand(1, 1, N, D), pos, -1)[0, 0, a]
                out[i, h] += weights[i, j] * value
    return attention.proj(out.flatten(1))


@pytest.mark.parametrize("hide", [False, True], ids=["plain", "hidden"])
@pytest.mark.parametrize("make", [Shaw, GTA, Parabolic, GPSA, PoPE, GOAT])
def test_a_method_beyond_bias_and_rotation_is_its_formula_and_a_hidden_pair_gets_the_plain_product(make, hide):
    torch.manual_seed(0)
    attention, encoding = SelfAttention(DIM, HEADS).double(), make()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    pos = Positions.from_grid(GRID)
    pos = pos.hide(HIDDEN) if hide else pos
    expected = torch.stack([by_loops(attention, encoding, image, pos) for image in x])
    torch.testing.assert_close(attention(x, encoding, pos, 0), expected, rtol=1e-9, atol=1e-9)
    plain = attention(x, PositionEncoding(), pos, 0)
    assert not torch.allclose(expected, plain, atol=1e-3), "the method has an effect"
    both = attention(x, make() + PositionEncoding(), pos, 0)
    torch.testing.assert_close(both, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", [Shaw, GTA, Parabolic, GPSA, PoPE, GOAT])
def test_with_all_positions_hidden_every_method_is_plain_attention(make):
    attention, x = SelfAttention(DIM, HEADS).double(), torch.randn(2, T, DIM, dtype=torch.float64)
    pos = Positions.from_grid(GRID).hide(torch.ones(1, N, dtype=torch.bool))
    torch.testing.assert_close(attention(x, make(), pos, 0), attention(x, PositionEncoding(), pos, 0))
