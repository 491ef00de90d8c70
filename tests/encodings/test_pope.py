"""PoPE agrees with PoPE-pytorch; pairs with a prefix token get the plain product."""

import math

import pytest
import torch

from tests.encodings.inputs import GRID, HEADS, WIDTH, N, build, queries_and_keys
from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry
from vitpos.models.attention import attention_logits
from vitpos.positions import Positions


@pytest.mark.parametrize("base", [10000.0, 30.0])
def test_logits_and_gradients_agree_with_pope_pytorch(base):
    module = peer("PoPE_pytorch.pope_nd")
    theirs = module.AxialPoPE(WIDTH, heads=HEADS, axial_dims=(WIDTH // 2, WIDTH // 2), theta=base)
    ours = build(f"pope(base={base})", dtype=torch.float32, scale=3.0)  # some phases are beyond both bounds
    for layer in range(2):
        with torch.no_grad():
            theirs.bias.copy_(ours.phase[layer])
        results = []
        for rotate in (
            lambda q, k, layer=layer: ours.rotate(q, k, Positions.from_grid(GRID), layer),
            lambda q, k: theirs.apply_pope_to_qk(theirs(GRID), q, k),
        ):
            q, k = (x.requires_grad_() for x in queries_and_keys(dtype=torch.float32))
            rotated = rotate(q, k)
            assert all(x.shape == (2, HEADS, N, 2 * WIDTH) for x in rotated)
            logits = rotated[0] @ rotated[1].mT
            logits.square().mean().backward()
            results.append((logits, q.grad, k.grad))
        results[0] += (ours.phase.grad[layer],)
        results[1] += (theirs.bias.grad,)
        for mine, reference in zip(*results, strict=True):
            torch.testing.assert_close(mine, reference, atol=1e-5, rtol=1e-5)
        ours.phase.grad = theirs.bias.grad = None


def test_pairs_with_a_prefix_token_get_the_plain_product():
    """PoPE-pytorch does the same for tokens without a position."""
    encoding, pos = build("pope", num_prefix=2), Positions.from_grid(GRID)
    q, k = queries_and_keys(N + 2)
    logits, plain = attention_logits(q, k, encoding, pos, 1), q @ k.mT / 4
    torch.testing.assert_close(logits[:, :, :2], plain[:, :, :2])
    torch.testing.assert_close(logits[..., :2], plain[..., :2])
    among = attention_logits(q[:, :, 2:], k[:, :, 2:], encoding, pos, 1)
    torch.testing.assert_close(logits[..., 2:, 2:], among)
    module = peer("PoPE_pytorch.attention")
    theirs = peer("PoPE_pytorch.pope_nd").AxialPoPE(WIDTH, heads=HEADS, axial_dims=(WIDTH // 2, WIDTH // 2))
    freqs, _ = theirs(GRID)
    embed = freqs.double(), encoding.phase[1].clamp(-2 * math.pi, 0)
    expected = module.compute_attn_similarity_non_fused(q, k, embed, torch.arange(2, N + 2))
    torch.testing.assert_close(logits, expected / 4, atol=1e-5, rtol=1e-5)


def test_the_fused_logits_and_their_gradients_are_those_of_rotation_and_undoing_it_for_prefix_tokens():
    encoding, pos = build("pope", num_prefix=2), Positions.from_grid(GRID)
    results = []
    for one in (encoding, build("rope_golden(zero_fraction=0.99)", num_prefix=2) + encoding):  # which rotates nothing
        q, k = (x.requires_grad_() for x in queries_and_keys(N + 2))
        encoding.phase.grad = None
        logits = attention_logits(q, k, one, pos, 1)
        logits.square().sum().backward()
        results.append((logits, q.grad, k.grad, encoding.phase.grad))
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain)


def test_phases_start_at_zero_or_uniformly():
    geometry = Geometry(HEADS * WIDTH, HEADS, 2, GRID)
    assert not ENCODINGS.build("pope", geometry).phase.any()
    phase = ENCODINGS.build("pope(uniform_phase=True)", geometry).phase
    assert phase.min() >= -2 * math.pi and phase.max() <= 0 and phase.std() > 1


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="an even head width, not 7"):
        ENCODINGS.build("pope", Geometry(14, 2, 1, GRID))
