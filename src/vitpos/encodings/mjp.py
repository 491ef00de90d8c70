"""Masked jigsaw puzzle (MJP; Ren et al., CVPR 2023): in training, some patches are shuffled and their positions hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.block_masks import BlockMaskSampler
from vitpos.encodings._pca import project_on_principal_directions
from vitpos.encodings.base import Geometry, PositionEncoding, total
from vitpos.encodings.learned import Learned
from vitpos.errors import InputError
from vitpos.positions import Positions


class MJP(PositionEncoding):
    """Shuffles the patches under a block-wise mask and hides their positions in training; added to another encoding.

    Use it in a sum: ``learned + mjp(mask_ratio=0.27)``. A localization head predicts row and column from the vectors
    that the other encodings add to tokens with known positions; its mean absolute error in grid cells is an extra loss
    (penalty). If the other encodings add no vectors, there is no penalty. In evaluation mode nothing is masked, and
    without ``slot_index`` the model is the same as without `mjp`.

    Paper and published code differ. The defaults follow the paper, except that the localization loss is the mean of the
    errors of row and column, as in the code; eq. 2 of the paper is their sum, which is twice as large
    (``localization_reduction="sum"``). The code uses ``localization_layers=2``, ``mask_prob=0.5``,
    ``mask_warmup=20/300`` and ``localization_fade=0.5``. It also initializes position vectors from N(0, 1) and applies
    weight decay to them, as ``learned(std=1.0, weight_decay=True) + mjp(init_std=1.0, weight_decay=True)``.

    Args:
        mask_ratio: Maximum fraction of the patches under the mask; with 0 only the penalty is used. A mask of one patch,
            as with 0.03 on an 8×8 grid, shuffles nothing and gives a warning.
        shuffle: Shuffles the masked patches among themselves.
        unknown: Hides the masked positions from all encodings and adds one learned vector to these tokens instead.
        slot_index: Adds another learned vector per grid cell, even where the position is hidden; initially zero.
        localization: The localization head: an MLP, a linear map, a projection onto two principal directions (PCA), or
            none.
        localization_layers: Number of layers of the MLP.
        localization_weight: Weight of the penalty.
        localization_reduction: ``mean`` averages the absolute errors of row and column, as the published code does;
            ``sum`` adds them (L1 norm), as eq. 2 of the paper does. ``sum`` equals ``mean`` with twice the weight.
        mask_prob: Probability that a batch is masked.
        mask_warmup: Fraction of training, from the start, without masks.
        localization_fade: Fraction by which the weight of the penalty falls along a cosine until the end of training;
            unless it is 0, the weight also rises linearly from 0 during the warm-up.
        mask_per: One mask and permutation per ``batch``, as in the published code, or per ``image``.
        block_size: Areas of the masked rectangles: ``published`` is 8 to 75 patches, made for a 14×14 grid; ``scaled``
            scales these areas with the number of patches; ``exact`` is ``scaled``, plus random single patches until the
            mask reaches ``mask_ratio``.
        derangement: Whether every masked patch must change its position.
        init_std: Standard deviation of the initial unknown vector.
        weight_decay: Applies weight decay to the parameters.
    """

    paper = "Ren et al., CVPR 2023"
    traits = ("permutation_invariant", "grid_shape_invariant", "translation_invariant", "learnable")

    def __init__(
        self,
        geometry: Geometry,
        *,
        mask_ratio: float = 0.27,
        shuffle: bool = True,
        unknown: bool = True,
        slot_index: bool = False,
        localization: Literal["mlp", "linear", "pca"] | None = "mlp",
        localization_layers: int = 3,
        localization_weight: float = 0.01,
        localization_reduction: Literal["mean", "sum"] = "mean",
        mask_prob: float = 1.0,
        mask_warmup: float = 0.0,
        localization_fade: float = 0.0,
        mask_per: Literal["batch", "image"] = "batch",
        block_size: Literal["scaled", "published", "exact"] = "scaled",
        derangement: bool = False,
        init_std: float = 0.02,
        weight_decay: bool = False,
    ):
        super().__init__()
        if localization_layers < 1 or localization_weight < 0 or init_std < 0 or not 0 <= localization_fade <= 1:
            raise InputError(
                f"encoding 'mjp' got localization_layers={localization_layers}, localization_weight="
                f"{localization_weight}, init_std={init_std}, localization_fade={localization_fade}; choose 1 layer or "
                "more, a weight and a std of 0 or more and a fade from 0 to 1"
            )
        self.sampler = BlockMaskSampler(
            "encoding 'mjp'", mask_ratio, mask_per, mask_prob, mask_warmup, block_size, derangement
        )
        self.sampler.check(geometry.grid, shuffle=shuffle)
        self.shuffle, self.localization, self.weight_decay = shuffle, localization, weight_decay
        self.localization_weight, self.localization_fade = localization_weight, localization_fade
        self.localization_reduction = localization_reduction
        self.progress = 1.0
        dim = geometry.dim
        # without a mask nothing would train the unknown vector
        self.unknown = nn.Parameter(torch.randn(dim) * init_std) if unknown and mask_ratio else None
        self.slots = Learned(geometry, std=0.0) if slot_index else None
        widths = {"linear": [dim, 2], "mlp": [dim] * localization_layers + [2]}.get(localization or "", [])
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        self.head = nn.Sequential(*(x for layer in layers for x in (layer, nn.ReLU())))[:-1]

    def set_progress(self, progress: float) -> None:
        """Sets the fraction of training that is done, 0 to 1, which masks and the weight of the penalty depend on."""
        self.progress = progress

    def augment(self, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
        """Returns tokens (B, N, D) and positions; in training, masked tokens are shuffled and their positions hidden."""
        mask = self.sampler.sample_mask(pos.grid, len(x), self.progress, x.device) if self.training else None
        if mask is None:
            return x, pos
        if not pos.is_row_major:
            batch = max(len(mask), len(pos.index))
            mask = mask.expand(batch, -1).gather(1, pos.index.expand(batch, -1))
        if self.shuffle:
            order = self.sampler.sample_order(mask)
            x = x[:, order[0]] if len(order) == 1 else x.gather(1, order[..., None].expand_as(x))
        return x, pos if self.unknown is None else pos.hide(mask)

    def unknown_vector(self) -> Tensor | None:
        """Returns the learned vector (D,) added to masked tokens, whose position is hidden; None without ``unknown``."""
        return self.unknown

    def update(self, x: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns the tokens x (B, N, D); with the option ``slot_index``, plus a learned vector per cell before block 0.

        There is one vector per grid cell, added also where the position is hidden (masked) from the other encodings.
        """
        if self.slots is None or layer:
            return x
        vectors = self.slots.vectors(pos.reveal(), 0, x.dtype)
        assert vectors is not None
        return x + vectors

    def penalty(self, pos: Positions, others: Sequence[PositionEncoding] = ()) -> Tensor | float:
        """Returns the localization loss, a scalar: its weight times the mean absolute error of predicted row and column.

        Row and column of each patch are predicted from the vectors that ``others``, the other encodings of the sum, add
        to the tokens. The mean is over patches with a known (not masked) position and over the two coordinates; eq. 2 of
        the paper sums the coordinates, as does ``localization_reduction="sum"``. 0 if the others add no vectors.
        """
        zero = sum(0.0 * parameter.sum() for parameter in self.parameters())  # gives every parameter a gradient (DDP)
        if self.localization is None or self._weight() == 0:
            return zero
        shown = pos.reveal()
        dtype = next((p.dtype for part in (*others, self) for p in part.parameters()), shown.coords.dtype)
        vectors = total(part.vectors(shown, 0, dtype) for part in others)  # (B|1, N, D)
        if vectors is None:
            return zero
        pca = self.localization == "pca"
        predicted = project_on_principal_directions(vectors, pos.known) if pca else self.head(vectors)
        errors = (predicted - shown.coords).abs()  # (B|1, N, 2)
        error = errors.mean(-1) if self.localization_reduction == "mean" else errors.sum(-1)  # (B|1, N)
        error, known = torch.broadcast_tensors(error, pos.known)
        return zero + self._weight() * (error * known).sum() / known.sum().clamp_min(1)

    def _weight(self) -> float:
        """Returns the current factor of the localization loss (penalty), 0 to ``localization_weight``.

        With ``localization_fade`` it rises during the warm-up and then falls as training progresses; without, it is
        constant.
        """
        weight, fade, warmup = self.localization_weight, self.localization_fade, self.sampler.mask_warmup
        if not fade:
            return weight
        if self.progress < warmup:
            return weight * self.progress / warmup
        past = (self.progress - warmup) / max(1 - warmup, 1e-9)
        return weight * (1 - fade * (1 - math.cos(math.pi * past)) / 2)

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> MJP:
        """Returns a copy for another grid (rows, columns); with ``slot_index``, its vectors per grid cell are resampled."""
        new = deepcopy(self)
        new.slots = self.slots.resized(grid, mode=mode) if self.slots else None
        return new
