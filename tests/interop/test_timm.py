"""timm's weights in our models give the same outputs; tensors that do not fit are named."""

import pytest
import torch

from tests.references import peer
from vitpos.interop.timm import load_timm
from vitpos.models import MODELS

IMAGE = (3, 16, 32)  # with patches of 2: grids of 8×16, 4×8 and 2×4
SWIN = "swin(patch=2, dim=16, depths=(2, 2, 1), heads=(2, 4, 4), window={})"
VIT = "vit(patch=(2, 4), dim=16, depth=2, heads=2)"
RESNET = "resnet(depths=(1, 2, 1, 1))"


def randomize(model):
    """The model with large random weights and statistics, so that a misplaced tensor changes the output."""
    torch.manual_seed(0)
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif tensor.ndim > 1:
            tensor.normal_(std=tensor[0].numel() ** -0.5)
        elif tensor.is_floating_point():
            tensor.normal_(mean=float(name.endswith("weight")), std=0.3)
    return model.eval()


def timm_swin(window=(2, 4)):
    options = {"patch_size": 2, "embed_dim": 16, "depths": (2, 2, 1), "num_heads": (2, 4, 4), "window_size": window}
    swin = peer("timm.models.swin_transformer").SwinTransformer
    return randomize(swin(img_size=IMAGE[1:], num_classes=5, drop_path_rate=0.0, **options))


def timm_vit():
    vit = peer("timm.models.vision_transformer").VisionTransformer
    return randomize(vit(img_size=IMAGE[1:], patch_size=(2, 4), embed_dim=16, depth=2, num_heads=2, num_classes=5))


def timm_resnet():
    resnet = peer("timm.models.resnet")
    return randomize(resnet.ResNet(resnet.Bottleneck, (1, 2, 1, 1), num_classes=5))


def assert_same_outputs(ours, theirs, images):
    load_timm(ours, theirs.state_dict())
    expected, found = theirs(images), ours(images)
    assert expected.std() > 0.1
    assert (found - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("window", [(2, 4), (4, 8), 2, 4])
def test_a_swin_with_timms_weights_gives_timms_outputs(window):
    """Windows that shift along both axes, along one, and that shrink to the grid of the last stage."""
    ours = MODELS.build(SWIN.format(window), IMAGE, 5).eval()
    assert_same_outputs(ours, timm_swin(window), torch.randn(3, *IMAGE))


@pytest.mark.parametrize("training", [False, True])
def test_a_resnet_with_timms_weights_gives_timms_outputs_and_statistics(training):
    ours, theirs = MODELS.build(RESNET, (3, 48, 32), 5).train(training), timm_resnet().train(training)
    assert_same_outputs(ours, theirs, torch.randn(3, 3, 48, 32))
    statistics = [[b for _, b in model.named_buffers()] for model in (ours, theirs)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*statistics, strict=True))


def test_a_vit_with_timms_weights_gives_timms_outputs():
    ours = MODELS.build(VIT, IMAGE, 5, "learned(prefix_embed=True)").eval()
    assert_same_outputs(ours, timm_vit(), torch.randn(3, *IMAGE))


@pytest.mark.parametrize(
    ("spec", "image", "encoding", "change", "message"),
    [
        (SWIN.format((2, 4)), IMAGE, "learned", {}, "no 'encoding.table'"),
        (
            SWIN.format((4, 4)),
            IMAGE,
            "none",
            {},
            r"relative_position_bias_table' is \(21, 2\) and the model's \(49, 2\)",
        ),
        (
            SWIN.format("(2, 4), window_encoding='rope'"),
            IMAGE,
            "none",
            {},
            "have 'layers.0.blocks.0.attn.relative_position",
        ),
        (SWIN.format((2, 4)), IMAGE, "none", {"norm.weight": None}, "no 'norm.weight'"),
        (SWIN.format((2, 4)), IMAGE, "none", {"extra": torch.ones(1)}, "have 'extra'"),
        (SWIN.format((2, 4)), IMAGE, "none", {"head.fc.bias": torch.ones(7)}, r"'head.fc.bias' is \(7,\)"),
        ("minimal", (3, 16, 32), "none", {}, "no counterpart of vitpos' MinimalAttention"),
    ],
)
def test_weights_that_do_not_fit_are_named_and_nothing_is_loaded(spec, image, encoding, change, message):
    model = MODELS.build(spec, image, 5, encoding)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {name: tensor for name, tensor in (timm_swin().state_dict() | change).items() if tensor is not None}
    with pytest.raises(ValueError, match=message):
        load_timm(model, state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_vit_without_a_row_for_cls_rejects_a_table_with_one():
    model = MODELS.build(VIT, IMAGE, 5, "learned")
    with pytest.raises(ValueError, match=r"'pos_embed' is \(1, 65, 16\) and the model's \(1, 64, 16\)"):
        load_timm(model, timm_vit().state_dict())


@pytest.mark.parametrize(
    ("spec", "encoding", "name", "parameters"),
    [
        ("swin", "none", "swin_tiny_patch4_window7_224", 28_288_354),
        ("resnet", "none", "resnet50", 25_557_032),
        (
            "vit(patch=16, dim=384, depth=12, heads=6)",
            "learned(prefix_embed=True)",
            "vit_small_patch16_224",
            22_050_664,
        ),
    ],
)
def test_published_sizes_have_as_many_parameters_as_timms_models(spec, encoding, name, parameters):
    create = peer("timm").create_model
    with torch.device("meta"):
        ours, theirs = MODELS.build(spec, (3, 224, 224), 1000, encoding), create(name)
        assert sum(p.numel() for p in ours.parameters()) == parameters
        load_timm(ours, theirs.state_dict())
