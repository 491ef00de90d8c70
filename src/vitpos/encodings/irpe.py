"""Image relative position encoding (iRPE; Wu et al., ICCV 2021), product method."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitpos.encodings._buckets import read_buckets, sum_buckets
from vitpos.encodings.base import Geometry, PositionEncoding, total
from vitpos.errors import InputError
from vitpos.positions import Positions


class IRPE(PositionEncoding):
    """Sorts offsets into buckets, fine near zero and coarse far away, and learns a vector or a number per bucket.

    An offset x on one axis is in bucket f(x) = round(x) if |x| ≤ α, otherwise sign(x)·⌊min(β, round(α + (β −
    α)·ln(|x|/α)/ln(γ/α)))⌋, with (α, β, γ) = ``ratio``·(1, 2, 8). At ``ratio`` 1.9 f runs from −3 to 3 on each axis:
    49 buckets, and one more for all pairs with a prefix token (CLS or register). Tables start at zero.

    Tokens i and j have the vector r_ij of their bucket. With vectors on keys, q_i·r_ij/√d is added to logit_ij; on
    queries, k_j·r_ji/√d, with the bucket of the opposite offset; on values, Σ_j weight_ij r_ij is added to output_i.
    Each has its own table. The published code also adds a vector on values for pairs with CLS; here values have vectors
    among patches only.

    Args:
        mode: ``contextual`` uses a vector per bucket, shared by heads; ``bias`` adds a number per bucket and head to
            the logits, which does not depend on q, k or v.
        ratio: Scale of the buckets.
        on: Which of queries (``q``), keys (``k``) and values (``v``) have vectors; ``qk`` is both queries and keys.
    """

    paper = "Wu et al., ICCV 2021"
    traits = ("translation_invariant", "learnable", "biases_prefix")

    def __init__(
        self,
        geometry: Geometry,
        *,
        mode: Literal["contextual", "bias"] = "contextual",
        ratio: float = 1.9,
        on: Literal["k", "q", "v", "qk", "qv", "kv", "qkv"] = "k",
    ):
        super().__init__()
        if mode == "bias" and on != "k":
            raise InputError(f"encoding 'irpe' got on={on!r} with mode='bias', which has no vectors; omit 'on'")
        if ratio < 0.5:
            raise InputError(f"encoding 'irpe' got ratio={ratio}, which leaves one bucket; choose 0.5 or more")
        self.ratio = ratio
        self.max_bucket = int(2 * ratio)  # on one axis
        buckets = (2 * self.max_bucket + 1) ** 2 + 1
        head_dim = geometry.dim // geometry.heads
        self.contextual = mode == "contextual"
        shape = (buckets, head_dim) if self.contextual else (geometry.heads, buckets)
        self.on = on
        self.table = nn.Parameter(torch.zeros(geometry.depth, *shape)) if "k" in on else None
        self.query_table = nn.Parameter(torch.zeros(geometry.depth, *shape)) if "q" in on else None
        patches_only = geometry.depth, buckets - 1, head_dim
        self.value_table = nn.Parameter(torch.zeros(patches_only)) if "v" in on else None

    @property
    def hooks(self) -> frozenset[str]:
        """Returns the names of the methods through which the encoding acts: ``bias``, ``added_values`` or both.

        ``bias`` is missing if the option ``on`` is ``"v"`` (vectors on values only), ``added_values`` if ``on`` has no
        ``"v"``.
        """
        unused = {"bias": self.on == "v", "added_values": "v" not in self.on}
        return self._hooks - {name for name, leave_out in unused.items() if leave_out}

    def bias(self, q: Tensor, k: Tensor, pos: Positions, layer: int) -> Tensor | None:
        """Returns the bias (B|1, H, T, T) that is added to the attention logits of all T tokens, prefix tokens included.

        None if the option ``on`` is ``"v"``: then only values have vectors.
        """
        index = self._index(pos, q.shape[2] - pos.index.shape[1])
        if self.table is not None and not self.contextual:
            return self.table[layer].mT[index[:, 0]].permute(0, 3, 1, 2)
        scale = q.shape[-1] ** -0.5
        terms = []
        if self.table is not None:
            terms.append(read_buckets((q * scale) @ self.table[layer].mT, [(index, None)]))
        if self.query_table is not None:
            terms.append(read_buckets((k * scale) @ self.query_table[layer].mT, [(index, None)]).mT)
        return total(terms)

    def added_values(self, weights: Tensor, v: Tensor, pos: Positions, layer: int) -> Tensor:
        """Returns Σ_j weight_ij r_ij (B, H, N, d), added to the attention output; r_ij is the vector of a pair's bucket.

        A bucket is a group of similar offsets. ``weights`` (B, H, N, N) are the attention weights among patches; v is
        not used.
        """
        assert self.value_table is not None
        table = self.value_table[layer]
        return sum_buckets(weights, [(self._index(pos, 0), None)], len(table)) @ table

    def _index(self, pos: Positions, prefix: int) -> Tensor:
        """Returns for each pair of T tokens the index (B|1, 1, T, T) of its bucket, a group of similar offsets.

        The first ``prefix`` tokens are prefix tokens (CLS, registers); all pairs with one of them are in the last
        bucket.
        """
        name = f"buckets with {prefix} prefix tokens"
        return self.cached(pos, name, lambda: self._buckets(pos, prefix))

    def _buckets(self, pos: Positions, prefix: int) -> Tensor:
        rows, columns = (self._bucket(pos.offsets()[..., axis]) + self.max_bucket for axis in (0, 1))
        index = rows * (2 * self.max_bucket + 1) + columns
        last = (2 * self.max_bucket + 1) ** 2
        return F.pad(index, (prefix, 0, prefix, 0), value=last)[:, None]

    def _bucket(self, offset: Tensor) -> Tensor:
        alpha, beta, gamma = (self.ratio * factor for factor in (1, 2, 8))
        size = offset.abs().clamp_min(1e-6)
        far = (alpha + (beta - alpha) * (size / alpha).log() / math.log(gamma / alpha)).round().clamp_max(beta)
        return torch.where(offset.abs() <= alpha, offset.round(), offset.sign() * far).long()
