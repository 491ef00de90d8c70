"""The Swin Transformer (Liu et al., ICCV 2021): attention inside shifted windows, stages that merge patches."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import ATTENTION_HOOKS, Geometry, PositionEncoding
from vitpos.encodings.protocols import FollowsTraining
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.models.attention import QKNorm
from vitpos.models.base import EncodingLike, Init, PatchClassifier, Shape, build_encoding, init_weights
from vitpos.models.token_embedding import embed
from vitpos.models.vit import Block
from vitpos.models.windows import Windows
from vitpos.patches import to_2tuple
from vitpos.positions import Positions


class Swin(PatchClassifier):
    """Swin-T by default: attention inside shifted windows, in stages that halve the grid and double the width.

    There are two position encodings. ``encoding`` acts once before the first stage, on the whole patch grid; it may add
    to tokens, permute them or hide their positions (``learned + mjp``), but not act in attention. ``window_encoding``
    acts inside the windows, one instance per stage: by default the relative bias of the paper. Vectors that it
    adds to tokens before the first block of a stage are added in windows that are not shifted. Positions passed to the
    model are those of the patch grid.

    A window larger than the grid of its stage is reduced to that grid and not shifted. A grid that is not a multiple of
    the window is padded with masked tokens (timm does not mask them); odd grids are padded with zeros before merging.

    Args:
        patch: Patch size in pixels, one number or (height, width).
        depths: Number of blocks of each stage.
        heads: Number of heads of each stage.
        window: Side of the windows in patches, one number or (rows, columns).
        window_encoding: Spec of the position encoding inside windows.
        drop_path: Rate of stochastic depth in the last block, rising linearly from 0 in the first.
        weight_init: ``normal`` is DeiT's truncated normal with std 0.02, ``xavier`` is Xavier's uniform.
        qk_norm: Normalizes queries and keys: ``cosine`` attention with a learned scale per head (Swin-v2), or a
            ``layernorm`` per head.
    """

    windowed = True

    def __init__(
        self,
        image_shape: Shape,
        num_classes: int,
        encoding: EncodingLike = "none",
        *,
        patch: int | tuple[int, int] = 4,
        dim: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        heads: tuple[int, ...] = (3, 6, 12, 24),
        window: int | tuple[int, int] = 7,
        window_encoding: str = "relative",
        mlp_ratio: float = 4.0,
        drop_path: float = 0.2,
        weight_init: Init = "normal",
        qk_norm: QKNorm = None,
    ):
        _check(dim, depths, heads, to_2tuple(window), mlp_ratio, drop_path)
        super().__init__(image_shape, encoding, patch=patch, dim=dim, heads=heads[0], depth=sum(depths))
        _refuse(
            encoding,
            self.encoding,
            self._acts_in_blocks,
            "acts inside windows; give it to them: swin(window_encoding={!r})",
        )
        self.patch_norm = nn.LayerNorm(dim)
        rates = torch.linspace(0, drop_path, sum(depths), device="cpu").tolist()
        ends = accumulate(depths, initial=0)
        grid, self.stages = self.geometry.grid, nn.ModuleList()
        for index, (start, end) in enumerate(pairwise(ends)):
            grid = _halved(grid) if index else grid
            size = Windows.of(grid, to_2tuple(window), shifted=False).size
            inside = Geometry(dim * 2**index, heads[index], end - start, size)
            inner = build_encoding(window_encoding, inside, seed_offset=2 + index)
            _refuse(
                window_encoding,
                inner,
                _trains,
                "acts on the whole grid; give it to the model's encoding: 'learned + {}'",
            )
            self.stages.append(
                Stage(inside, inner, mlp_ratio, rates[start:end], weight_init, merge=index > 0, qk_norm=qk_norm)
            )
        self.norm = nn.LayerNorm(inside.dim)
        self.head = nn.Linear(inside.dim, num_classes)
        init_weights(self.head, weight_init)

    def _acts_in_blocks(self, part: PositionEncoding) -> bool:
        """Returns whether an encoding acts inside attention or before a block other than the first; Swin refuses these."""
        pos, x = (
            Positions.from_grid(self.geometry.grid),
            torch.zeros(1, math.prod(self.geometry.grid), self.geometry.dim),
        )
        layers = range(1, self.geometry.depth)
        return (
            not part.hooks.isdisjoint(ATTENTION_HOOKS)
            or any(part.vectors(pos, layer, x.dtype) is not None for layer in layers)
            or any(part.update(x, pos, layer) is not x for layer in layers)
        )

    def patch_tokens(self, images: Tensor) -> Tensor:
        """Returns the projected and normalized patches (B, N, D), before any position encoding."""
        return self.patch_norm(super().patch_tokens(images))

    def forward_blocks(self, x: Tensor, pos: Positions) -> Tensor:
        """Applies all stages and the final norm to patch tokens x (B, N, D); returns the last grid's tokens (B, N', D')."""
        x = x.unflatten(1, pos.grid)
        for stage in self.stages:
            x = stage(x)
        return self.norm(x).flatten(1, 2)


class Stage(nn.Module):
    """One stage of Swin: merges the patches of the previous stage (if ``merge``), then applies its blocks.

    ``inside`` is the geometry of one window: its grid is the size of the window. Every second block shifts its windows.
    """

    def __init__(
        self,
        inside: Geometry,
        encoding: PositionEncoding,
        mlp_ratio: float,
        drop_paths: list[float],
        init: Init,
        *,
        merge: bool,
        qk_norm: QKNorm,
    ):
        super().__init__()
        self.window, self.geometry, self.encoding = inside.grid, inside, encoding
        self.merge = PatchMerging(inside.dim // 2) if merge else None
        self.blocks = nn.ModuleList(
            WindowBlock(inside, int(inside.dim * mlp_ratio), rate, shifted=layer % 2 == 1, qk_norm=qk_norm)
            for layer, rate in enumerate(drop_paths)
        )
        for module in (self.merge, self.blocks):
            if module is not None:
                init_weights(module, init)

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens (B, R, C, D) on the previous stage's grid to tokens (B, R', C', D') on the grid of this stage."""
        if self.merge is not None:
            x = self.merge(x)
        windows = Windows.of((x.shape[1], x.shape[2]), self.window, shifted=False)
        cut = windows.partition(x)
        tokens, pos = hooks.augment(self.encoding, cut, Positions.from_grid(windows.size, device=x.device))
        tokens = embed(self.encoding, tokens, pos, 0)
        x = x if tokens is cut else windows.reverse(tokens)
        for layer, block in enumerate(self.blocks):
            x = block(x, self.encoding, pos, layer)
        return x


class WindowBlock(Block):
    """A pre-norm block: attention inside windows and an MLP, each with a residual connection.

    ``inside`` is the geometry of one window, ``hidden`` the width of the MLP.
    """

    def __init__(self, inside: Geometry, hidden: int, drop_path: float, *, shifted: bool, qk_norm: QKNorm):
        super().__init__(inside.dim, inside.heads, hidden, drop_path, eps=1e-5, qk_norm=qk_norm)
        self.window, self.shifted = inside.grid, shifted

    def forward(self, x: Tensor, encoding: PositionEncoding, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens (B, R, C, D) after this block, for tokens x of the same shape on the grid of the stage.

        Args:
            encoding: position encoding inside the windows.
            pos: positions inside one window.
            layer: number of the block in its stage, from 0.
        """
        windows = Windows.of((x.shape[1], x.shape[2]), self.window, shifted=self.shifted)
        cut = tokens = windows.partition(x)
        if layer:
            tokens = embed(encoding, cut, pos, layer)
            x = x if tokens is cut else windows.reverse(tokens)
        y = self.attention(self.norm1(tokens), encoding, pos, layer, windows.mask(x))
        x = x + self.drop(windows.reverse(y))
        return x + self.drop(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Merges 2×2 neighboring patches into one of twice the width; an odd grid is padded with zeros."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps tokens (B, R, C, D) to (B, ⌈R/2⌉, ⌈C/2⌉, 2·D)."""
        x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        x = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (B, R/2, 2, C/2, 2, D)
        x = x.permute(0, 1, 3, 4, 2, 5).flatten(3)  # as published, the patch below comes before the patch to the right
        return self.reduction(self.norm(x))


def _halved(grid: tuple[int, int]) -> tuple[int, int]:
    return -(-grid[0] // 2), -(-grid[1] // 2)


def _check(
    dim: int,
    depths: tuple[int, ...],
    heads: tuple[int, ...],
    window: tuple[int, int],
    mlp_ratio: float,
    drop_path: float,
) -> None:
    """Raises InputError if the options of `Swin` are out of range or do not fit each other."""
    if not depths or len(depths) != len(heads) or min(*depths, *heads, *window) < 1:
        raise InputError(
            f"model 'swin' got depths={depths}, heads={heads}, window={window}; "
            "give each stage a depth and a number of heads, all 1 or more"
        )
    for index, count in enumerate(heads):
        if dim * 2**index % count:
            raise InputError(
                f"model 'swin': the width {dim * 2**index} of stage {index + 1} is not divisible by {count} heads; "
                "choose another dim"
            )
    if not 0 <= drop_path < 1 or mlp_ratio <= 0:
        raise InputError(
            f"model 'swin' got drop_path={drop_path}, mlp_ratio={mlp_ratio}; "
            "choose a drop_path from 0 to below 1 and an mlp_ratio above 0"
        )


def _refuse(
    given: EncodingLike, encoding: PositionEncoding, acts: Callable[[PositionEncoding], bool], remedy: str
) -> None:
    """Raises InputError for the first encoding of a sum for which ``acts`` is True, because Swin does not support it.

    Args:
        given: The encoding as the user gave it, for the message.
        encoding: The encoding that was built from it.
        acts: Returns whether one encoding of the sum acts where it must not.
        remedy: What the user can do; ``{}`` stands for the encoding.
    """
    terms = map(str, ENCODINGS.parse(given)) if isinstance(given, str) else [type(p).__name__ for p in encoding.parts]
    for term, part in zip(terms, encoding.parts, strict=True):
        if acts(part):
            raise InputError(f"model 'swin' got {given!r}, of which {term!r} {remedy.format(term)}")


def _trains(part: PositionEncoding) -> bool:
    """Returns whether an encoding has an extra loss or changes in the course of training."""
    return "penalty" in part.hooks or isinstance(part, FollowsTraining)
