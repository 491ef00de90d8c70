"""Base classes of models: classifiers, and classifiers that split images into patches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.encodings.protocols import resized
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.models.token_embedding import check_positions, embed
from vitpos.patches import patch_grid, patchify, to_2tuple
from vitpos.positions import Positions

Shape = tuple[int, int, int]  # channels, height, width of an image
EncodingLike = str | Callable[..., PositionEncoding] | PositionEncoding  # a spec, a class or factory, an instance
Init = Literal["normal", "xavier"]


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    """Returns ``__init__`` of a model that also records its arguments, with which `from_pretrained` builds it again."""

    @wraps(init)
    def recorded(self: Classifier, *args: Any, **options: Any) -> None:
        if "_built_with" not in vars(self):  # not yet set by the __init__ of a subclass
            with suppress(TypeError):  # wrong arguments, which the call refuses
                found = dict(inspect.signature(init).bind(self, *args, **options).arguments)
                found.pop("self")
                if "encoding" in found:
                    found["encoding"] = spec_of(found["encoding"])
                object.__setattr__(self, "_built_with", found)
        init(self, *args, **options)

    return recorded


class Classifier(nn.Module):
    """Base class of models: maps images (B, C, height, width) to logits (B, classes).

    Models keep no state between batches, except the running statistics of batch norms (`ResNet`).
    """

    head: nn.Module
    _weight_names: object = None  # how the library that the weights come from names them; set by `vitpos.load`
    _built_with: dict[str, object] | None = None  # arguments of __init__; an encoding as its spec, None if it has none

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    @property
    def device(self) -> torch.device:
        """Returns the device of the parameters; the CPU if there are none."""
        return next(self.parameters(), torch.empty(0)).device

    def forward_features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns the features (B, D) of images (B, C, height, width) that enter the classification head.

        ``positions`` are those of the patches; None for the patch grid of the images, and in models without patches.
        """
        raise NotImplementedError

    def forward(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns the logits (B, classes) of images (B, C, height, width).

        ``positions`` are those of the patches; None for the patch grid of the images, and in models without patches.
        """
        return self.head(self.forward_features(images, positions))

    def forward_with_penalty(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor | float]:
        """Returns logits (B, classes) and an extra loss to add in training, here 0.

        Training calls this method instead of ``forward``, with the same arguments. Models with a position encoding
        override it, since some encodings define an extra loss.
        """
        return self.forward(images, positions), 0.0


class PatchClassifier(Classifier):
    """A classifier that splits images into patches, projects each to a token, and applies a position encoding."""

    windowed: ClassVar[bool] = False  # whether attention depends on the grid cells themselves, as windows do

    def __init__(
        self,
        image_shape: Shape,
        encoding: EncodingLike,
        *,
        patch: int | tuple[int, int],
        dim: int,
        heads: int,
        depth: int,
        num_prefix: int = 0,
        patch_bias: bool = True,
        train_grid: tuple[int, int] | None = None,
    ):
        super().__init__()
        for name, value in (("dim", dim), ("heads", heads), ("depth", depth)):
            if value < 1:
                raise InputError(f"a model cannot have {name}={value}; choose 1 or more")
        if dim % heads:
            raise InputError(f"dim={dim} is not divisible by heads={heads}; choose a multiple")
        if len(image_shape) != 3:
            raise InputError(f"an image shape of {image_shape} is not (channels, height, width); give three numbers")
        channels, height, width = image_shape
        self.patch = to_2tuple(patch)
        grid = patch_grid((height, width), self.patch)
        # gives coordinates their unit; unlike geometry.grid, unchanged by resized()
        self.train_grid = grid if train_grid is None else _check_train_grid(train_grid)
        self.geometry = Geometry(dim, heads, depth, self.train_grid, num_prefix)
        self.channels = channels
        self.project = nn.Linear(channels * self.patch[0] * self.patch[1], dim, bias=patch_bias)
        self.encoding = build_encoding(encoding, self.geometry)
        if grid != self.train_grid:
            self.encoding = resized(self.encoding, grid)
            self.geometry = replace(self.geometry, grid=grid)

    def positions(self, images: Tensor) -> Positions:
        """Returns the positions of the patches of images (B, C, height, width).

        If the images are larger or smaller than in training, coordinates are scaled to the range of the training grid.
        """
        height, width = images.shape[2:]
        return Positions.from_grid(
            patch_grid((height, width), self.patch), train_grid=self.train_grid, device=images.device
        )

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> Self:
        """Returns a copy whose stored position tables are resampled to another ``grid`` (rows, columns).

        Encodings without a table are kept; they depend on coordinates. ``mode`` is the interpolation, such as
        ``"bicubic"``.
        """
        new = deepcopy(self)
        new.encoding = resized(new.encoding, grid, mode=mode)
        new.geometry = replace(self.geometry, grid=grid)
        return new

    def patch_tokens(self, images: Tensor) -> Tensor:
        """Returns the projected patches (B, N, D) of images (B, C, height, width), before any position encoding."""
        return self.project(patchify(images, self.patch))

    def embed_patches(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Positions]:
        """Returns the patch tokens (B, N, D) that enter the first block, position encoding included, and their positions.

        ``positions`` are by default those of the patch grid of the images. The returned positions may differ from them,
        because some encodings change them in training: `mjp` hides the positions of masked patches.
        """
        if images.ndim != 4 or images.shape[1] != self.channels:
            shape = tuple(images.shape)
            raise InputError(f"images of shape {shape} do not fit; give (batch, {self.channels}, height, width)")
        own = self.positions(images)
        pos = own if positions is None else positions
        x = self.patch_tokens(images)
        check_positions(pos, x)
        if self.windowed and pos.grid != own.grid:
            given, needed = ("x".join(map(str, grid)) for grid in (pos.grid, own.grid))
            raise InputError(
                f"positions on a {given} grid do not fit images of {needed} patches in a model with windows; "
                "give them on the grid of the image"
            )
        x, pos = hooks.augment(self.encoding, x, pos)
        return embed(self.encoding, x, pos, 0), pos

    def forward_tokens(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Positions]:
        """Returns the tokens (B, T, D) after the last block, prefix tokens first, and the positions of the patches.

        ``positions`` are by default those of the patch grid of the images. The returned positions may differ from them:
        in training, `mjp` hides the positions of masked patches.
        """
        x, pos = self.embed_patches(images, positions)
        return self.forward_blocks(x, pos), pos

    def forward_blocks(self, x: Tensor, pos: Positions) -> Tensor:
        """Applies all blocks to embedded patch tokens x (B, N, D); returns tokens (B, T, D), prefix tokens included.

        ``pos`` are the positions of the patch tokens.
        """
        raise NotImplementedError

    def pool_tokens(self, x: Tensor) -> Tensor:
        """Returns features (B, D) from tokens x (B, T, D); by default the mean over the patch tokens."""
        return x[:, self.geometry.num_prefix :].mean(1)

    def forward_features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns the features (B, D) of images (B, C, height, width) that enter the classification head.

        ``positions`` are those of the patches, by default the patch grid of the images.
        """
        return self.pool_tokens(self.forward_tokens(images, positions)[0])

    def forward_with_penalty(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor | float]:
        """Returns logits (B, classes) and the extra loss that the position encoding defines for this batch (0 for most).

        ``positions`` are those of the patches, by default the patch grid of the images.
        """
        x, pos = self.forward_tokens(images, positions)
        return self.head(self.pool_tokens(x)), self.encoding.penalty(pos)


def _check_train_grid(grid: tuple[int, int]) -> tuple[int, int]:
    if len(grid) != 2 or min(grid) < 1:
        raise InputError(f"a model got train_grid={grid}; give rows and columns, both 1 or more")
    return grid[0], grid[1]


def require_classes(model: nn.Module, classes: Sequence[str], data: str) -> None:
    """Raises InputError if the number of outputs of the model's head is not the number of ``classes``.

    ``classes`` are the names of the classes of the data set called ``data``.
    """
    head = getattr(model, "head", nn.Identity())
    layers = [module for module in head.modules() if isinstance(module, nn.Linear)]
    if layers and layers[-1].out_features != len(classes):
        raise InputError(
            f"a model with {layers[-1].out_features} outputs does not fit data {data!r} with {len(classes)} classes; "
            f"build the model for {len(classes)} classes, or take other data"
        )


def spec_of(encoding: object) -> str | None:
    """Returns the spec of an encoding that is a spec, a class or a factory; None if it has none, as an instance."""
    try:
        return ENCODINGS.spec_of(encoding)
    except InputError:
        return None


def build_encoding(encoding: EncodingLike, geometry: Geometry, *, seed_offset: int = 1) -> PositionEncoding:
    """Builds a position encoding for a model of the given geometry (width, heads, depth, grid).

    ``encoding`` is a spec (a text such as ``"rope(base=10)"``), a class, a function or an instance. Its weights are
    drawn from a generator of their own, seeded with torch's initial seed plus ``seed_offset``, so that the other
    weights of the model are the same with any encoding.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch.initial_seed() + seed_offset)
        built: PositionEncoding = ENCODINGS.build(encoding, geometry)
    hooks.check_encoding_class(built)
    return built


def init_weights(root: nn.Module, init: Init) -> None:
    """Initializes the weights of all linear layers; biases are set to zero.

    ``normal`` is DeiT's truncated normal with std 0.02, made for widths of hundreds; ``xavier`` scales with the width, so
    that narrow models learn much faster (q, k and v count as one matrix, as in torch's own attention).
    """
    for module in root.modules():
        if isinstance(module, nn.Linear):
            if init == "normal":
                nn.init.trunc_normal_(module.weight, std=0.02)
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def reject_encoding(model: str, encoding: EncodingLike) -> None:
    """Raises InputError if ``encoding`` uses positions or has weights; called by models without tokens, such as a CNN.

    ``model`` is the name of the model, for the message.
    """
    traits = [set(entry.traits) for entry in ENCODINGS.describe_all(encoding)]
    if any("permutation_invariant" not in known or "learnable" in known for known in traits):
        given = encoding if isinstance(encoding, str) else getattr(encoding, "__name__", type(encoding).__name__)
        raise InputError(f"model {model!r} has no tokens and cannot use encoding {given!r}; set it to 'none'")
