"""Applies to tokens what a position encoding does before a block: adds its vectors, then calls its ``update``.

All models use these functions. A token whose position is hidden (masked) gets no vector, or the encoding's vector for
unknown positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitpos.encodings.base import PositionEncoding, total
from vitpos.errors import InputError
from vitpos.models import hooks
from vitpos.positions import Positions


def check_positions(pos: Positions, x: Tensor) -> None:
    """Raises InputError if there is not one position for each of the patch tokens x (B, N, D)."""
    count, batch = pos.index.shape[1], max(pos.index.shape[0], pos.known.shape[0])
    if count != x.shape[1] or batch not in (1, x.shape[0]):
        raise InputError(
            f"{count} positions for {batch} images do not fit {x.shape[0]} images of {x.shape[1]} patches; "
            "give one per patch, for one image or for all"
        )


def embed(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int) -> Tensor:
    """Returns the patch tokens (B, N, D) as they enter block ``layer``: x plus the encoding's vectors, then updated.

    The update is the encoding's method ``update``, which depends on the tokens' content, such as a convolution (`cpe`).
    A token with a hidden (masked) position gets no vector; at layer 0 it gets the encoding's ``unknown_vector``
    instead, if any. ``pos`` are the positions of the tokens x (B, N, D).
    """
    vectors = _vectors(encoding, x, pos, layer)
    return hooks.update(encoding, x if vectors is None else x + vectors, pos, layer)


def _vectors(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int) -> Tensor | None:
    vectors = hooks.vectors(encoding, x, pos, layer)
    if not pos.has_hidden:
        return vectors
    known = pos.known[..., None]
    unknown = hooks.unknown_vector(encoding, x) if layer == 0 else None
    masked = None if vectors is None else vectors.where(known, 0)
    return total([masked, None if unknown is None else torch.where(known, 0, unknown)])


def input_vectors(encoding: PositionEncoding, pos: Positions, like: Tensor) -> tuple[Tensor, bool]:
    """Returns the vectors (B|1, N, D) that an encoding adds to the tokens at the input, and whether that is all it does.

    The second value is False if the encoding also changes tokens depending on their content, for example by a
    convolution (`cpe`); the vectors then leave this change out. ``like`` (…, D) gives width, dtype and device.
    """
    batch = max(one.shape[0] for one in (pos.coords, pos.index, pos.known))
    zeros = like.new_zeros(batch, pos.index.shape[1], like.shape[-1])
    vectors = _vectors(encoding, zeros, pos, 0)
    vectors = zeros if vectors is None else zeros + vectors
    content = torch.randn(zeros.shape, generator=torch.Generator().manual_seed(0)).to(zeros)
    with torch.no_grad():
        change = hooks.update(encoding, content, pos, 0) - hooks.update(encoding, zeros, pos, 0)
    if not torch.allclose(change, content, atol=1e-6):
        return vectors, False
    return hooks.update(encoding, vectors, pos, 0), True


def embed_tokens(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int, num_prefix: int) -> Tensor:
    """Returns the tokens x (B, T, D) as they enter block ``layer``: the position encoding has acted on the patch tokens.

    The encoding adds its vectors to them, then changes them by its method ``update``, such as a convolution. The first
    ``num_prefix`` tokens (CLS and registers) stay unchanged. ``pos`` are the positions of the patch tokens.
    """
    patches = x[:, num_prefix:]
    embedded = embed(encoding, patches, pos, layer)
    if embedded is patches:
        return x
    return torch.cat([x[:, :num_prefix], embedded], 1) if num_prefix else embedded
