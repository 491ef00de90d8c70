"""Relative position representations (Shaw et al., NAACL 2018), with a clipped offset on each axis of an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitpos.encodings._buckets import Buckets, read_buckets, sum_buckets
from vitpos.encodings._table_interpolation import interpolation_weights
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.errors import InputError
from vitpos.positions import Positions


class Shaw(PositionEncoding):
    """Adds a learned vector, which depends on the clipped offset of two patches, to each key and to each value.

    logit_ij = q_i·(k_j + a_ij)/√d and output_i = Σ_j weight_ij (v_j + b_ij). The vectors a_ij and b_ij are read from
    tables (2k + 1, 2k + 1, d) at row and column of the offset, each clipped to ±k, k = ``max_distance``. Tables are
    shared by the heads of a layer, as in the paper. At fractional offsets the four nearest vectors are interpolated.
    Pairs with a prefix token have no vectors.

    The paper treats sequences. This class uses one table over both axes, the direct extension to images; `decomposed`
    uses the sum of a row vector and a column vector. Offsets are those of `Positions.offsets`, query minus key; the
    paper's are key minus query, which only renames the entries.

    Args:
        max_distance: Largest offset k on each axis. The paper uses 16 and finds little difference from 2 on.
        keys: Adds vectors to the keys.
        values: Adds vectors to the values.
        std: Standard deviation of the initial values.
    """

    paper = "Shaw et al., NAACL 2018"
    traits = ("translation_invariant", "learnable")

    def __init__(
        self, geometry: Geometry, *, max_distance: int = 4, keys: bool = True, values: bool = True, std: float = 0.02
    ):
        super().__init__()
        if max_distance < 1:
            raise InputError(f"encoding 'shaw' got max_distance={max_distance}; choose 1 or more")
        if not keys and not values:
            raise InputError(
                "encoding 'shaw' got keys=False and values=False and would do nothing; leave one of them out"
            )
        self.max_distance = max_distance
        shape = geometry.depth, (2 * max_distance + 1) ** 2, geometry.dim // geometry.heads
        self.key_table = nn.Parameter(torch.randn(shape) * std) if keys else None  # (depth, (2k + 1)², d)
        self.value_table = nn.Parameter(torch.randn(shape) * std) if values else None

    @property
    def hooks(self) -> frozenset[str]:
        """Returns the names of the methods through which the encoding acts: ``bias``, ``added_values`` or both.

        ``bias`` is missing without the option ``keys``, ``added_values`` without the option ``values``.
        """
        unused = {"bias": self.key_table, "added_values": self.value_table}
        return self._hooks - {name for name, table in unused.items() if table is None}

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the logit bias (B, H, N, N), q_i·a_ij/√d with a learned vector a_ij per offset; None without ``keys``."""
        if self.key_table is None:
            return None
        q = q[:, :, -pos.index.shape[1] :] * q.shape[-1] ** -0.5
        return read_buckets(q @ self.key_table[layer].mT, self._buckets(pos, q.dtype))

    def added_values(self, weights: Tensor, v: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns Σ_j weight_ij b_ij (B, H, N, d), added to the attention output; b_ij is a learned vector per offset.

        ``weights`` (B, H, N, N) are the attention weights among patches; v is not used.
        """
        assert self.value_table is not None
        table = self.value_table[layer]
        return sum_buckets(weights, self._buckets(pos, weights.dtype), len(table)) @ table

    def _buckets(self, pos: Positions, dtype: torch.dtype) -> Buckets:
        return self.cached(pos, "buckets", lambda: self._offset_buckets(pos, dtype), dtype)

    def _offset_buckets(self, pos: Positions, dtype: torch.dtype) -> Buckets:
        side = 2 * self.max_distance + 1
        index, weight = interpolation_weights(pos.offsets() + self.max_distance, (side, side), mode="bilinear")
        weights = [None] if weight is None else weight.to(dtype)[:, None].unbind(-1)
        indices = index[:, None].unbind(-1)  # each (B|1, 1, N, N)
        return [(i.contiguous(), w) for i, w in zip(indices, weights, strict=True)]
