"""Models of timm and Hugging Face as our models: same outputs, and the same weights back."""

import importlib
from functools import partial

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import vitpos
from tests.interop.test_attach import randomize
from tests.references import compute_in_double, peer
from vitpos import InputError
from vitpos.interop import to_huggingface, to_timm

SMALL = {"embed_dim": 32, "num_heads": 2, "depth": 2, "num_classes": 5}  # sizes only; everything else as published
SMALL_HF = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 48}


@pytest.fixture(scope="module")
def timm():
    return peer("timm")


@pytest.fixture
def in_double(monkeypatch):
    """Makes timm and Hugging Face compute their rotary tables in float64; they round them to float32 otherwise."""
    compute_in_double(monkeypatch)
    yield
    torch.set_default_dtype(torch.float32)


def random_images(shape, seed=1):
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(theirs, *, back, tolerance=1e-10, key=None):
    """Our model has the outputs of theirs in float64, and gives its weights back."""
    theirs = randomize(theirs)
    ours = vitpos.load(theirs)
    x = random_images((ours.channels, *(s * p for s, p in zip(ours.geometry.grid, ours.patch, strict=True))))
    with torch.no_grad():
        expected = theirs(x) if key is None else theirs(x)[key]
        assert expected.abs().max() > 0.1
        assert (ours(x) - expected).abs().max() < tolerance
    assert not ours.training
    again, before = back(vitpos.load(theirs)), theirs.state_dict()
    assert set(again) == set(before) and all(torch.equal(again[name], before[name]) for name in before)
    theirs.load_state_dict(again, strict=True)
    return ours


def float32_difference(theirs, key=None):
    """Returns the largest difference of outputs in float32, relative to the largest output if that is above 1.

    Nothing of theirs is changed here, so that rotary tables are those which the library computes and rounds.
    """
    theirs = randomize(theirs, dtype=torch.float32)
    ours = vitpos.load(theirs)
    shape = (ours.channels, *(s * p for s, p in zip(ours.geometry.grid, ours.patch, strict=True)))
    x = random_images(shape).to(torch.float32)
    with torch.no_grad():
        expected, found = theirs(x) if key is None else theirs(x)[key], ours(x)
    assert expected.dtype == found.dtype == torch.float32
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=1)).item()


TIMM = [  # name, options beside the sizes
    ("vit_small_patch16_224", {"img_size": (32, 64)}),
    ("vit_base_patch16_224_miil", {"img_size": (32, 64)}),
    ("vit_small_patch16_224", {"img_size": (32, 64), "num_classes": 0}),
    ("vit_base_patch16_224", {"img_size": (32, 64), "global_pool": "avg"}),  # MAE, fine-tuned
    ("deit_small_distilled_patch16_224", {"img_size": (32, 64)}),
    ("deit3_small_patch16_224", {"img_size": (32, 64)}),
    ("vit_medium_patch16_reg4_gap_256", {"img_size": (32, 64)}),
    ("vit_small_patch14_dinov2", {"img_size": (28, 56)}),
    ("vit_small_patch14_reg4_dinov2", {"img_size": (28, 56)}),
    ("vit_giant_patch14_reg4_dinov2", {"img_size": (28, 56)}),
    ("vit_base_patch16_clip_224", {"img_size": (32, 64)}),
    ("vit_base_patch16_clip_quickgelu_224", {"img_size": (32, 64)}),
    ("vit_base_patch16_siglip_224", {"img_size": (32, 64)}),
    ("vit_base_patch16_siglip_224", {"img_size": (32, 64), "num_classes": 0}),
    ("vit_base_patch16_siglip_gap_224", {"img_size": (32, 64)}),
    ("vit_so150m_patch16_reg4_map_256", {"img_size": (32, 64)}),
    ("vit_little_patch16_reg1_gap_256", {"img_size": (32, 64)}),
]
ROTARY = [
    ("vit_small_patch16_dinov3", {"img_size": (32, 64)}),
    ("vit_small_patch16_dinov3", {"img_size": (32, 64), "global_pool": "token"}),
    ("vit_small_patch16_dinov3_qkvb", {"img_size": (32, 64)}),
    ("vit_small_plus_patch16_dinov3", {"img_size": (32, 64)}),
    ("vit_small_patch16_rope_224", {"img_size": (32, 64)}),
    ("vit_small_patch16_rope_ape_224", {"img_size": (32, 64)}),
    ("vit_small_patch16_rope_mixed_224", {"img_size": (32, 64)}),
    ("vit_small_patch16_rope_mixed_ape_224", {"img_size": (32, 64)}),
    ("vit_medium_patch16_rope_reg1_gap_256", {"img_size": (32, 64)}),
    ("eva02_small_patch14_336", {"img_size": (28, 56)}),
    ("eva02_base_patch14_448", {"img_size": (28, 56)}),
    ("eva02_base_patch16_clip_224", {"img_size": (32, 64)}),
    ("eva_giant_patch14_224", {"img_size": (28, 56)}),
    ("vit_pe_core_small_patch16_384", {"img_size": (32, 64), "attn_pool_num_heads": 2}),
    ("vit_pe_core_gigantic_patch14_448", {"img_size": (28, 56), "attn_pool_num_heads": 2}),
    ("vit_pe_lang_large_patch14_448", {"img_size": (28, 56)}),
    ("vit_pe_spatial_small_patch16_512", {"img_size": (32, 64)}),
]


@pytest.mark.parametrize(("name", "options"), TIMM)
def test_a_timm_vit_has_the_same_outputs_and_gives_its_weights_back(timm, name, options):
    assert_same(timm.create_model(name, pretrained=False, **SMALL | options), back=to_timm)


@pytest.mark.parametrize(("name", "options"), ROTARY)
def test_a_rotary_timm_vit_has_the_same_outputs_and_gives_its_weights_back(timm, in_double, name, options):
    assert_same(timm.create_model(name, pretrained=False, **SMALL | options), back=to_timm)


@pytest.mark.parametrize(("name", "options"), TIMM + ROTARY)
def test_a_timm_vit_has_the_same_outputs_in_float32(timm, name, options):
    assert float32_difference(timm.create_model(name, pretrained=False, **SMALL | options)) < 1e-4


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("vit_small_patch16_dinov3", {"pairing": "neighbors"}),
        ("vit_small_patch16_dinov3", {"axes": "column_first"}),
        ("vit_pe_core_small_patch16_384", {"offset": 0.0}),
        ("vit_pe_core_small_patch16_384", {"scale": (1.0, 1.0)}),
        ("vit_small_patch16_rope_224", {"axes": "row_first"}),
        ("vit_small_patch16_rope_224", {"base": 10000.0}),
    ],
)
def test_another_dialect_of_rotary_positions_would_be_seen(timm, name, wrong):
    pool = {"attn_pool_num_heads": 2} if "pe_core" in name else {}
    theirs = randomize(timm.create_model(name, img_size=(32, 64), **SMALL, **pool))
    ours, x = vitpos.load(theirs), random_images((3, 32, 64))
    with torch.no_grad():
        right = (ours(x) - theirs(x)).abs().max()
        (rotary,) = (part for part in ours.encoding.parts if "rotate" in part.hooks)
        vars(rotary).update(wrong)
        assert 100 * right.clamp(min=1e-7) < (ours(x) - theirs(x)).abs().max()


# Square where Hugging Face takes the root of the number of positions for the side of the grid
HF = [  # modeling file, configuration, class, options, output
    ("vit", "ViTConfig", "ViTForImageClassification", {"image_size": (32, 64)}, "logits"),
    ("vit", "ViTConfig", "ViTModel", {"image_size": (32, 64)}, "pooler_output"),
    ("deit", "DeiTConfig", "DeiTForImageClassification", {"image_size": (32, 64)}, "logits"),
    ("deit", "DeiTConfig", "DeiTForImageClassificationWithTeacher", {"image_size": (32, 64)}, "logits"),
    ("dinov2", "Dinov2Config", "Dinov2ForImageClassification", {"image_size": 64}, "logits"),
    ("dinov2", "Dinov2Config", "Dinov2Model", {"image_size": 64, "use_swiglu_ffn": True}, "pooler_output"),
    ("dinov2_with_registers", "Dinov2WithRegistersConfig", "Dinov2WithRegistersModel", {"image_size": 64}, "pooler_output"),
    (
        "dinov2_with_registers", "Dinov2WithRegistersConfig", "Dinov2WithRegistersForImageClassification",
        {"image_size": 64}, "logits",
    ),
    ("clip", "CLIPVisionConfig", "CLIPVisionModel", {"image_size": 64}, "pooler_output"),
    ("clip", "CLIPVisionConfig", "CLIPVisionModelWithProjection", {"image_size": 64, "projection_dim": 7}, "image_embeds"),
    ("siglip", "SiglipVisionConfig", "SiglipVisionModel", {"image_size": 64}, "pooler_output"),
    ("dinov3_vit", "DINOv3ViTConfig", "DINOv3ViTModel", {"image_size": (32, 64)}, "pooler_output"),
    (
        "dinov3_vit", "DINOv3ViTConfig", "DINOv3ViTModel",
        {"image_size": (32, 64), "num_register_tokens": 4, "use_gated_mlp": True, "hidden_act": "silu"}, "pooler_output",
    ),
]  # fmt: skip


def huggingface_model(file, config, name, options):
    peer("timm")  # which makes torchvision importable
    home = f"transformers.models.{file}"
    made = getattr(importlib.import_module(f"{home}.configuration_{file}"), config)(patch_size=16, **SMALL_HF | options)
    return getattr(importlib.import_module(f"{home}.modeling_{file}"), name)(made)


@pytest.mark.parametrize(("file", "config", "name", "options", "key"), HF)
def test_a_hugging_face_vit_has_the_same_outputs_and_gives_its_weights_back(
    in_double, file, config, name, options, key
):
    assert_same(huggingface_model(file, config, name, options), back=to_huggingface, key=key)


@pytest.mark.parametrize(("file", "config", "name", "options", "key"), HF)
def test_a_hugging_face_vit_has_the_same_outputs_in_float32(file, config, name, options, key):
    assert float32_difference(huggingface_model(file, config, name, options), key) < 1e-4


@pytest.mark.parametrize(("file", "kind"), [("clip", "CLIP"), ("siglip", "Siglip")])
def test_of_clip_and_siglip_with_text_the_image_tower_is_loaded(file, kind):
    peer("timm")  # which makes torchvision importable
    home = f"transformers.models.{file}"
    configs, models = (importlib.import_module(f"{home}.{part}_{file}") for part in ("configuration", "modeling"))
    vision = {"patch_size": 16, "image_size": 64, **SMALL_HF}
    text = {**SMALL_HF, "vocab_size": 50}
    config = getattr(configs, f"{kind}Config")(vision_config=vision, text_config=text)
    theirs = randomize(getattr(models, f"{kind}Model")(config))
    ours, x = vitpos.load(theirs), random_images((3, 64, 64))
    with torch.no_grad():
        found = theirs.get_image_features(x)
        expected = found if isinstance(found, torch.Tensor) else found.pooler_output
        assert (ours(x) - expected).abs().max() < 1e-10
    again = to_huggingface(ours)
    before = (theirs if file == "clip" else theirs.vision_model).state_dict()
    assert again and all(torch.equal(tensor, before[name]) for name, tensor in again.items())


def test_swin_and_resnet_have_the_same_outputs_and_give_their_weights_back(timm):
    sizes = {"img_size": (56, 112), "embed_dim": 24, "depths": (2, 1), "num_heads": (2, 4)}
    swin = timm.create_model("swin_tiny_patch4_window7_224", **sizes)
    resnet = timm.create_model("resnet50", layers=(1, 1, 1, 1), num_classes=5)
    for theirs, kind in ((swin, vitpos.Swin), (resnet, vitpos.ResNet)):
        theirs = randomize(theirs)
        ours, x = vitpos.load(theirs), random_images((3, 56, 112))
        with torch.no_grad():
            assert isinstance(ours, kind) and (ours(x) - theirs(x)).abs().max() < 1e-10
        again, before = to_timm(ours), theirs.state_dict()
        assert set(again) == set(before) and all(torch.equal(again[name], before[name]) for name in before)


@pytest.mark.parametrize("encoding", ["rope", "learned", "none", "learned + sape2"])
def test_another_encoding_replaces_the_positions_and_keeps_the_other_weights(timm, encoding):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=(32, 64), **SMALL))
    ours, kept = vitpos.load(theirs, encoding=encoding), vitpos.load(theirs)
    for name, tensor in kept.state_dict().items():
        assert name.startswith("encoding.") or torch.equal(ours.state_dict()[name], tensor)
    pattern = [type(part) for part in ours.encoding.parts]
    assert len(pattern) == len(encoding.split("+")) and not ours.encoding.state_dict().keys() & {"prefix_table"}
    assert ours(random_images((3, 32, 64))).shape == (2, 5)


def test_loading_changes_neither_the_model_nor_the_random_state(timm):
    theirs = randomize(timm.create_model("vit_small_patch16_224", img_size=(32, 64), **SMALL))
    before, state = {k: v.clone() for k, v in theirs.state_dict().items()}, torch.get_rng_state()
    ours = vitpos.load(theirs)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    assert all(torch.equal(theirs.state_dict()[k], v) for k, v in before.items())


def test_a_vit_of_ours_becomes_a_timm_and_a_hugging_face_model_with_the_same_outputs(timm):
    ours = randomize(vitpos.ViT((3, 32, 64), 5, "learned(prefix_embed=True)", patch=16, dim=32, depth=2, heads=2))
    theirs = (
        timm.models.VisionTransformer((32, 64), 16, embed_dim=32, depth=2, num_heads=2, num_classes=5).double().eval()
    )
    theirs.load_state_dict(to_timm(ours), strict=True)
    options = {"image_size": (32, 64), "layer_norm_eps": 1e-6, "num_labels": 5} | SMALL_HF | {"intermediate_size": 128}
    config = importlib.import_module("transformers.models.vit.configuration_vit").ViTConfig(patch_size=16, **options)
    vit = (
        importlib.import_module("transformers.models.vit.modeling_vit")
        .ViTForImageClassification(config)
        .double()
        .eval()
    )
    vit.load_state_dict(to_huggingface(ours), strict=True)
    x = random_images((3, 32, 64))
    with torch.no_grad():
        assert (theirs(x) - ours(x)).abs().max() < 1e-10 and (vit(x).logits - ours(x)).abs().max() < 1e-10


CROSS = [  # timm's name and options, Hugging Face's class and options
    ("vit_base_patch16_siglip_224", {"num_classes": 0}, HF[10], {"intermediate_size": 128, "hidden_act": "gelu"}),
    ("vit_base_patch16_clip_224", {"num_classes": 0}, HF[8], {"intermediate_size": 128, "hidden_act": "gelu"}),
    ("vit_small_patch16_dinov3_qkvb", {"num_classes": 0, "global_pool": "token"}, HF[11], {
        "intermediate_size": 128, "image_size": 64, "num_register_tokens": 4, "hidden_act": "gelu",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "other", "sizes"), CROSS)
def test_a_model_of_timm_becomes_one_of_hugging_face(timm, in_double, name, options, other, sizes):
    theirs = randomize(timm.create_model(name, img_size=64, **SMALL | options))
    file, config, kind, own, key = other
    third = huggingface_model(file, config, kind, own | sizes).double().eval()
    third.load_state_dict(to_huggingface(vitpos.load(theirs)), strict=True)
    x = random_images((3, 64, 64))
    with torch.no_grad():
        assert (third(x)[key] - theirs(x)).abs().max() < 1e-10


def test_a_file_needs_its_architecture_and_has_to_fit_it(timm, tmp_path):
    theirs = randomize(timm.create_model("test_vit", num_classes=5), dtype=torch.float32)
    save_file(theirs.state_dict(), tmp_path / "a.safetensors")
    torch.save({"model": theirs.state_dict()}, tmp_path / "b.pth")
    x = random_images((3, 160, 160)).float()
    for file in ("a.safetensors", "b.pth"):
        ours = vitpos.load(tmp_path / file, architecture="test_vit")
        with torch.no_grad():
            assert (ours(x) - theirs(x)).abs().max() < 1e-4
    with pytest.raises(InputError, match="does not state its architecture; add its architecture"):
        vitpos.load(tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="give the architecture that it was trained with, not 'vit_tiny_patch16_224'"):
        vitpos.load(tmp_path / "a.safetensors", architecture="vit_tiny_patch16_224")


def test_a_folder_of_hugging_face_is_loaded_by_its_path(tmp_path):
    theirs = randomize(huggingface_model("vit", "ViTConfig", "ViTForImageClassification", {"image_size": 64}))
    theirs.save_pretrained(tmp_path)
    for what in (f"hf:{tmp_path}", tmp_path):
        ours, x = vitpos.load(what), random_images((3, 64, 64))
        with torch.no_grad():
            assert (ours.double()(x) - theirs(x).logits).abs().max() < 1e-10


def test_timm_names_are_built_by_timm(timm):
    ours = vitpos.load("timm:test_vit", pretrained=False)
    assert isinstance(ours, vitpos.ViT) and ours.geometry.grid == (10, 10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda timm: nn.Linear(2, 2), "vitpos.load does not know this Linear .* by an adapter"),
        (lambda timm: timm.create_model("test_convnext"), "vitpos.load does not know this ConvNeXt"),
        (lambda timm: timm.create_model("resnet18"), "blocks of class BasicBlock"),
        (lambda timm: timm.create_model("resnet50", output_stride=16), "other strides"),
        (
            lambda timm: timm.create_model("resnet50", norm_layer=partial(nn.BatchNorm2d, eps=0.1)),
            r"batch norms with eps=\[0.1\]",
        ),
        (
            lambda timm: timm.create_model(
                "swin_tiny_patch4_window7_224", img_size=256, window_size=7, depths=(1, 1, 1, 1)
            ),
            "which timm pads",
        ),
        (
            lambda timm: timm.create_model("eva02_tiny_patch14_224", class_token=False, global_pool="token", depth=1),
            "pools the first patch",
        ),
        (lambda timm: timm.create_model("resnet50", global_pool="max"), "global_pool='max'"),
        (lambda timm: timm.create_model("vit_base_patch16_xp_224", **SMALL), "a norm of class RmsNorm|blocks of class"),
        (lambda timm: timm.create_model("vit_base_patch16_rpn_224", **SMALL), "blocks of class ResPostBlock"),
        (lambda timm: timm.create_model("vit_small_patch16_224", global_pool="max", **SMALL), "global_pool='max'"),
        (lambda timm: "hf:", "hf: has no name"),
        (lambda timm: "timm:vit_small_patch17", "timm has no model 'vit_small_patch17'"),
        (lambda timm: "hf:no-such/model", "hf:no-such/model was not loaded"),
        (lambda timm: "no/such/file.pth", "does not exist"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(timm, monkeypatch, make, message):
    monkeypatch.setattr(peer("huggingface_hub").constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=message) as caught:
        vitpos.load(make(timm))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 420


@pytest.mark.parametrize(
    "encoding", ["learned(prefix_embed=True) + alibi", "learned(prefix_embed=True) + lookhere", "rope"]
)
def test_weights_in_names_of_a_library_never_lose_an_encoding(encoding):
    model = vitpos.ViT((3, 16, 16), 5, encoding, patch=4, dim=32, depth=1, heads=2)
    with pytest.raises(InputError, match=r"which has no weights|rotary positions in DINOv3 only"):
        to_huggingface(model)
    if encoding != "rope":  # timm's Eva has it
        with pytest.raises(InputError, match="which has no weights"):
            to_timm(model)


def test_rotary_positions_added_to_a_model_of_timm_are_in_the_weights_of_eva(timm):
    theirs = timm.create_model("vit_small_patch16_224", img_size=64, **SMALL)
    theirs.load_state_dict(to_timm(vitpos.load(theirs)), strict=True)
    state = to_timm(vitpos.load(theirs, encoding="learned(prefix_embed=True) + rope"))
    eva = timm.create_model(
        "eva02_base_patch14_224", img_size=64, patch_size=16, mlp_ratio=4, **SMALL, attn_type="rope",
        qkv_fused=True, swiglu_mlp=False, scale_mlp=False, global_pool="token", use_fc_norm=False,
    )  # fmt: skip
    eva.load_state_dict(state, strict=True)
    other = timm.create_model("vit_small_patch16_rope_224", img_size=64, **SMALL)
    with pytest.raises(InputError, match="DINOv3 only"):
        to_huggingface(vitpos.load(other))


@pytest.mark.slow
def test_every_vit_of_timm_is_loaded_or_refused_in_one_line(timm):
    """Real sizes but two blocks, without memory: the weights of all fit, by name and shape, or one line says why not."""
    loaded = refused = 0
    modules = ("vision_transformer", "deit", "eva")
    for name in (name for module in modules for name in timm.list_models(module=module)):
        with torch.device("meta"):
            theirs = timm.create_model(name, **{} if "sapiens2" in name else {"depth": 2})  # which has sizes by block
            try:
                ours = vitpos.load(theirs)
            except InputError as error:
                assert "vitpos.attach" in str(error) and "\n" not in str(error), name
                refused += 1
                continue
        shapes = {key: tensor.shape for key, tensor in theirs.state_dict().items()}
        assert {key: tensor.shape for key, tensor in to_timm(ours).items()} == shapes, name
        loaded += 1
    assert loaded > 190 and refused < 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vit_small_patch16_224", "vit_small_patch14_reg4_dinov2", "vit_base_patch16_siglip_224"]
)
def test_a_published_size_at_full_depth_has_the_same_outputs(timm, name):
    assert_same(timm.create_model(name, num_classes=10), back=to_timm)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "vit_small_patch16_dinov3",
        "vit_small_patch16_rope_mixed_224",
        "eva02_small_patch14_336",
        "vit_pe_core_small_patch16_384",
    ],
)
def test_a_published_rotary_size_at_full_depth_has_the_same_outputs(timm, in_double, name):
    assert_same(timm.create_model(name, num_classes=10), back=to_timm)
