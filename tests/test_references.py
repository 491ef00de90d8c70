"""Agreement with independent implementations, and with slow loops that follow the formulas to the letter."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.references import peer
from vitpos.encodings import ENCODINGS
from vitpos.encodings._table import resize_flat_table
from vitpos.encodings.base import Geometry
from vitpos.models import MODELS
from vitpos.positions import Positions

GRID = (3, 5)
N = 15
GEOMETRY = Geometry(dim=32, heads=2, depth=2, grid=GRID)


def build(spec, geometry=GEOMETRY, dtype=torch.float32):
    torch.manual_seed(0)
    encoding = ENCODINGS.build(spec, geometry).to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return encoding


def qk(dtype=torch.float64, batch=2, heads=2, n=N, width=16):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, batch, heads, n, width, generator=generator, dtype=dtype).unbind()


def added(spec, dtype=torch.float32):
    return ENCODINGS.build(spec, GEOMETRY).vectors(Positions.from_grid(GRID), 0, dtype)[0]


def cell_coords():
    return [(row, column) for row in range(GRID[0]) for column in range(GRID[1])]


# ---------------------------------------------------------------- other libraries


def test_sines_agree_with_timm():
    timm = peer("timm.layers.pos_embed_sincos")
    theirs = timm.build_sincos2d_pos_embed(list(GRID), 32, temperature=100.0)
    assert (added("sinusoidal(temperature=100.0)") - theirs).abs().max() < 1e-5


def test_sines_of_the_index_agree_with_positional_encodings():
    theirs = peer("positional_encodings.torch_encodings").PositionalEncoding1D(32)(torch.zeros(1, N, 32))[0]
    assert (added("sinusoidal1d") - theirs).abs().max() < 1e-5


@pytest.mark.parametrize("new", [(6, 10), (5, 3), (2, 2), (7, 4)])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_resampling_agrees_with_timm(new, antialias, mode):
    timm = peer("timm.layers.pos_embed")
    table = torch.randn(1 + N, 8)
    theirs = timm.resample_abs_pos_embed(
        table[None], list(new), list(GRID), num_prefix_tokens=1, interpolation=mode, antialias=antialias
    )[0]
    ours = resize_flat_table(table, GRID, new, prefix=1, mode=mode + ("-antialias" if antialias else ""))
    assert (ours - theirs).abs().max() < 1e-5


def test_rotation_agrees_with_timm():
    """timm's tables put the row before the column where the release puts the column first: the halves are swapped."""
    timm = peer("timm.layers.pos_embed_sincos")
    q, _ = qk(torch.float32)
    ours = build("rope(base=100.0)").rotate(q, q, Positions.from_grid(GRID), 0)[0]
    bands = 100.0 ** -(torch.arange(4) / 4)
    sin, cos = timm.build_rotary_pos_embed(list(GRID), bands=bands, in_pixels=False)
    swapped = torch.cat([q[..., 8:], q[..., :8]], -1)
    theirs = timm.apply_rot_embed(swapped, sin, cos)
    assert (ours - torch.cat([theirs[..., 8:], theirs[..., :8]], -1)).abs().max() < 1e-5


def test_mixed_rotation_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_sincos")
    encoding = build("rope_mixed")
    theirs = timm.RotaryEmbeddingMixed(32, depth=2, num_heads=2, feat_shape=list(GRID), grid_indexing="xy")
    with torch.no_grad():
        column_row = encoding.mixed_frequencies.flip(2)  # (depth, H, 2, d/2), column first
        theirs.freqs.copy_(column_row.permute(2, 0, 1, 3).reshape(theirs.freqs.shape))
    q, _ = qk(torch.float32)
    for layer in range(2):
        table = theirs.get_embed(list(GRID))[layer]
        expected = timm.apply_rot_embed_cat(q, table)
        ours = encoding.rotate(q, q, Positions.from_grid(GRID), layer)[0]
        assert (ours - expected).abs().max() < 1e-5


def test_axial_rotation_agrees_with_rotary_embedding_torch():
    module = peer("rotary_embedding_torch")
    rotary = module.RotaryEmbedding(dim=8, freqs_for="lang", theta=100.0)
    q, _ = qk(torch.float32)
    row, column = (torch.tensor([place[axis] for place in cell_coords()]).float() for axis in (0, 1))
    # the release: frequencies base^(−t/(d/4)); theirs: theta^(−2t/dim) with dim = d/2, which is the same
    expected = torch.cat(
        [
            module.apply_rotary_emb(rotary.forward(at, seq_len=None), part)
            for at, part in ((column, q[..., :8]), (row, q[..., 8:]))
        ],
        -1,
    )
    ours = build("rope(base=100.0)").rotate(q, q, Positions.from_grid(GRID), 0)[0]
    assert (ours - expected).abs().max() < 1e-5


def test_relative_bias_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_rel")
    theirs = timm.RelPosBias(window_size=GRID, num_heads=2)
    encoding = build("relative")
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(encoding.table[1].flatten(0, 1))
    q, k = qk(torch.float32)
    assert (encoding.bias(q, k, Positions.from_grid(GRID), 1) - theirs.get_bias()).abs().max() < 1e-5


def test_relative_bias_with_cls_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_rel")
    theirs = timm.RelPosBias(window_size=GRID, num_heads=2, prefix_tokens=1)
    encoding = build("relative(prefix_bias=True)", Geometry(32, 2, 2, GRID, num_prefix=1))
    with torch.no_grad():  # timm: CLS to patch, patch to CLS, CLS to CLS stand behind the offsets
        theirs.relative_position_bias_table.copy_(torch.cat([encoding.table[0].flatten(0, 1), encoding.prefix_bias[0]]))
    q, k = qk(torch.float32, n=N + 1)
    assert (encoding.bias(q, k, Positions.from_grid(GRID), 0) - theirs.get_bias()).abs().max() < 1e-5


def test_the_bias_of_swin_v2_agrees_with_timm():
    timm = peer("timm.layers.pos_embed_rel")
    theirs = timm.RelPosMlp(window_size=GRID, num_heads=2, hidden_dim=512, mode="swin").eval()
    encoding = build("cpb")
    ours = encoding.networks[1]
    with torch.no_grad():
        theirs.mlp.fc1.weight.copy_(ours[0].weight), theirs.mlp.fc1.bias.copy_(ours[0].bias)
        theirs.mlp.fc2.weight.copy_(ours[2].weight)
        if theirs.mlp.fc2.bias is not None:
            theirs.mlp.fc2.bias.zero_()
    q, k = qk(torch.float32)
    assert (encoding.bias(q, k, Positions.from_grid(GRID), 1) - theirs.get_bias()).abs().max() < 1e-5


def test_causal_counting_agrees_with_x_transformers():
    module = peer("x_transformers.x_transformers")
    theirs = module.CoPE(16, 2, max_pos=6)
    encoding = build("cope(max_positions=6, causal=True)")
    with torch.no_grad():
        theirs.pos_emb.copy_(encoding.table[0])
    q, k = qk(torch.float32)
    logits = q @ k.mT / 4
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    expected = theirs(q, logits.masked_fill(future, -torch.finfo(logits.dtype).max))
    ours = encoding.bias(q, k, Positions.from_grid(GRID), 0)
    past = ~future
    assert (ours - expected)[..., past].abs().max() < 1e-5


# ---------------------------------------------------------------- literal loops


def interpolate(table, at):
    """e[p] for a count p, as the papers write it: between the whole counts around it."""
    at = min(max(at, 0.0), len(table) - 1.0)
    low = math.floor(at)
    high = min(low + 1, len(table) - 1)
    return (1 - (at - low)) * table[low] + (at - low) * table[high]


@pytest.mark.parametrize("mode", ["key", "query"])
@pytest.mark.parametrize("rest", ["", ", max_positions=3", ", scale_gates=False", ", scale_bias=False", ", sign=-1"])
def test_sape2_is_its_equations(mode, rest):
    encoding = build(f"sape2(mode='{mode}'{rest})", dtype=torch.float64)
    q, k = qk(batch=1, heads=1)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    scale = 1.0 if "scale_gates" in rest else 0.25
    gates = torch.sigmoid(q[0, 0] @ k[0, 0].mT * scale)
    dotted = (k if mode == "key" else q)[0, 0]
    vectors = []
    for axis in (1, 0):  # along the row (columns counted), then along the column
        table = encoding.tables[0 if axis == 1 else 1][1]
        rows = []
        for i, here in enumerate(cell_coords()):
            line = [j for j, other in enumerate(cell_coords()) if other[1 - axis] == here[1 - axis]]
            z = []
            for m in range(GRID[axis]):
                count = sum(gates[i, j].item() for j in line if cell_coords()[j][axis] >= m)
                z.append(dotted[i] @ interpolate(table, count))
            rows.append(torch.stack(z))
        vectors.append(torch.stack(rows))
    factor = (-1 if "sign" in rest else 1) * (1 if "scale_bias" in rest else 0.25)
    for i in range(N):
        for n in range(N):
            expected = factor * sum((v[i] - v[n]).square().sum().sqrt() for v in vectors)
            assert abs(bias[i, n] - expected) < 1e-6


def test_sape2_without_axes_counts_along_the_row_major_order():
    encoding = build("sape2(per_axis=False)", dtype=torch.float64)
    q, k = qk(batch=1, heads=1)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    gates = torch.sigmoid(q[0, 0] @ k[0, 0].mT * 0.25)
    z = torch.stack(
        [
            torch.stack([k[0, 0, i] @ interpolate(encoding.tables[0][1], gates[i, m:].sum().item()) for m in range(N)])
            for i in range(N)
        ]
    )
    expected = torch.stack([torch.stack([(z[i] - z[n]).square().sum().sqrt() for n in range(N)]) for i in range(N)])
    assert (bias - 0.25 * expected).abs().max() < 1e-6


@pytest.mark.parametrize(
    "spec", ["factorized", "factorized(fractional=True)", "fourier", "fourier(learnable=False)", "coordinate_mlp"]
)
def test_the_vector_of_a_position_is_its_formula(spec):
    encoding = build(spec, dtype=torch.float64)
    added = encoding.vectors(Positions.from_grid(GRID), 0, torch.float64)[0].detach()
    for n, (row, column) in enumerate(cell_coords()):
        at = torch.tensor([2 * (row + 0.5) / GRID[0] - 1, 2 * (column + 0.5) / GRID[1] - 1], dtype=torch.float64)
        if spec.startswith("factorized"):
            expected = encoding.rows[row] + encoding.columns[column]
        elif spec == "coordinate_mlp":
            first, _, last = encoding.network
            expected = last.weight @ F.gelu(first.weight @ at + first.bias) + last.bias
        else:
            angles = 2 * math.pi * (encoding.directions[0] * at[0] + encoding.directions[1] * at[1])
            expected = torch.cat([angles.cos(), angles.sin()])
            if spec == "fourier":
                first, _, last = encoding.network
                expected = last.weight @ F.gelu(first.weight @ expected / 32**0.5 + first.bias) + last.bias
        assert (added[n] - expected).abs().max() < 1e-6


def test_cope_among_patches_is_its_formula():
    encoding = build("cope(max_positions=5)", dtype=torch.float64)
    q, k = qk(batch=1, heads=1)
    gates = torch.sigmoid(q[0, 0] @ k[0, 0].mT / 4)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)[0, 0]
    for i in range(N):
        for j in range(N):
            count = gates[i, j:].sum().item()
            assert abs(bias[i, j] - q[0, 0, i] @ interpolate(encoding.table[1], count)) < 1e-6


@pytest.mark.parametrize("heads", [2, 6, 12])
def test_alibi_is_its_formula(heads):
    encoding = ENCODINGS.build("alibi", Geometry(48, heads, 2, GRID))
    q, k = qk(heads=heads, width=48 // heads)
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 0)
    for head in range(heads):
        for i, a in enumerate(cell_coords()):
            for j, b in enumerate(cell_coords()):
                assert abs(bias[0, head, i, j] + 2 ** (-8 * (head + 1) / heads) * math.dist(a, b)) < 1e-6


@pytest.mark.parametrize("view", [180, 90, 45])
def test_lookhere_is_its_description(view):
    heads, depth = 12, 3
    encoding = ENCODINGS.build(f"lookhere(field_of_view={view})", Geometry(96, heads, depth, GRID))
    q, k = qk(heads=heads, width=8)
    fields = {  # of an offset down and to the right, in order of the heads
        180: [lambda d, r: r >= 0, lambda d, r: d >= 0, lambda d, r: r <= 0, lambda d, r: d <= 0],
        90: [
            lambda d, r: d >= 0 and r >= 0,
            lambda d, r: d >= 0 and r <= 0,
            lambda d, r: d <= 0 and r <= 0,
            lambda d, r: d <= 0 and r >= 0,
        ],
        45: [
            lambda d, r: 0 <= d <= r,
            lambda d, r: 0 <= r <= d,
            lambda d, r: 0 <= -r <= d,
            lambda d, r: 0 <= d <= -r,
            lambda d, r: 0 <= -d <= -r,
            lambda d, r: 0 <= -r <= -d,
            lambda d, r: 0 <= r <= -d,
            lambda d, r: 0 <= -d <= r,
        ],
    }[view]
    for layer, decay in enumerate((1.5, 1.0, 0.5)):
        bias = encoding.bias(q, k, Positions.from_grid(GRID), layer)[0]
        for head in range(heads):
            for i, a in enumerate(cell_coords()):
                for j, b in enumerate(cell_coords()):
                    down, right = b[0] - a[0], b[1] - a[1]
                    sees = head >= 8 or fields[head % len(fields)](down, right)
                    slope = 4.0 ** -(head - 7) if head >= 8 else 0.5 if head < len(fields) else 0.25
                    expected = -decay * slope * math.dist(a, b) if sees else -math.inf
                    assert bias[head, i, j] == pytest.approx(expected, abs=1e-6)


def test_dino_rotates_as_its_release():
    """The release rotates channel t with t + d/2 by 2π·coordinate/period, rows in the first d/4 of each half."""
    q, _ = qk()
    ours = build("rope_dino", dtype=torch.float64).eval().rotate(q, q, Positions.from_grid(GRID), 0)[0]
    width = q.shape[-1]
    periods = 100.0 ** (torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    expected = torch.empty_like(q)
    for n, place in enumerate(cell_coords()):
        unit = [2 * (at + 0.5) / side - 1 for at, side in zip(place, GRID, strict=True)]
        angles = torch.cat([2 * math.pi * unit[0] / periods, 2 * math.pi * unit[1] / periods])
        first, second = q[:, :, n, 0::2], q[:, :, n, 1::2]  # the release's halves are our even and odd channels
        expected[:, :, n, 0::2] = first * angles.cos() - second * angles.sin()
        expected[:, :, n, 1::2] = second * angles.cos() + first * angles.sin()
    assert (ours - expected).abs().max() < 1e-6


@pytest.mark.parametrize(("heads", "directed"), [(6, 4), (12, 8), (16, 8), (3, 2)])
def test_lookhere_directs_as_many_heads_as_the_release(heads, directed):
    encoding = ENCODINGS.build("lookhere", Geometry(8 * heads, heads, 1, GRID))
    q, k = qk(heads=heads, width=8)
    blocked = encoding.bias(q, k, Positions.from_grid(GRID), 0)[0].isinf().flatten(1).any(1)
    assert blocked.tolist() == [head < directed for head in range(heads)]


@pytest.mark.parametrize("mode", ["contextual", "bias"])
def test_irpe_is_its_formula_with_a_bucket_for_prefix_tokens(mode):
    geometry = Geometry(32, 2, 2, (4, 20), num_prefix=1)
    encoding = build(f"irpe(mode='{mode}')", geometry, torch.float64)
    q, k = qk(n=81)
    bias = encoding.bias(q, k, Positions.from_grid((4, 20)), 1)

    def bucket(x):
        if abs(x) <= 1.9:
            return x
        far = round(1.9 + 1.9 * math.log(abs(x) / 1.9) / math.log(15.2 / 1.9))
        return int(math.copysign(min(3.8, far), x))

    at = [None, *((row, column) for row in range(4) for column in range(20))]
    for i in range(0, 81, 7):
        for j in range(81):
            index = 49
            if at[i] and at[j]:
                index = (bucket(at[i][0] - at[j][0]) + 3) * 7 + bucket(at[i][1] - at[j][1]) + 3
            for head in range(2):
                if mode == "contextual":
                    expected = q[0, head, i] / 4 @ encoding.table[1, index]
                else:
                    expected = encoding.table[1, head, index]
                assert abs(bias[0, head, i, j] - expected) < 1e-6


@pytest.mark.parametrize("block", [2, 4, 16])
def test_liere_is_the_exponential_of_its_generators(block):
    encoding = build(f"liere(block_size={block})", dtype=torch.float64)
    q, _ = qk(batch=1)
    ours = encoding.rotate(q, q, Positions.from_grid(GRID), 1)[0]
    for head in range(2):
        for n, (row, column) in enumerate(cell_coords()):
            rotated = []
            for group in range(16 // block):
                skew = torch.zeros(block, block, dtype=torch.float64)
                entry = 0
                for a in range(block):
                    for b in range(a + 1, block):
                        by_row, by_column = encoding.generators[1, head, group, :, entry].tolist()
                        value = by_row * row / (GRID[0] - 1) + by_column * column / (GRID[1] - 1)
                        skew[a, b], skew[b, a] = value, -value
                        entry += 1
                power, total = torch.eye(block, dtype=torch.float64), torch.eye(block, dtype=torch.float64)
                for term in range(1, 60):
                    power = power @ skew / term
                    total = total + power
                rotated.append(total @ q[0, head, n, group * block : (group + 1) * block])
            assert (ours[0, head, n] - torch.cat(rotated)).abs().max() < 1e-6


def test_liere_of_blocks_of_two_is_mixed_rope():
    liere, mixed = build("liere(block_size=2)", dtype=torch.float64), build("rope_mixed", dtype=torch.float64)
    with torch.no_grad():  # a generator rotates (a, b) to (a cos + b sin, …): the other way round, per training span
        spans = torch.tensor([GRID[0] - 1, GRID[1] - 1], dtype=torch.float64)
        mixed.mixed_frequencies.copy_(-(liere.generators[..., 0] / spans).permute(0, 1, 3, 2))
    q, _ = qk()
    for layer in range(2):
        ours = [e.rotate(q, q, Positions.from_grid(GRID), layer)[0] for e in (liere, mixed)]
        assert torch.allclose(*ours, atol=1e-9)


def test_decomposed_bias_is_its_formula():
    encoding = build("decomposed", dtype=torch.float64)
    q, k = qk()
    bias = encoding.bias(q, k, Positions.from_grid(GRID), 1)
    for i, a in enumerate(cell_coords()):
        for j, b in enumerate(cell_coords()):
            vector = encoding.rows[1, a[0] - b[0] + 2] + encoding.columns[1, a[1] - b[1] + 4]
            assert (bias[:, :, i, j] - q[:, :, i] @ vector).abs().max() < 1e-6


def test_cosine_attention_is_swin_v2s_for_prefix_tokens_too():
    model = MODELS.build(
        "vit(patch=2, dim=32, depth=1, heads=2, registers=1, qk_norm='cosine')", (1, 6, 8), 3, "cpb"
    ).double()
    attention, encoding, pos = model.blocks[0].attention, model.encoding, Positions.from_grid((3, 4))
    x = 3 * torch.randn(2, 14, 32, dtype=torch.float64)
    q, k, v = (y.transpose(1, 2) for y in attention.qkv(x).unflatten(2, (3, 2, -1)).unbind(2))
    scale = attention.logit_scale.clamp(max=math.log(100)).exp()[:, None, None]
    bias = F.pad(encoding.bias(q, k, pos, 0), (2, 0, 2, 0))
    expected = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * scale + bias).softmax(-1) @ v
    assert torch.allclose(attention(x, encoding, pos, 0), attention.proj(expected.transpose(1, 2).flatten(2)))


def test_a_convolution_adds_what_conv2d_gives():
    encoding = build("cpe(layers=(0,))", dtype=torch.float64)
    x = torch.randn(2, N, 32, dtype=torch.float64)
    kernel = encoding.convolutions["0"]
    image = x.mT.unflatten(2, GRID)
    expected = x + F.conv2d(image, kernel.weight, kernel.bias, padding=1, groups=32).flatten(2).mT
    assert torch.allclose(encoding.update(x, Positions.from_grid(GRID), 0), expected)
