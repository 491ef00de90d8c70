"""The masked jigsaw puzzle (MJP; Ren et al., CVPR 2023): in training, some patches are shuffled and their places hidden."""

from __future__ import annotations

import math
from copy import deepcopy
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings.base import Geometry, PositionEncoding, parts
from vitpos.encodings.learned import Learned
from vitpos.errors import UserError
from vitpos.patches import block_mask, scramble
from vitpos.positions import Positions


class MJP(PositionEncoding):
    """In training, patches under a block-wise mask are shuffled among themselves and told to be at an unknown place.

    Goes with another encoding, ``learned + mjp(ratio=0.27)``. ``ratio`` of the patches are under the mask. ``jigsaw``
    shuffles them, ``unknown`` hides their places from every encoding and adds one shared trained vector instead,
    ``index`` adds one more trained vector per slot, from zero. ``dal`` is the head that has to find row and
    column in the position vectors of the places that are not hidden, and so a penalty on those vectors: the mean absolute
    error in cells times ``weight``. It reads what the other encodings add to tokens; where they add nothing there is
    nothing to find and no penalty. A ``ratio`` of 0 leaves the penalty alone, without an unknown vector. Nothing is masked
    outside training, where the model is the plain one.

    Paper and published code differ; the paper's choice is the default and the code's can be had: ``layers`` of the
    nonlinear head 3 (code 2), ``probability`` that a batch is masked 1 (.5), ``warmup`` share of training without masks 0
    (20/300), ``fade`` 0 keeps the weight as it is (code: .5, straight up during the warm-up, then by a cosine to half).
    One mask and one permutation serve a batch (``per="batch"``, the code's way) or each image has its own. Permutations
    may leave a patch in place as the code's do, unless ``derange``. The smallest block is scaled to the grid. The code
    draws its vectors from N(0, 1) and lets them decay, which changes more than the method does; here they start at
    .02 and do not decay.
    """

    source = "Ren et al., CVPR 2023"
    traits = ("permutation-blind", "grid-blind", "relative", "trained")

    def __init__(
        self,
        geometry: Geometry,
        *,
        ratio: float = 0.27,
        jigsaw: bool = True,
        unknown: bool = True,
        index: bool = False,
        dal: Literal["nonlinear", "linear", "pca"] | None = "nonlinear",
        layers: int = 3,
        weight: float = 0.01,
        probability: float = 1.0,
        warmup: float = 0.0,
        fade: float = 0.0,
        per: Literal["batch", "image"] = "batch",
        derange: bool = False,
    ):
        super().__init__()
        for name, value in (("ratio", ratio), ("probability", probability), ("warmup", warmup), ("fade", fade)):
            if not 0 <= value <= 1:
                raise UserError(f"encoding 'mjp' got {name}={value}; choose a share from 0 to 1")
        if layers < 1 or weight < 0:
            raise UserError(
                f"encoding 'mjp' got layers={layers}, weight={weight}; take layers from 1 and a weight from 0"
            )
        self.ratio, self.jigsaw, self.derange, self.per = ratio, jigsaw, derange, per
        self.probability, self.warmup, self.weight, self.fade = probability, warmup, weight, fade
        self.progress = 1.0
        dim = geometry.dim
        self.unknown = nn.Parameter(torch.randn(dim) * 0.02) if unknown and ratio else None  # untrained if ratio is 0
        self.index = Learned(geometry, std=0.0) if index else None
        self.dal, self.dim = dal, dim
        widths = {"linear": [dim, 2], "nonlinear": [dim] * layers + [2]}.get(dal or "", [])
        steps = [nn.Linear(a, b) for a, b in pairwise(widths)]
        self.head = nn.Sequential(*(x for step in steps for x in (step, nn.ReLU())))[:-1]

    def advance(self, progress: float) -> None:
        """Masks begin and the penalty changes with how far training is."""
        self.progress = progress

    def arrange(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Shuffles and hides, in training."""
        if not self.training or not self.ratio or self.progress < self.warmup:
            return x, pos
        if self.probability < 1 and torch.rand(()) >= self.probability:
            return x, pos
        mask = block_mask(pos.grid, self.ratio, images=1 if self.per == "batch" else len(x), device=x.device)
        if not pos.raster:
            batch = max(len(mask), len(pos.cells))
            mask = mask.expand(batch, -1).gather(1, pos.cells.expand(batch, -1))
        if self.jigsaw:
            order = scramble(mask, derange=self.derange)
            x = x[:, order[0]] if len(order) == 1 else x.gather(1, order[..., None].expand_as(x))
        return x, pos if self.unknown is None else pos.hide(mask)

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Adds the unknown vector where a place is hidden, and the vector of the slot."""
        if self.unknown is not None and pos.hiding:
            x = x + torch.where(pos.known[..., None], 0, self.unknown)
        return x if self.index is None else self.index.embed(x, pos)

    def penalty(self, pos: Positions, whole: PositionEncoding) -> Tensor | float:
        """How far the head's rows and columns are from the true ones, where places are not hidden."""
        idle = sum(0.0 * parameter.sum() for parameter in self.parameters())  # all take part in every step
        adding = [part for part in parts(whole) if part is not self and part.acts("embed")]
        if self.dal is None or not adding or self._weight() == 0:
            return idle
        shown = pos.shown()
        vectors = torch.zeros(len(shown.cells), shown.cells.shape[1], self.dim, device=shown.coords.device)
        for part in adding:
            vectors = part.embed(vectors, shown)  # (B|1, N, D)
        found = _main_directions(vectors) if self.dal == "pca" else self.head(vectors)
        wrong = (found - shown.coords).abs().mean(-1).expand_as(pos.known)  # (B|1, N)
        return idle + self._weight() * (wrong * pos.known).sum() / pos.known.sum().clamp_min(1)

    def _weight(self) -> float:
        if not self.fade:
            return self.weight
        if self.progress < self.warmup:
            return self.weight * self.progress / self.warmup
        past = (self.progress - self.warmup) / max(1 - self.warmup, 1e-9)
        return self.weight * (1 - self.fade * (1 - math.cos(math.pi * past)) / 2)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> MJP:
        """The same, with its table of slots resampled if it has one."""
        new = deepcopy(self)
        new.index = self.index.resized(grid, how=how) if self.index else None
        return new


def _main_directions(vectors: Tensor) -> Tensor:
    """Position vectors (B, N, D) along their two main directions (B, N, 2), which are taken as given.

    As in the code, directions are those of the centred vectors, and the vectors themselves are projected; which way a
    direction points is left to chance. Found exactly, from the smaller of the two matrices of products.
    """
    centred = vectors.detach() - vectors.detach().mean(1, keepdim=True)
    if centred.shape[1] < centred.shape[2]:
        directions = centred.mT @ torch.linalg.eigh(centred @ centred.mT)[1][..., -2:]
    else:
        directions = torch.linalg.eigh(centred.mT @ centred)[1][..., -2:]
    return vectors @ F.normalize(directions.flip(-1), dim=1)
