"""The Swin Transformer (Liu et al., ICCV 2021): attention inside windows that shift, stages that merge patches."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding, parts
from vitpos.errors import UserError
from vitpos.models.base import Init, PatchClassifier, Shape, build_encoding, initialise
from vitpos.models.vit import Block
from vitpos.models.windows import Windows
from vitpos.patches import to_2tuple
from vitpos.positions import Positions

INSIDE = ("refresh", "prepare", "bias", "score", "rotate")  # hooks of an encoding that only windows can serve
OUTSIDE = ("penalty", "advance")  # hooks that only the patch grid can serve


class Swin(PatchClassifier):
    """Swin-T, or any other Swin: attention inside windows that shift, in stages that halve the grid and double the width.

    There are two kinds of places. ``encoding`` tells of those on the grid of patches, once, before the first stage:
    whatever moves, hides or adds to tokens (``learned + mjp``). ``windows`` is an encoding of the places inside a window,
    one for each stage: a relative bias as published, or any other; what it adds once, it adds at the start of its stage to
    windows that are not shifted. Positions given from outside are those on the grid of patches; windows are cut by slots.

    A window larger than its stage's grid shrinks to it and does not shift. Where a grid is not made of whole windows it
    is padded at its end with tokens that nobody sees (timm lets them be seen); odd grids are padded with zeros to be
    merged.
    """

    by_slot = True

    def __init__(
        self,
        image: Shape,
        classes: int,
        encoding: str = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        heads: tuple[int, ...] = (3, 6, 12, 24),
        window: int | tuple[int, int] = 7,
        windows: str = "relative",
        mlp: float = 4.0,
        drop_path: float = 0.2,
        init: Literal["normal", "xavier"] = "normal",
    ):
        _check(dim, depths, heads, to_2tuple(window), mlp, drop_path)
        super().__init__(image, encoding, patch=patch, dim=dim, heads=heads[0], depth=sum(depths))
        _refuse(encoding, self.encoding, INSIDE, "acts inside windows; give it to them: swin(windows={!r})")
        self.patch_norm = nn.LayerNorm(dim)
        rates = torch.linspace(0, drop_path, sum(depths), device="cpu").tolist()
        ends = accumulate(depths, initial=0)
        grid, self.stages = self.geometry.grid, nn.ModuleList()
        for index, (start, end) in enumerate(pairwise(ends)):
            grid = _halved(grid) if index else grid
            size = Windows.of(grid, to_2tuple(window), shifted=False).size
            inside = Geometry(dim * 2**index, heads[index], end - start, size)
            told = build_encoding(windows, inside, stream=2 + index)
            _refuse(windows, told, OUTSIDE, "acts on the whole grid; give it to the model's encoding: 'learned + {}'")
            self.stages.append(Stage(inside, told, mlp, rates[start:end], init, merge=index > 0))
        self.norm = nn.LayerNorm(inside.dim)
        self.head = nn.Linear(inside.dim, classes)
        initialise(self.head, init)

    def patch_tokens(self, images: Tensor) -> Tensor:
        """(B, N, D): the patches projected and normed, before anything is said of their places."""
        return self.patch_norm(super().patch_tokens(images))

    def encode(self, x: Tensor, pos: Positions) -> Tensor:
        """(B, N, D) to (B, N', D'): all stages, then the norm."""
        x = x.unflatten(1, pos.grid)
        for stage in self.stages:
            x = stage(x)
        return self.norm(x).flatten(1, 2)


class Stage(nn.Module):
    """Blocks on one grid, after merging the patches of the grid before it; every second block shifts its windows."""

    def __init__(
        self,
        inside: Geometry,
        encoding: PositionEncoding,
        mlp: float,
        drop_paths: list[float],
        init: Init,
        *,
        merge: bool,
    ):
        super().__init__()
        self.window, self.geometry, self.encoding = inside.grid, inside, encoding
        self.merge = Merge(inside.dim // 2) if merge else None
        self.blocks = nn.ModuleList(
            WindowBlock(inside, int(inside.dim * mlp), rate, shifted=layer % 2 == 1)
            for layer, rate in enumerate(drop_paths)
        )
        for module in (self.merge, self.blocks):
            if module is not None:
                initialise(module, init)

    def forward(self, x: Tensor) -> Tensor:
        """(B, R, C, D) of the grid before to (B, R', C', D') of this stage's."""
        if self.merge is not None:
            x = self.merge(x)
        windows = Windows.of((x.shape[1], x.shape[2]), self.window, shifted=False)
        cut = windows.cut(x)
        arranged, pos = self.encoding.arrange(cut, Positions.of(windows.size, device=x.device))
        placed = self.encoding.embed(arranged, pos)
        x = x if placed is cut else windows.join(placed)
        for layer, block in enumerate(self.blocks):
            x = block(x, self.encoding, pos, layer)
        return x


class WindowBlock(Block):
    """Attention inside windows and feed-forward, each after a norm and beside a residual."""

    def __init__(self, inside: Geometry, hidden: int, drop_path: float, *, shifted: bool):
        super().__init__(inside.dim, inside.heads, hidden, drop_path, eps=1e-5)
        self.window, self.shifted = inside.grid, shifted

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """(B, R, C, D) → (B, R, C, D); ``pos`` are the places inside a window."""
        windows = Windows.of((x.shape[1], x.shape[2]), self.window, shifted=self.shifted)
        cut = windows.cut(x)
        fresh = encoding.refresh(cut, pos, layer)
        x = x if fresh is cut else windows.join(fresh)
        y = self.attention(self.norm1(fresh), encoding, pos, layer, windows.mask(x))
        x = x + self.drop(windows.join(y))
        return x + self.drop(self.mlp(self.norm2(x)))


class Merge(nn.Module):
    """Four neighbouring patches become one of twice the width; an odd grid is padded with zeros."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, R, C, D) → (B, ⌈R/2⌉, ⌈C/2⌉, 2·D)."""
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (B, R/2, 2, C/2, 2, D)
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3)  # as published, the patch below comes before the one beside
        return self.reduction(self.norm(x))


def _halved(grid: tuple[int, int]) -> tuple[int, int]:
    return -(-grid[0] // 2), -(-grid[1] // 2)


def _check(
    dim: int, depths: tuple[int, ...], heads: tuple[int, ...], window: tuple[int, int], mlp: float, drop_path: float
) -> None:
    """Refuses options that make no Swin."""
    if not depths or len(depths) != len(heads) or min(*depths, *heads, *window) < 1:
        raise UserError(
            f"model 'swin' got depths={depths}, heads={heads}, window={window}; "
            "give each stage a depth and a number of heads, and take 1 or more everywhere"
        )
    for index, count in enumerate(heads):
        if dim * 2**index % count:
            raise UserError(
                f"model 'swin': a width of {dim * 2**index} in stage {index + 1} cannot be shared by {count} heads; "
                "choose a dim that they divide"
            )
    if not 0 <= drop_path < 1 or mlp <= 0:
        raise UserError(
            f"model 'swin' got drop_path={drop_path}, mlp={mlp}; take a drop_path from 0 to below 1 and an mlp above 0"
        )


def _refuse(spec: str, encoding: PositionEncoding, hooks: tuple[str, ...], remedy: str) -> None:
    """Refuses the terms of an encoding that act at hooks which are not served where it was given."""
    for term, part in zip(ENCODINGS.parse(spec), parts(encoding), strict=True):
        if any(part.acts(hook) for hook in hooks):
            raise UserError(f"model 'swin' got {spec!r}, of which {str(term)!r} {remedy.format(str(term))}")
