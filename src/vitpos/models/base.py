"""What every evaluation, attack and probe may rely on: classifiers, and classifiers that see patches."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import UserError
from vitpos.patches import patch_grid, patchify, to_2tuple
from vitpos.positions import Positions

Shape = tuple[int, int, int]  # channels, height, width of a picture
Init = Literal["normal", "xavier"]  # how weights begin


class Classifier(nn.Module):
    """Pictures (B, C, height, width) to logits (B, classes). Nothing of a batch is kept on the model."""

    head: nn.Module
    defense: str = ""  # what its training did to gradients before they were used, as a spec

    def features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """(B, D): what the head reads."""
        raise NotImplementedError

    def forward(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """(B, classes)."""
        return self.head(self.features(images, positions))

    def step(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor | float]:
        """Logits and this batch's penalty: what training, DDP and compile wrap."""
        return self.forward(images, positions), 0.0


class PatchClassifier(Classifier):
    """A classifier that cuts pictures into patches, projects each, and tells its encoding where they are."""

    by_slot: ClassVar[bool] = False  # whether the model itself goes by the slots of patches, as windows do

    def __init__(
        self,
        image: Shape,
        encoding: str,
        *,
        patch: int | tuple[int, int],
        dim: int,
        heads: int,
        depth: int,
        prefix: int = 0,
    ):
        super().__init__()
        for name, value in (("dim", dim), ("heads", heads), ("depth", depth)):
            if value < 1:
                raise UserError(f"a model with {name}={value} cannot be; choose 1 or more")
        if dim % heads:
            raise UserError(f"a width of {dim} cannot be shared by {heads} heads; choose a dim that heads divides")
        if len(image) != 3:
            raise UserError(f"pictures of {image} cannot be; give channels, height and width")
        channels, height, width = image
        self.patch = to_2tuple(patch)
        self.geometry = Geometry(dim, heads, depth, patch_grid((height, width), self.patch), prefix)
        self.span = self.geometry.grid  # the grid that was trained on: coordinates are in its patches
        self.channels = channels
        self.project = nn.Linear(channels * self.patch[0] * self.patch[1], dim)
        self.encoding = build_encoding(encoding, self.geometry)

    def positions(self, images: Tensor) -> Positions:
        """The places of these pictures' patches: those of the training grid, another grid fitted into its span."""
        height, width = images.shape[2:]
        return Positions.of(patch_grid((height, width), self.patch), fit=self.span, device=images.device)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> Self:
        """The same model for another grid: tables are resampled for good, everything else is fitted into the span."""
        new = deepcopy(self)
        new.encoding = self.encoding.resized(grid, how=how)
        new.geometry = replace(self.geometry, grid=grid)
        return new

    def patch_tokens(self, images: Tensor) -> Tensor:
        """(B, N, D): the patches projected, before anything is said of their places."""
        return self.project(patchify(images, self.patch))

    def placed(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Positions]:
        """(B, N, D): patch tokens as they enter the first layer, and the places as the encoding arranged them."""
        if images.ndim != 4 or images.shape[1] != self.channels:
            shape = tuple(images.shape)
            raise UserError(f"images of shape {shape} do not fit; give (batch, {self.channels}, height, width)")
        own = self.positions(images)
        pos = own if positions is None else positions
        x = self.patch_tokens(images)
        places, batch = pos.cells.shape[1], max(len(pos.cells), len(pos.known))
        if places != x.shape[1] or batch not in (1, len(x)):
            raise UserError(
                f"positions of {places} places for {batch} images do not fit {len(x)} images of {x.shape[1]} patches; "
                "give a place for each patch, for one image or for all"
            )
        if self.by_slot and pos.grid != own.grid:
            told, cut = ("x".join(map(str, grid)) for grid in (pos.grid, own.grid))
            raise UserError(
                f"positions on a {told} grid do not fit pictures of {cut} patches in a model with windows; "
                "give them on the grid of the picture"
            )
        x, pos = self.encoding.arrange(x, pos)
        return self.encoding.embed(x, pos), pos

    def tokens(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Positions]:
        """(B, T, D) after the last layer, prefix tokens first, and the places as the encoding arranged them."""
        x, pos = self.placed(images, positions)
        return self.encode(x, pos), pos

    def encode(self, x: Tensor, pos: Positions) -> Tensor:
        """(B, N, D) patch tokens to (B, T, D): all layers."""
        raise NotImplementedError

    def read(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, D): what the head reads; the mean over patches unless overridden."""
        return x[:, self.geometry.prefix :].mean(1)

    def features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """(B, D): what the head reads."""
        return self.read(self.tokens(images, positions)[0])

    def step(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor | float]:
        """Logits and the encoding's penalty for this batch's places."""
        x, pos = self.tokens(images, positions)
        return self.head(self.read(x)), self.encoding.penalty(pos, self.encoding)


def build_encoding(spec: str, geometry: Geometry, *, stream: int = 1) -> PositionEncoding:
    """An encoding with random numbers of its own: one seed gives all encodings the same weights around them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch.initial_seed() + stream)
        return ENCODINGS.build(spec, geometry)


def initialise(root: nn.Module, init: Init) -> None:
    """First weights of all linear layers, biases of zero.

    DeiT's truncated normal of .02, made for widths of hundreds; or Xavier's uniform ones, whose size goes by the width, so
    that narrow models learn much sooner (q, k and v as one matrix, as in torch's own attention).
    """
    for module in root.modules():
        if isinstance(module, nn.Linear):
            if init == "normal":
                nn.init.trunc_normal_(module.weight, std=0.02)
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def refuse_encoding(model: str, spec: str) -> None:
    """Refuses whatever tells places, for a model that has no tokens to tell them of."""
    traits = [set(ENCODINGS.describe(term.name).traits) for term in ENCODINGS.parse(spec)]
    if any("permutation-blind" not in known or "trained" in known for known in traits):
        raise UserError(f"model {model!r} has no tokens to give {spec!r} to; set its encoding to 'none'")
