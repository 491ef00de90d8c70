"""Augmentations that permute patches of pixels: the jigsaw of MJP (Ren et al., CVPR 2023) and its variant SPP."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from vitpos.block_masks import BlockMaskSampler
from vitpos.errors import InputError
from vitpos.patches import permute_patches, permute_pixels
from vitpos.training.augment.base import Augment


class Jigsaw(Augment):
    """Permutes the patches under a block-wise mask among themselves: MJP in pixels, for models without tokens.

    MJP is the masked jigsaw puzzle of Ren et al., CVPR 2023. The augmentation equals the encoding ``mjp``, which permutes
    tokens, without its vector for hidden positions and its localization loss.

    Args:
        grid: Rows and columns of the patches.
        mask_ratio: Maximum fraction of masked patches.
        mask_per: One mask for the ``"batch"``, or one per ``"image"``.
        mask_prob: Probability that a batch is masked.
        mask_warmup: Fraction of training, from the start, without masks.
        block_size: Areas of the masked rectangles: ``"published"`` uses those of the paper, 8 to 75 patches, meant for a
            14×14 grid; ``"scaled"`` scales them to the size of the grid; ``"exact"`` scales them too, and adds single
            patches until exactly ``mask_ratio`` is masked.
        derangement: Whether no masked patch may keep its position.
    """

    def __init__(
        self,
        *,
        grid: tuple[int, int] = (14, 14),
        mask_ratio: float = 0.27,
        mask_per: Literal["batch", "image"] = "batch",
        mask_prob: float = 1.0,
        mask_warmup: float = 0.0,
        block_size: Literal["scaled", "published", "exact"] = "scaled",
        derangement: bool = False,
    ):
        if min(grid) < 1:
            raise InputError(f"augmentation 'jigsaw' got grid={grid}; give (rows, columns)")
        self.grid, self.progress = grid, 1.0
        self.sampler = BlockMaskSampler(
            "augmentation 'jigsaw'", mask_ratio, mask_per, mask_prob, mask_warmup, block_size, derangement
        )
        self.sampler.check(grid)

    def set_progress(self, progress: float) -> None:
        """Stores the fraction of training that is done, 0 to 1; there are no masks below ``mask_warmup``."""
        self.progress = progress

    def on_inputs(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Permutes the patches of inputs (B, C, height, width) under random masks; returns inputs and unchanged targets."""
        mask = self.sampler.sample_mask(self.grid, len(inputs), self.progress, inputs.device)
        if mask is not None:
            inputs = permute_patches(inputs, self.grid, self.sampler.sample_order(mask))
        return inputs, targets


class PatchPixelShuffle(Augment):
    """Permutes all patches of an image, and the pixels within each patch (SPP in Table 4 of MJP; Ren et al., CVPR 2023).

    Per batch, one permutation of the patches and one of the pixels are sampled and applied to all images.

    Args:
        grid: Rows and columns of the patches.
    """

    def __init__(self, *, grid: tuple[int, int] = (14, 14)):
        if min(grid) < 1:
            raise InputError(f"augmentation 'patch_pixel_shuffle' got grid={grid}; give (rows, columns)")
        self.grid = grid

    def on_inputs(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Permutes patches and their pixels in inputs (B, C, height, width); returns inputs and unchanged targets."""
        count = self.grid[0] * self.grid[1]
        permuted = permute_patches(inputs, self.grid, torch.randperm(count, device=inputs.device))
        pixels = permuted.shape[2] * permuted.shape[3] // count
        return permute_pixels(permuted, self.grid, torch.randperm(pixels, device=inputs.device)), targets
