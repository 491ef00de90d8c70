"""The ViT: prefix tokens, drop path, resizing, and the same weights around every encoding."""

import pytest
import torch

from vitpos.models import MODELS
from vitpos.models.vit import DropPath


@pytest.mark.parametrize(
    ("pool", "registers", "prefix"), [("cls", 0, 1), ("cls", 4, 5), ("mean", 0, 0), ("mean", 2, 2)]
)
def test_prefix_tokens_are_cls_and_registers(pool, registers, prefix):
    spec = f"vit(patch=(2, 4), dim=16, depth=1, heads=2, pool='{pool}', registers={registers})"
    model = MODELS.build(spec, (3, 6, 8), 4, "learned")
    x, pos = model.forward_tokens(torch.randn(2, 3, 6, 8))
    assert x.shape == (2, prefix + 6, 16) and pos.grid == (3, 2)
    assert model.forward_features(torch.randn(2, 3, 6, 8)).shape == (2, 16)


def test_without_positions_cls_and_registers_stay():
    model = MODELS.build("vit(dim=16, depth=1, heads=2, registers=3)", (1, 8, 8), 4, "none")
    assert model.prefix_tokens.shape == (4, 16)


def test_drop_path_keeps_the_mean_and_rests_in_evaluation():
    drop, x = DropPath(0.25), torch.ones(20000, 1, 1)
    torch.manual_seed(0)
    dropped = drop(x)
    assert dropped.unique().tolist() == pytest.approx([0, 4 / 3])
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(drop.eval()(x), x)


@pytest.mark.parametrize("encoding", ["learned(interpolation='bilinear')", "learned"])
def test_a_resized_model_reads_its_new_table_where_the_old_one_was_fitted(encoding):
    model = MODELS.build("vit(patch=(2, 4), dim=16, depth=1, heads=2)", (1, 6, 20), 4, encoding)
    mode = "bilinear" if "bilinear" in encoding else "bicubic"
    images = torch.randn(2, 1, 10, 12)  # a grid of 5×3 instead of 3×5
    resized = model.resized((5, 3), mode=mode)
    assert resized.geometry.grid == (5, 3) and model.geometry.grid == (3, 5)
    assert torch.allclose(resized(images), model(images), atol=1e-5)


@pytest.mark.parametrize("encoding", ["learned", "relative", "liere", "fourier"])
def test_one_seed_gives_all_encodings_the_same_weights_around_them(encoding):
    weights = []
    for spec in ("none", encoding):
        torch.manual_seed(3)
        model = MODELS.build("vit(dim=16, depth=2, heads=2)", (1, 8, 8), 4, spec)
        weights.append({k: v for k, v in model.state_dict().items() if not k.startswith("encoding")})
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
