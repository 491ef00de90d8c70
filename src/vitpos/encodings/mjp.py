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
from vitpos.masks import BlockMaskSampler
from vitpos.positions import Positions


class MJP(PositionEncoding):
    """In training, patches under a block-wise mask are shuffled among themselves and told to be at an unknown place.

    Goes with another encoding, ``learned + mjp(ratio=0.27)``. ``ratio`` of the patches are under the mask. ``jigsaw``
    shuffles them, ``unknown`` hides their places from every encoding and adds one shared trained vector instead,
    ``index`` adds one more trained vector per slot, from zero, hidden or not. ``dal`` is the head that has to find row and
    column in the position vectors of the places that are not hidden, and so a penalty on those vectors: the mean absolute
    error in cells times ``weight``. It reads what the other encodings add to tokens; where they add nothing there is
    nothing to find and no penalty. A ``ratio`` of 0 leaves the penalty alone, without an unknown vector. Nothing is masked
    outside training, where the model is the plain one.

    Paper and published code differ; the paper's choice is the default and the code's can be had: ``layers`` of the
    nonlinear head 3 (code 2), ``probability`` that a batch is masked 1 (.5), ``warmup`` share of training without masks 0
    (20/300), ``fade`` 0 keeps the weight as it is (code: .5, straight up during the warm-up, then by a cosine to half).
    One mask and one permutation serve a batch (``per="batch"``, the code's way) or each image has its own. Permutations
    may leave a patch in place as the code's do, unless ``derange``. ``blocks`` have sizes scaled to the grid (the code's on
    any grid: ``published``), or fill up the ratio to the cell (``exact``). The code draws its vectors from N(0, 1) and lets
    them decay, which changes more than the method does: ``learned(std=1.0, decay=True) + mjp(std=1.0, decay=True)``.
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
        blocks: Literal["scaled", "published", "exact"] = "scaled",
        derange: bool = False,
        std: float = 0.02,
        decay: bool = False,
    ):
        super().__init__()
        if layers < 1 or weight < 0 or std < 0 or not 0 <= fade <= 1:
            raise UserError(
                f"encoding 'mjp' got layers={layers}, weight={weight}, std={std}, fade={fade}; "
                "take layers from 1, a weight and a std from 0 and a fade from 0 to 1"
            )
        self.puzzle = BlockMaskSampler("encoding 'mjp'", ratio, per, probability, warmup, blocks, derange)
        self.puzzle.check(geometry.grid)
        self.jigsaw, self.weight, self.fade, self.decays = jigsaw, weight, fade, decay
        self.progress = 1.0
        dim = geometry.dim
        self.unknown = nn.Parameter(torch.randn(dim) * std) if unknown and ratio else None  # nothing trains it at 0
        self.index = Learned(geometry, std=0.0) if index else None
        self.dal, self.dim = dal, dim
        widths = {"linear": [dim, 2], "nonlinear": [dim] * layers + [2]}.get(dal or "", [])
        steps = [nn.Linear(a, b) for a, b in pairwise(widths)]
        self.head = nn.Sequential(*(x for step in steps for x in (step, nn.ReLU())))[:-1]

    @property
    def can_be_told(self) -> bool:
        """Whether it has the unknown vector."""
        return self.unknown is not None

    def advance(self, progress: float) -> None:
        """Masks begin and the penalty changes with how far training is."""
        self.progress = progress

    def arrange(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Shuffles and hides, in training."""
        mask = self.puzzle.sample_mask(pos.grid, len(x), self.progress, x.device) if self.training else None
        if mask is None:
            return x, pos
        if not pos.raster:
            batch = max(len(mask), len(pos.cells))
            mask = mask.expand(batch, -1).gather(1, pos.cells.expand(batch, -1))
        if self.jigsaw:
            order = self.puzzle.sample_order(mask)
            x = x[:, order[0]] if len(order) == 1 else x.gather(1, order[..., None].expand_as(x))
        return x, pos if self.unknown is None else pos.hide(mask)

    def embed(self, x: Tensor, pos: Positions) -> Tensor:
        """Adds the unknown vector where a place is hidden, and the vector of the slot."""
        if self.unknown is not None and pos.hiding:
            x = x + torch.where(pos.known[..., None], 0, self.unknown)
        return x if self.index is None else self.index.embed(x, pos.shown())

    def penalty(self, pos: Positions, whole: PositionEncoding) -> Tensor | float:
        """How far the head's rows and columns are from the true ones, where places are not hidden."""
        idle = sum(0.0 * parameter.sum() for parameter in self.parameters())  # all take part in every step
        adding = [part for part in parts(whole) if part is not self and part.acts("embed")]
        if self.dal is None or not adding or self._weight() == 0:
            return idle
        shown = pos.shown()
        like = next(whole.parameters(), shown.coords)
        vectors = torch.zeros(len(shown.cells), shown.cells.shape[1], self.dim).to(like)
        for part in adding:
            vectors = part.embed(vectors, shown)  # (B|1, N, D)
        found = along_main_directions(vectors, pos.known) if self.dal == "pca" else self.head(vectors)
        wrong = (found - shown.coords).abs().mean(-1).expand_as(pos.known)  # (B|1, N)
        return idle + self._weight() * (wrong * pos.known).sum() / pos.known.sum().clamp_min(1)

    def _weight(self) -> float:
        if not self.fade:
            return self.weight
        if self.progress < self.puzzle.mask_warmup:
            return self.weight * self.progress / self.puzzle.mask_warmup
        past = (self.progress - self.puzzle.mask_warmup) / max(1 - self.puzzle.mask_warmup, 1e-9)
        return self.weight * (1 - self.fade * (1 - math.cos(math.pi * past)) / 2)

    def resized(self, grid: tuple[int, int], *, how: str = "bicubic") -> MJP:
        """The same, with its table of slots resampled if it has one."""
        new = deepcopy(self)
        new.index = self.index.resized(grid, how=how) if self.index else None
        return new


def along_main_directions(vectors: Tensor, known: Tensor) -> Tensor:
    """Vectors (B|1, N, D) along the two main directions of the known (B|1, N) ones among them: (B|1, N, 2).

    As in the code, directions are those of the centred vectors, the vectors themselves are projected, which way a
    direction points is left to chance, and the gradient goes through the directions too. They are found exactly, from the
    smaller of the two matrices of products. A direction v of the covariance C with eigenvalue λ is to first order
    v + (λ − C)⁺(C v − λ v), in which only the last C depends on the vectors: its value is v, its gradient the right one.
    """
    share = known[..., None] / known.sum(-1).clamp_min(1)[:, None, None]
    centred = (vectors - (vectors * share).sum(1, keepdim=True)) * known[..., None]  # (B|1, N, D), zero where hidden
    fixed = centred.detach()
    if fixed.shape[1] < fixed.shape[2]:
        values, left = torch.linalg.eigh(fixed @ fixed.mT)
        directions = fixed.mT @ left  # (B|1, D, count), smallest first, as long as their eigenvalues' roots
    else:
        values, directions = torch.linalg.eigh(fixed.mT @ fixed)
    values = values[:, None]  # (B|1, 1, count)
    real = values > 1e-6 * values[..., -1:]  # the rest is rounding, and counts as zero
    directions = F.normalize(directions, dim=1) * real
    main, size = directions[..., -2:], values[..., -2:]
    change = centred.mT @ (centred @ main) - size * main  # (B|1, D, 2), zero but for its gradient
    parts = directions.mT @ change  # along all directions, (B|1, count, 2)
    gaps = size - values.mT
    apart = gaps.abs() > 1e-6 * size
    inside = directions @ torch.where(apart, parts / torch.where(apart, gaps, 1), 0)
    outside = (change - directions @ parts) / size.clamp_min(1e-12)
    return vectors @ (main + (inside + outside) * real[..., -2:]).flip(-1)
