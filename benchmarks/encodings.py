"""Time of a training step of a ViT with each encoding, as a ratio to `none` and to other implementations.

    python benchmarks/encodings.py [--rounds 25] [--only rope,sape2]
    python benchmarks/encodings.py --sape2          # time and memory compared with the formulas of its paper
    python benchmarks/encodings.py --alone          # forward pass of rotation and CoPE compared with other libraries

The model has depth 6, dim 192 and 3 heads; images have 32 pixels, patches 4; the batch size is 64. All implementations run
alternately in one process. Ratios are computed within a round; their median over the rounds is printed. Peers are models of
the same size from timm, and our ViT with the attention of PoPE-pytorch, vit-pytorch (whose own model cannot be trained on a
CPU) or goat-attention, if they are installed.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, ".")
from tests.references import pretend_torchvision_operators

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.models import MODELS
from vitpos.models.attention import SelfAttention
from vitpos.models.base import PatchClassifier
from vitpos.models.vit import ViT
from vitpos.positions import Positions

MODEL = "vit(patch=4, dim=192, depth=6, heads=3)"


class PrintedSaPE2(PositionEncoding):
    """SaPE2 as in the appendix of its paper, vectorized: gates, counts, embeddings, `torch.cdist`."""

    def __init__(self, geometry: Geometry):
        super().__init__()
        width = geometry.dim // geometry.heads
        rows, columns = geometry.grid
        self.x = nn.Parameter(torch.randn(geometry.depth, columns + 1, width) * 0.02)
        self.y = nn.Parameter(torch.randn(geometry.depth, rows + 1, width) * 0.02)

    def bias(self, q, k, pos, layer):
        q, k = (t[:, :, 1:].unflatten(2, pos.grid) for t in (q, k))
        total = 0
        for table, flip in ((self.x[layer], False), (self.y[layer], True)):
            a, b = (q.transpose(2, 3), k.transpose(2, 3)) if flip else (q, k)
            gates = torch.sigmoid(a @ b.mT * a.shape[-1] ** -0.5)
            counts = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(table) - 1)
            low, high = counts.floor().long(), counts.ceil().long()
            values = b @ table.mT
            weight = counts - low
            z = values.gather(-1, high) * weight + values.gather(-1, low) * (1 - weight)
            z = (z.transpose(2, 3) if flip else z).flatten(2, 3)
            total = total + torch.cdist(z, z)
        return total * q.shape[-1] ** -0.5


class PoPEAttention(SelfAttention):
    """Self-attention by PoPE-pytorch; CLS has no position."""

    def __init__(self, dim: int, heads: int):
        from PoPE_pytorch.pope_nd import AxialPoPE

        super().__init__(dim, heads)
        width = dim // heads
        self.pope = AxialPoPE(width, heads=heads, axial_dims=(width // 2, width // 2))

    def forward(self, x, encoding, pos, layer, mask=None):
        from PoPE_pytorch.attention import flash_attn_with_pope

        q, k, v = self.qkv_heads(x)
        patches = torch.arange(1, x.shape[1])
        y = flash_attn_with_pope(q, k, v, pos_emb=self.pope(pos.grid), pope_pos_emb_indices=patches)
        return self.proj(y.transpose(1, 2).flatten(2))


class GoldenAttention(SelfAttention):
    """Self-attention with the rotation of vit-pytorch; CLS is not rotated."""

    def __init__(self, dim: int, heads: int):
        from vit_pytorch.vit_nd_rotary import GoldenGateRoPENd

        super().__init__(dim, heads)
        self.rope = GoldenGateRoPENd(2, heads, dim // heads)

    def forward(self, x, encoding, pos, layer, mask=None):
        q, k, v = self.qkv_heads(x)
        coords = pos.coords.expand(len(x), -1, -1)
        q, k = (torch.cat([one[:, :, :1], self.rope(one[:, :, 1:], coords)], 2) for one in (q, k))
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class GoatAttention(nn.Module):
    """Self-attention by goat-attention, as configured for ViTs."""

    def __init__(self, dim: int, heads: int):
        from goat import GoatAttention

        super().__init__()
        self.attention = GoatAttention.for_vit(dim, heads, fuse_qkv=True)

    def forward(self, x, encoding, pos, layer, mask=None):
        return self.attention(x, x, x, spatial_shape=pos.grid, need_weights=False)[0]


class TimmFourier(PositionEncoding):
    """Adds the Fourier positions of timm's XCiT before the first block."""

    def __init__(self, geometry: Geometry):
        from timm.models.xcit import PositionalEncodingFourier

        super().__init__()
        self.positions = PositionalEncodingFourier(dim=geometry.dim)

    def vectors(self, pos, layer, dtype):
        return None if layer else self.positions(1, *pos.grid).flatten(2).mT


class Step:
    """Times a forward and backward pass of a model on random images; returns seconds."""

    def __init__(self, model: nn.Module, batch: int, size: int):
        self.model, self.images = model, torch.randn(batch, 3, size, size)

    def __call__(self) -> float:
        began = time.perf_counter()
        self.model(self.images).square().mean().backward()
        taken = time.perf_counter() - began
        self.model.zero_grad()
        return taken


class Call:
    """Times a function; returns seconds."""

    def __init__(self, work: Callable[[], object]):
        self.work = work

    def __call__(self) -> float:
        began = time.perf_counter()
        self.work()
        return time.perf_counter() - began


def ours(spec: str, size: int = 32) -> nn.Module:
    return MODELS.build(MODEL, (3, size, size), 10, spec)


def with_encoding(encoding: type[PositionEncoding], size: int = 32) -> PatchClassifier:
    """Returns our ViT with an encoding that is built from its geometry."""
    model: ViT = MODELS.build(MODEL, (3, size, size), 10, "none")
    model.encoding = encoding(model.geometry)
    return model


def printed(size: int) -> PatchClassifier:
    return with_encoding(PrintedSaPE2, size)


def with_attention(attention: Callable[[int, int], nn.Module]) -> nn.Module:
    """Returns our ViT without positions and with other attention layers."""
    model: ViT = MODELS.build(MODEL, (3, 32, 32), 10, "none")
    for block in model.blocks:
        block.attention = attention(192, 3)
    return model


def peers() -> dict[str, tuple[str, nn.Module]]:
    """Returns models of other libraries of the same size: name → our encoding to compare with, and the model."""
    pretend_torchvision_operators()
    return timm_peers() | other_peers()


def other_peers() -> dict[str, tuple[str, nn.Module]]:
    """Returns models with PoPE-pytorch, vit-pytorch and goat-attention."""
    try:
        return {
            "vit-pytorch golden gate": ("rope_golden", with_attention(GoldenAttention)),
            "PoPE-pytorch": ("pope", with_attention(PoPEAttention)),
            "goat-attention": ("goat", with_attention(GoatAttention)),
        }
    except ImportError as error:
        print(f"(no peers: {error})")
        return {}


def timm_peers() -> dict[str, tuple[str, nn.Module]]:
    """Returns models of timm."""
    try:
        from timm.models.convit import ConVit
        from timm.models.eva import Eva
        from timm.models.vision_transformer import VisionTransformer
        from timm.models.vision_transformer_relpos import VisionTransformerRelPos
    except ImportError as error:
        print(f"(no peers: {error})")
        return {}
    same = {"img_size": 32, "patch_size": 4, "embed_dim": 192, "depth": 6, "num_heads": 3, "num_classes": 10}
    convit = same | {"embed_dim": 64, "qkv_bias": True, "local_up_to_layer": 5, "use_pos_embed": False}  # 64 per head
    return {
        "timm learned": ("learned", VisionTransformer(**same)),
        "timm rope": ("rope", Eva(**same, use_abs_pos_emb=False, use_rot_pos_emb=True, qkv_fused=True)),
        "timm rope mixed": (
            "rope_mixed",
            Eva(**same, use_abs_pos_emb=False, use_rot_pos_emb=True, rope_type="mixed"),
        ),
        "timm relative": ("relative", VisionTransformerRelPos(**same, rel_pos_type="bias", class_token=True)),
        "timm relative mlp": (
            "cpb",
            VisionTransformerRelPos(**same, rel_pos_type="mlp", class_token=True),
        ),
        "timm convit": ("gpsa", ConVit(**convit)),
        "timm xcit fourier": ("xcit_fourier", with_encoding(TimmFourier)),
    }


def take_turns(steps: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each step in each round, after two rounds to warm up."""
    rows = [{name: step() for name, step in steps.items()} for _ in range(rounds + 2)][2:]
    return {name: [row[name] for row in rows] for name in steps}


def compare(names: list[str], rounds: int) -> None:
    rivals = {name: pair for name, pair in peers().items() if pair[0] in names}
    steps = {name: Step(ours(name), 64, 32) for name in names}
    steps |= {name: Step(model, 64, 32) for name, (_, model) in rivals.items()}
    taken = take_turns(steps, rounds)
    print(f"{'encoding':28} {'ms':>7} {'/ none':>7} {'/ peer':>7}   (medians of {rounds} rounds)")
    for name in steps:
        to_none = statistics.median(a / b for a, b in zip(taken[name], taken["none"], strict=True))
        rival = next((peer for peer, (own, _) in rivals.items() if own == name), None)
        to_peer = statistics.median(a / b for a, b in zip(taken[name], taken[rival], strict=True)) if rival else None
        text = f"{to_peer:7.2f}" if to_peer else "       "
        print(f"{name:28} {1000 * statistics.median(taken[name]):7.1f} {to_none:7.3f} {text}")


def compare_sape2(rounds: int) -> None:
    print(f"{'grid':8} {'batch':>5}   overhead over none, ours / printed form: time, memory")
    for side, batch in ((8, 64), (14, 16), (24, 4)):
        size = 4 * side
        steps = {
            "none": Step(ours("none", size), batch, size),
            "ours": Step(ours("sape2", size), batch, size),
            "printed": Step(printed(size), batch, size),
        }
        taken = take_turns(steps, rounds)
        rows = list(zip(*taken.values(), strict=True))
        plain, mine, theirs = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median((b - a) / (c - a) for a, b, c in rows)
        memory = {name: peak(name, size, batch) for name in steps}
        saved = (memory["ours"] - memory["none"]) / (memory["printed"] - memory["none"])
        times = f"step {1000 * plain:.0f} / {1000 * mine:.0f} / {1000 * theirs:.0f} ms"
        peaks = " / ".join(f"{memory[name]:.0f}" for name in steps)
        print(f"{side}x{side:<5} {batch:5}   {ratio:.2f}, {saved:.2f}   ({times}; peak {peaks} MiB)")


def compare_alone(side: int, batch: int, heads: int, rounds: int) -> None:
    """Prints the time of rotating q and k, and of CoPE, as ratios to the product q kᵀ and to other libraries."""
    pretend_torchvision_operators()
    import rotary_embedding_torch
    from timm.layers import RotaryEmbeddingCat, apply_rot_embed_cat
    from x_transformers.x_transformers import CoPE

    geometry, pos = Geometry(64 * heads, heads, 1, (side, side)), Positions.from_grid((side, side))
    q, k, _ = torch.randn(batch, side * side, 3, heads, 64).transpose(1, 3).unbind(2)
    rope, cope = ENCODINGS.build("rope", geometry), ENCODINGS.build("cope", geometry)
    table = RotaryEmbeddingCat(64, in_pixels=False, feat_shape=[side, side]).get_embed()
    angles = rotary_embedding_torch.RotaryEmbedding(32, freqs_for="pixel").get_axial_freqs(side, side).flatten(0, 1)
    theirs = CoPE(64, heads, max_pos=16)
    calls = {
        "q kT": lambda: q @ k.mT,
        "rope": lambda: rope.rotate(q, k, pos, 0),
        "timm rope": lambda: [apply_rot_embed_cat(x, table) for x in (q, k)],
        "rotary-embedding-torch": lambda: [rotary_embedding_torch.apply_rotary_emb(angles, x) for x in (q, k)],
        "cope": lambda: cope.bias(q, k, pos, 0),
        "x-transformers CoPE": lambda: theirs(q, q @ k.mT * 64**-0.5),
    }
    with torch.no_grad():
        taken = take_turns({name: Call(call) for name, call in calls.items()}, rounds)
    print(f"{side}x{side}, batch {batch}, {heads} heads: ratio to q kT (medians of {rounds} rounds)")
    for name, times in taken.items():
        print(f"  {name:24} {statistics.median(a / b for a, b in zip(times, taken['q kT'], strict=True)):6.2f}")
    for own, peer in (("rope", "timm rope"), ("rope", "rotary-embedding-torch"), ("cope", "x-transformers CoPE")):
        ratio = statistics.median(a / b for a, b in zip(taken[own], taken[peer], strict=True))
        print(f"  {own} / {peer}: {ratio:.2f}")


def peak(name: str, size: int, batch: int) -> float:
    """Returns the peak memory of three steps in a new process, in MiB."""
    command = [sys.executable, __file__, "--peak", json.dumps([name, size, batch])]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def print_peak(name: str, size: int, batch: int) -> None:
    model = printed(size) if name == "printed" else ours({"ours": "sape2"}.get(name, name), size)
    step = Step(model, batch, size)
    for _ in range(3):
        step()
    print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024)  # of this process alone


def check_printed() -> None:
    """Asserts that the formulas of the paper and our implementation give the same logits."""
    torch.manual_seed(0)
    mine, theirs = ours("sape2"), printed(32)
    theirs.load_state_dict({k: v for k, v in mine.state_dict().items() if not k.startswith("encoding")}, strict=False)
    with torch.no_grad():
        theirs.encoding.x.copy_(mine.encoding.tables[0]), theirs.encoding.y.copy_(mine.encoding.tables[1])
        images = torch.randn(2, 3, 32, 32)
        assert torch.allclose(mine(images), theirs(images), atol=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", help="names of encodings, by commas")
    parser.add_argument("--sape2", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(*json.loads(options.peak))
    elif options.sape2:
        check_printed()
        compare_sape2(options.rounds)
    elif options.alone:
        for side, batch, heads in ((8, 64, 3), (14, 32, 6)):
            compare_alone(side, batch, heads, options.rounds)
    else:
        names = options.only.split(",") if options.only else [*ENCODINGS, "cpb"]
        compare(list(dict.fromkeys(["none", *names])), options.rounds)


if __name__ == "__main__":
    main()
