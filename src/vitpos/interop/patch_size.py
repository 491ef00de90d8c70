"""Changes the patch size of a model by the pseudo-inverse of patch resizing (FlexiViT; Beyer et al., CVPR 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.encodings._table_interpolation import parse_mode, resize_table
from vitpos.errors import InputError

Size = tuple[int, int]


def parse_patch_mode(mode: str) -> None:
    """Raises an InputError unless ``mode`` is an interpolation that is a linear map, which a projection can follow."""
    if parse_mode(mode).norm:
        raise InputError(f"cannot resize patches with mode {mode!r}: it is not linear; leave -norm out")


def resize_matrix(old: int, new: int, mode: str) -> Tensor:
    """Returns the matrix (new, old), in float64, that resizes ``old`` pixels to ``new`` pixels along one axis."""
    return resize_table(torch.eye(old, dtype=torch.float64)[:, None], (new, 1), mode=mode)[:, 0]


def resize_patches(patches: Tensor, new: Size, mode: str) -> Tensor:
    """Returns patches (…, p, q) resized to (…, p', q'), ``new`` = (p', q'), each for itself."""
    rows, columns = (resize_matrix(a, b, mode).to(patches.dtype) for a, b in zip(patches.shape[-2:], new, strict=True))
    return rows @ patches @ columns.mT


def resample_projection(weight: Tensor, new: Size, mode: str) -> Tensor:
    """Returns a patch projection (D, C, p, q) for patches of p'×q' pixels: (D, C, p', q'), ``new`` = (p', q').

    With B the matrix that resizes patches, the new weights are ŵ = pinv(B)ᵀ w, computed in float64. Larger patches give
    the tokens of the original ones: ⟨Bx, ŵ⟩ = ⟨x, w⟩ for every patch x. For smaller ones ŵ is the least-squares solution.
    """
    if tuple(weight.shape[-2:]) == tuple(new):
        return weight.clone()
    rows, columns = (
        torch.linalg.pinv(resize_matrix(a, b, mode)) for a, b in zip(weight.shape[-2:], new, strict=True)
    )  # (p, p'), (q, q'): B is their Kronecker product
    return (rows.mT @ weight.double() @ columns).to(weight.dtype)
