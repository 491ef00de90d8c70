"""Any encoding in timm's, Hugging Face's and torch's Vision Transformers, against our own ViT and the bare models."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

import vitpos
from tests.references import peer
from vitpos import Positions, ViT
from vitpos.encodings import ENCODINGS
from vitpos.errors import InputError
from vitpos.interop.timm import to_timm

DIM, HEADS, DEPTH, CLASSES = 32, 2, 2, 5
PATCH, IMAGE, GRID = (2, 3), (12, 24), (6, 8)
SUMS = ("learned + rope", "learned + sape2", "learned + mjp", "cpe + rope", "learned(prefix_embed=True)")


@pytest.fixture(scope="module")
def timm():
    return peer("timm.models.vision_transformer") and peer("timm")


def randomize(model: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Gives every parameter random values, also those that models initialize with zeros, in float64."""
    generator = torch.Generator().manual_seed(seed)
    model = model.to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = min(0.5, 1.5 * parameter.shape[1] ** -0.5) if parameter.ndim == 2 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale)
    return model


def images(size=IMAGE, seed=1, batch=2) -> torch.Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def call(model: nn.Module, x: torch.Tensor, pos: Positions | None = None) -> torch.Tensor:
    """Returns the logits or last tokens of a model without gradients, with other positions if given."""
    x = x.to(next(model.parameters()).dtype)
    with torch.no_grad():
        if pos is None:
            y = model(x)
        else:
            with vitpos.at_positions(model, pos):
                y = model(x)
    return y if isinstance(y, torch.Tensor) else y[0]


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether two results are equal up to rounding."""
    return (a - b).abs().max().item() < (1e-10 if a.dtype == torch.float64 else 1e-4)


def every_kind_of_positions(grid=GRID) -> list[Positions]:
    count = grid[0] * grid[1]
    pos, order = Positions.from_grid(grid), torch.randperm(count, generator=torch.Generator().manual_seed(3))
    larger = Positions.from_grid((grid[0] + 1, grid[1] + 2), train_grid=grid).select(torch.arange(count) + 3)
    return [
        pos,
        pos.permute(order),
        pos.hide(torch.arange(count)[None] % 3 == 0),
        pos.permute(order).shift((1, 2)),
        larger,
    ]


def ours(encoding: str, **options) -> ViT:
    model = ViT((3, *IMAGE), CLASSES, encoding, patch=PATCH, dim=DIM, depth=DEPTH, heads=HEADS, **options)
    return randomize(model)


def same_weights(own: ViT) -> dict[str, torch.Tensor]:
    """Returns the weights of our model without its encoding, under timm's names."""
    plain = ViT((3, *IMAGE), CLASSES, patch=PATCH, dim=DIM, depth=DEPTH, heads=HEADS).double()
    plain.load_state_dict({name: value for name, value in own.state_dict().items() if not name.startswith("encoding.")})
    return to_timm(plain)


def timm_vit(timm, **options) -> nn.Module:
    options = {"img_size": IMAGE, "patch_size": PATCH, "num_classes": CLASSES} | options
    return timm.models.VisionTransformer(embed_dim=DIM, depth=DEPTH, num_heads=HEADS, **options).double().eval()


@pytest.mark.parametrize("encoding", [*ENCODINGS, *SUMS])
def test_every_encoding_in_timm_gives_the_logits_of_our_vit(timm, encoding):
    own, theirs = ours(encoding), timm_vit(timm, pos_embed="none")
    theirs.load_state_dict(same_weights(own))
    assert vitpos.attach(theirs, encoding) is theirs
    theirs.position_encoding.load_state_dict(own.encoding.state_dict())
    x = images()
    with torch.no_grad():
        assert near(call(theirs, x), own(x))
        for pos in every_kind_of_positions():
            assert near(call(theirs, x, pos), own(x, pos)), pos


@pytest.mark.parametrize("encoding", ["none", "rope", "cpe", "learned + mjp", "gpsa"])
def test_a_kept_table_gives_the_logits_of_learned_plus_the_encoding(timm, encoding):
    own = ours(f"learned(prefix_embed=True) + {encoding}")
    theirs = timm_vit(timm)
    table = own.encoding.parts[0]
    rows = torch.cat([table.prefix_table, table.table[0].flatten(0, 1)])[None]
    theirs.load_state_dict(same_weights(own) | {"pos_embed": rows})
    vitpos.attach(theirs, encoding)
    for part, one in zip(theirs.position_encoding.parts, own.encoding.parts[1:], strict=True):
        part.load_state_dict(one.state_dict())
    x = images()
    with torch.no_grad():
        for pos in every_kind_of_positions()[:3]:
            assert near(call(theirs, x, pos), own(x, pos)), pos


TIMM = {
    "class token": {},
    "registers": {"reg_tokens": 3},
    "mean pooling": {"class_token": False, "global_pool": "avg"},
    "any size": {"dynamic_img_size": True},
    "norms and scales": {
        "qk_norm": True,
        "init_values": 0.1,
        "pre_norm": True,
        "no_embed_class": True,
        "reg_tokens": 1,
    },
    "plain attention": {"fused": False},
}
EVA = {
    "eva02": {"use_rot_pos_emb": True, "swiglu_mlp": True, "scale_mlp": True},
    "axial, no table": {"use_rot_pos_emb": True, "use_abs_pos_emb": False, "rope_type": "cat"},
    "mixed": {"use_rot_pos_emb": True, "rope_type": "mixed", "use_abs_pos_emb": False},
    "dinov3": {"use_rot_pos_emb": True, "rope_type": "dinov3", "rope_rotate_half": True, "num_reg_tokens": 2},
    "table only": {"use_rot_pos_emb": False},
}
HF = {
    "ViT": {},
    "DeiT": {},
    "Dinov2": {},
    "Dinov2WithRegisters": {"num_register_tokens": 2},
    "DINOv3ViT": {"num_register_tokens": 2},
}
MODELS = [*(f"timm {name}" for name in TIMM), *(f"eva {name}" for name in EVA), *(f"hf {name}" for name in HF)]


def foreign(name: str) -> tuple[nn.Module, tuple[int, int], tuple[int, int]]:
    """Returns a model of another library with random weights, the size of its images and its patch size."""
    family, kind = name.split(" ", 1)
    if family == "hf":
        transformers = peer("transformers")
        config = getattr(transformers, f"{kind}Config")(
            hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=64, image_size=12,
            patch_size=3, **HF[kind],
        )  # fmt: skip
        return randomize(getattr(transformers, f"{kind}Model")(config)), (12, 12), (3, 3)
    timm = peer("timm")
    if family == "timm":
        options = dict(TIMM[kind])
        fused = options.pop("fused", True)
        model = timm_vit(timm, **options)
        for block in model.blocks:
            block.attn.fused_attn = fused
    else:
        model = timm.models.eva.Eva(
            img_size=IMAGE,
            patch_size=PATCH,
            num_classes=CLASSES,
            embed_dim=DIM,
            depth=DEPTH,
            num_heads=HEADS,
            **EVA[kind],
        )
    # timm itself cannot run mixed RoPE in float64
    return randomize(model, dtype=torch.float32 if kind == "mixed" else torch.float64), IMAGE, PATCH


def shuffled_patches(x: torch.Tensor, patch: tuple[int, int], order: torch.Tensor) -> torch.Tensor:
    """Returns images whose patch number i is the original patch number ``order[i]``."""
    batch, channels, height, width = x.shape
    cut = x.reshape(batch, channels, height // patch[0], patch[0], width // patch[1], patch[1]).transpose(3, 4)
    cut = cut.flatten(2, 3)[:, :, order].unflatten(2, (height // patch[0], width // patch[1]))
    return cut.transpose(3, 4).reshape(x.shape)


def pooled(y: torch.Tensor) -> torch.Tensor:
    """Returns logits, or what does not depend on the order of tokens: the sum over them."""
    return y.sum(1) if y.ndim == 3 else y


@pytest.mark.parametrize("name", MODELS)
def test_positions_act_on_what_the_model_has_and_detach_gives_the_model_back(name):
    model, size, patch = foreign(name)
    x, grid = images(size), (size[0] // patch[0], size[1] // patch[1])
    count = grid[0] * grid[1]
    before, weights, classes = call(model, x), copy.deepcopy(model.state_dict()), [type(one) for one in model.modules()]
    vitpos.attach(model, "none")
    assert near(call(model, x), before)
    assert list(model.state_dict()) == list(weights)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(4))
    moved, pos = shuffled_patches(x, patch, order), Positions.from_grid(grid)
    assert near(pooled(call(model, moved, pos.permute(order))), pooled(before))  # positions follow
    assert (pooled(call(model, moved)) - pooled(before)).abs().max() > 1e-3
    hidden = pos.hide(torch.ones(1, count, dtype=torch.bool))
    assert near(pooled(call(model, moved, hidden)), pooled(call(model, x, hidden)))
    vitpos.detach(model)
    assert torch.equal(call(model, x), before)
    assert [type(one) for one in model.modules()] == classes
    after = model.state_dict()
    assert list(after) == list(weights) and all(torch.equal(after[key], weights[key]) for key in weights)


@pytest.mark.parametrize("encoding", [*ENCODINGS, *SUMS])
def test_every_encoding_in_hugging_face_gives_the_logits_of_our_vit(encoding):
    transformers = peer("transformers")
    config = transformers.ViTConfig(
        hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=64, image_size=(12, 24),
        patch_size=3, num_labels=CLASSES,
    )  # fmt: skip
    theirs = randomize(transformers.ViTForImageClassification(config))
    own = vitpos.load(theirs, encoding=encoding).double().eval()
    randomize(own.encoding)
    vitpos.attach(theirs, encoding, own_positions="remove")
    theirs.vit.position_encoding.load_state_dict(own.encoding.state_dict())
    x = images()
    with torch.no_grad():
        assert near(call(theirs, x), own(x))
        for pos in every_kind_of_positions((4, 8)):
            assert near(call(theirs, x, pos), own(x, pos)), pos


@pytest.mark.parametrize("name", MODELS)
def test_removed_positions_are_those_that_are_hidden_everywhere(name):
    model, size, patch = foreign(name)
    x, count = images(size), (size[0] // patch[0]) * (size[1] // patch[1])
    hidden = Positions.from_grid((size[0] // patch[0], size[1] // patch[1])).hide(
        torch.ones(1, count, dtype=torch.bool)
    )
    vitpos.attach(model, "none")
    with torch.no_grad():
        for key, value in model.state_dict().items():  # rows of prefix tokens go too, if positions are removed
            if key.endswith(("pos_embed", "position_embeddings")):
                value[:, : value.shape[1] - count] = 0
    expected = call(model, x, hidden)
    vitpos.detach(model)
    table = {
        key: value.clone() for key, value in model.named_parameters() if "pos_embed" in key or "position_emb" in key
    }
    vitpos.attach(model, "none", own_positions="remove")
    assert not set(table) & set(model.state_dict())
    assert near(call(model, x), expected)
    vitpos.detach(model)
    assert all(torch.equal(model.get_parameter(key), value) for key, value in table.items())


@pytest.mark.parametrize("name", ["timm registers", "eva dinov3", "hf Dinov2WithRegisters"])
@pytest.mark.parametrize("encoding", ["rope", "relative", "learned + mjp"])
def test_attached_models_train_copy_and_pickle(name, encoding):
    model, size, _ = foreign(name)
    vitpos.attach(model, encoding, own_positions="freeze")
    assert not any(p.requires_grad for key, p in model.named_parameters() if key.endswith("pos_embed"))
    x = images(size)
    model.train()
    y = model(x)
    loss = (y if isinstance(y, torch.Tensor) else y[0]).square().mean() + vitpos.penalty(model)
    loss.backward()
    for key, parameter in model.named_parameters():
        if parameter.requires_grad and "mask_token" not in key and "pooler" not in key:
            assert parameter.grad is not None, key  # as DistributedDataParallel needs it
    if "mjp" in encoding:
        assert vitpos.penalty(model) > 0
    model.eval()
    expected = call(model, x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(call(other, x), expected)
        with torch.no_grad():
            for parameter in other.position_encoding.parameters():
                parameter += 1
        vitpos.detach(other)
        assert torch.equal(call(model, x), expected)
    fresh, _, _ = foreign(name)
    vitpos.attach(fresh, encoding).load_state_dict(model.state_dict())
    assert torch.equal(call(fresh, x), expected)


def test_detach_keeps_parameters_that_were_added_meanwhile(timm):
    model = vitpos.attach(timm_vit(timm), "none", own_positions="remove")
    names = [name for name, _ in timm_vit(timm).named_parameters()]
    model.added = nn.Parameter(torch.ones(3))
    vitpos.detach(model)
    assert [name for name, _ in model.named_parameters() if name != "added"] == names and model.added.sum() == 3


def test_other_image_sizes(timm):
    model = randomize(timm_vit(timm, dynamic_img_size=True))
    x = images((8, 15))
    before = call(model, x)
    vitpos.attach(model, "rope")
    with_rope = call(model, x)
    vitpos.detach(model)
    assert torch.equal(call(model, x), before) and (with_rope - before).abs().max() > 1e-3
    vitpos.attach(model, "none")
    assert near(call(model, x, Positions.from_grid((4, 5), train_grid=GRID)), before)


def test_attention_maps_can_still_be_captured(timm):
    model = timm_vit(timm)
    vitpos.attach(randomize(model), "relative")
    maps = []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda module, inputs, output: maps.append(output))
    call(model, images())
    assert len(maps) == DEPTH and all(one.shape == (2, HEADS, 49, 49) for one in maps)
    assert all((one.sum(-1) - 1).abs().max() < 1e-12 for one in maps)
    hf, size, _ = foreign("hf ViT")
    hf.config._attn_implementation = "eager"
    vitpos.attach(hf, "relative")
    with torch.no_grad():
        found = hf(images(size), output_attentions=True).attentions
    assert len(found) == DEPTH and found[0].shape == (2, HEADS, 17, 17)


def test_dropped_patches_keep_their_positions(timm):
    model = randomize(timm_vit(timm, patch_drop_rate=0.5, pos_embed="none"))
    vitpos.attach(model, "rope")
    model.train()
    torch.manual_seed(5)
    expected = model(images())
    kept = model._attachment.pos
    assert kept.index.shape == (2, 24)
    model.patch_drop.prob = 0.0
    order = kept.index  # the kept patches alone, at their positions
    tokens = vitpos.detach(model).patch_embed(images())
    own = ours("rope").train()
    plain = timm_vit(timm, pos_embed="none")
    plain.load_state_dict(model.state_dict())
    own.load_state_dict(_our_names(plain) | own.encoding.state_dict(prefix="encoding."))
    x = tokens.take_along_dim(order[..., None], 1)
    pos = Positions.from_grid(GRID).permute(torch.arange(48)).select(order)
    got = own.head(own.pool_tokens(own.forward_blocks(x, pos)))
    assert near(got, expected)


def _our_names(model: nn.Module) -> dict[str, torch.Tensor]:
    plain = ViT((3, *IMAGE), CLASSES, patch=PATCH, dim=DIM, depth=DEPTH, heads=HEADS).double()
    vitpos.interop.timm.load_timm(plain, model.state_dict())
    return plain.state_dict()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mode", ["train", "eval", "no_grad", "inference_mode"])
def test_torch_transformer_encoder(norm_first, mode):
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 64, 0.0, batch_first=True, norm_first=norm_first)
    model = randomize(nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=not norm_first))
    x = torch.randn(2, 13, DIM, dtype=torch.float64)
    before = model(x)
    vitpos.attach(model, "relative + learned", grid=(3, 4), num_prefix=1)
    randomize(model.position_encoding)
    model.train(mode == "train")
    context = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}.get(mode, torch.enable_grad)
    order = torch.randperm(12)
    with context():
        y = model(x)
        moved = torch.cat([x[:, :1], x[:, 1:][:, order]], 1)
        with vitpos.at_positions(model, Positions.from_grid((3, 4)).permute(order)):
            z = model(moved)
        padding = torch.zeros(2, 13, dtype=torch.bool)
        padding[:, -2:] = True
        padded = model(x, src_key_padding_mask=padding)
        changed = x.clone()
        changed[:, -2:] += 1
        assert near(model(changed, src_key_padding_mask=padding)[:, :-2], padded[:, :-2])
    assert (y - before).abs().max() > 1e-2  # the encoding acts in every mode
    assert near(z[:, 1:], y[:, 1:][:, order]) and (z[:, 0] - y[:, 0]).abs().max() < 1e-10
    vitpos.detach(model.eval())
    assert torch.equal(model(x), before)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [*ENCODINGS, *SUMS])
def test_attached_models_compile_without_graph_breaks(timm, encoding):
    model = timm_vit(timm).float()
    x = images().float()
    torch._dynamo.reset()
    torch.compile(model, fullgraph=True, backend="eager")(x)  # the bare model has none
    torch._dynamo.reset()
    vitpos.attach(model, encoding)
    with warnings.catch_warnings(action="ignore"):
        compiled = torch.compile(model, fullgraph=True, backend="eager")(x)
    assert near(compiled, model(x))


class OwnAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM)

    def forward(self, x):
        q, k, v = self.to_qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class OwnModel(nn.Module):
    """A Vision Transformer as somebody may write it, without CLS."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, DIM, PATCH, PATCH)
        self.layers = nn.ModuleList(OwnAttention() for _ in range(DEPTH))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return x.mean(1)


class OwnAdapter(vitpos.Adapter):
    channels_first = True

    def geometry(self, model):
        return vitpos.Geometry(DIM, HEADS, DEPTH, GRID)

    def patch_embed(self, model):
        return model.patches

    def blocks(self, model):
        return list(model.layers)

    def attention_of(self, block):
        return block

    def attention(self, module, attend, x):
        q, k, v = module.to_qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        y, _ = attend(q, k, v, x)
        return module.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("encoding", ["rope", "sape2", "learned", "cpe"])
def test_a_model_of_ones_own_with_an_adapter(encoding):
    model, x = randomize(OwnModel()), images()
    before = call(model, x)
    vitpos.attach(model, encoding, adapter=OwnAdapter())
    randomize(model.position_encoding)
    y, order = call(model, x), torch.randperm(48)
    assert (y - before).abs().max() > 1e-3
    moved = shuffled_patches(x, PATCH, order)
    assert near(call(model, moved, Positions.from_grid(GRID).permute(order)), y)
    assert torch.equal(call(vitpos.detach(model), x), before)


@pytest.mark.parametrize("own_positions", ["keep", "freeze"])
def test_positions_that_no_adapter_finds_are_not_silently_kept(timm, own_positions):
    model = timm_vit(timm, pos_embed="none")
    with pytest.raises(InputError, match=r"own_positions='remove': TimmAdapter\.table and \.rotary return None"):
        vitpos.attach(model, "rope", own_positions="remove")
    assert not hasattr(model, "position_encoding")
    vitpos.attach(model, "rope", own_positions=own_positions)


def test_positions_on_another_grid_are_those_of_a_plain_call(timm):
    model = vitpos.attach(timm_vit(timm, dynamic_img_size=True), "rope").eval()
    x, grid = images((IMAGE[0] * 2, IMAGE[1] * 2)), (GRID[0] * 2, GRID[1] * 2)
    with torch.no_grad():
        plain = model(x)
        with vitpos.at_positions(model, Positions.from_grid(grid, train_grid=GRID)):
            assert near(model(x), plain)


def test_wrong_input_gets_one_clear_line(timm):
    model = timm_vit(timm)
    for wrong, message in [
        (lambda: vitpos.attach(nn.Sequential(nn.Conv2d(3, 8, 3)), "rope"), "attach has no adapter for Sequential"),
        (lambda: vitpos.attach("vit", "rope"), "needs a torch module"),
        (lambda: vitpos.attach(model, "rope", own_positions="drop"), "keep, freeze or remove"),
        (lambda: vitpos.attach(model, "ropes"), "ropes"),
        (lambda: vitpos.attach(model, "rope", grid=(2, 2)), "leave out grid"),
        (lambda: vitpos.detach(model), "vitpos.attach"),
        (
            lambda: vitpos.attach(
                nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 1, enable_nested_tensor=False), "rope"
            ),
            "grid=",
        ),
        (
            lambda: vitpos.attach(
                nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 1, enable_nested_tensor=False),
                "rope",
                grid=(2, 2),
            ),
            "batch_first=True",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            wrong()
    vitpos.attach(model, "rope")
    with pytest.raises(InputError, match="detach"):
        vitpos.attach(model, "rope")
    with pytest.raises(InputError, match="48 patches"), vitpos.at_positions(model, Positions.from_grid((2, 2))):
        model(images())
    vitpos.detach(model)
    model.blocks[0].attn = nn.MultiheadAttention(DIM, HEADS)
    with pytest.raises(InputError, match="MultiheadAttention"):
        vitpos.attach(model, "rope")
    assert not hasattr(model, "position_encoding")


@pytest.mark.parametrize("own_positions", ["keep", "remove"])
@pytest.mark.parametrize("encoding", ["rope", "learned + sape2", "alibi + cpe"])
def test_load_gives_the_outputs_of_a_model_with_an_attached_encoding(timm, tmp_path, encoding, own_positions):
    model = timm_vit(timm)
    vitpos.attach(model, encoding, own_positions=own_positions)
    randomize(model.position_encoding)
    x = images()
    expected = call(model.eval(), x)
    ours = vitpos.load(model)
    assert near(ours(x), expected)
    assert torch.equal(call(model, x), expected)  # the model itself is as before
    vitpos.save_pretrained(ours, tmp_path / "saved")
    assert near(vitpos.from_pretrained(tmp_path / "saved")(x), expected)
    wide, _ = vitpos.convert(model, grid=(3, 10))
    assert wide.geometry.grid == (3, 10) and len(wide.encoding.parts) == len(ours.encoding.parts)
