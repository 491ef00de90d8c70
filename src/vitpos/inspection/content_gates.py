"""Gates and counted positions of CoPE and SaPE2, and the correlation of their bias with the similarity of content.

These encodings compute a gate from 0 to 1 for each query and key; sums of gates over keys take the role of positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.encodings.base import PositionEncoding
from vitpos.encodings.protocols import CountsByContent
from vitpos.errors import InputError
from vitpos.float64 import float64_device, to_float64
from vitpos.inspection._batches import image_batches, image_grid
from vitpos.models.activations import AttentionCall, capture_activations, require_global_attention
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.positions import Positions

EPS = 1e-5  # relative variation in float32 below which values count as constant


@dataclass(frozen=True)
class BiasContentCorrelation:
    """Correlation between the bias that CoPE or SaPE2 adds to the logit of two patches and the patches' similarity.

    It is computed over the pairs of patches of an image, from the bias and the cosine similarity of the two tokens,
    each minus its mean over pairs with equal |Δrow| and |Δcolumn|. mean: (depth, H), mean over images, −1 to 1;
    negative if similar patches get a smaller bias than dissimilar ones at the same offset. std: (depth, H), standard
    deviation over images. Both leave out images in which bias or similarity is constant, and are NaN if no image
    remains. images: number of images, those left out included.
    """

    mean: Tensor
    std: Tensor
    images: int


def bias_content_correlation(
    model: Classifier, data: Dataset, *, limit: int | None = 256, seed: int = 0
) -> BiasContentCorrelation:
    """Returns the correlation of the bias of CoPE or SaPE2 with the similarity of patches, by layer and head.

    It quantifies the case study of SaPE2's Figure 4. For every two different patches of an image it takes the bias
    added to the logit and the cosine similarity of the two tokens that enter the attention. Both are centered on their
    mean over the pairs with the same |Δrow| and |Δcolumn|, so proximity cannot contribute. The correlation is computed
    over all pairs of an image; the result is its mean and standard deviation over the images, each (depth, H). Raises
    if the model uses neither encoding.

    Args:
        limit: number of test images, sampled with ``seed``; None for all.
    """
    vit, encoding = _counting_model(model)
    pairs, groups = _pairs_by_offset(image_grid(vit, data), float64_device(vit.device))
    correlations: list[list[Tensor]] = [[] for _ in range(vit.geometry.depth)]

    def correlate(call: AttentionCall) -> None:
        bias = encoding.bias(*call.queries_and_keys(), call.pos, call.layer)
        content = F.normalize(to_float64(call.x[:, call.num_prefix :]), dim=-1)
        a, b = (to_float64(x).flatten(-2)[..., pairs] for x in (bias, (content @ content.mT)[:, None]))
        correlations[call.layer].append(_partial_correlation(a, b, groups))

    with torch.inference_mode():
        for images in image_batches(vit, data, limit=limit, seed=seed):
            capture_activations(vit, images, on_attention=correlate)
        values = torch.stack([torch.cat(layer) for layer in correlations]).cpu()  # (depth, B, H)
    defined = ~values.isnan()
    mean = values.nanmean(1)
    variance = (values - mean[:, None]).square().nan_to_num(0).sum(1) / (defined.sum(1) - 1).clamp_min(0)
    return BiasContentCorrelation(mean, variance.sqrt(), values.shape[1])


@dataclass(frozen=True)
class GateMaps:
    """Gates and counts of CoPE or SaPE2 from one query to every key of the grid, each (B, H, R, C).

    A gate, 0 to 1, is the weight with which a key is counted. The count of a key, which takes the role of a position,
    is the sum of the gates from that key to the end of its row or column (SaPE2) or of the row-major order (CoPE). NaN
    where a key is not counted, such as keys outside the query's row if SaPE2 counts along rows.
    """

    gates: Tensor
    counts: Tensor


def gates_from_position(
    model: Classifier, images: Tensor, position: tuple[int, int], *, layer: int = -1
) -> list[GateMaps]:
    """Returns the gates and counts (B, H, R, C) of the query at ``position`` (row, column) in one layer.

    CoPE and SaPE2 weight each key by a gate from 0 to 1; counts, the sums of gates, take the role of positions. The
    list has one element per direction of counting: SaPE2 counts along the row and along the column, CoPE along all
    patches in row-major order.

    Args:
        images: (B, channels, height, width), normalized.
        layer: layer index, negative from the end.
    """
    vit, encoding = _counting_model(model)
    grid, depth = vit.positions(images).grid, vit.geometry.depth
    if not (0 <= position[0] < grid[0] and 0 <= position[1] < grid[1] and -depth <= layer < depth):
        raise InputError(
            f"position {position} of layer {layer} is out of range for a grid of {grid[0]}x{grid[1]} "
            f"and {depth} layers; count all from 0"
        )
    query = position[0] * grid[1] + position[1]
    maps: list[GateMaps] = []

    def keep(call: AttentionCall) -> None:
        if call.layer == layer % depth:
            directions = encoding.counts(*call.queries_and_keys(), call.pos, call.layer)
            maps.extend(GateMaps(*(x[:, :, query].unflatten(-1, grid).cpu() for x in both)) for both in directions)

    vit.eval()
    with torch.inference_mode():
        capture_activations(vit, images, on_attention=keep)
    return maps


def counting_part(encoding: PositionEncoding) -> CountsByContent | None:
    """Returns the encoding, in a sum of encodings, whose positions are sums of gates (CoPE, SaPE2); None if absent."""
    return next((part for part in encoding.parts if isinstance(part, CountsByContent)), None)


def _counting_model(model: Classifier) -> tuple[PatchClassifier, CountsByContent]:
    vit = require_global_attention(model, "an inspection of gates")
    encoding = counting_part(vit.encoding)
    if encoding is None:
        raise InputError("an inspection of gates needs an encoding that counts by content; use one with sape2 or cope")
    return vit, encoding


def _pairs_by_offset(grid: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the flat indices (P,) of all P pairs of different patches in an (N, N) matrix, and their groups (P,).

    Pairs with the same |Δrow| and |Δcolumn| have the same group number.
    """
    offsets = Positions.from_grid(grid, device=device).offsets()[0].abs().long().flatten(0, 1)  # (N·N, 2)
    pairs = offsets.any(1).nonzero()[:, 0]
    return pairs, (offsets[:, 0] * grid[1] + offsets[:, 1])[pairs]


def _partial_correlation(a: Tensor, b: Tensor, groups: Tensor) -> Tensor:
    """Returns the correlation (…) over P pairs of a and b (…, P) after subtracting the mean of each group from both.

    ``groups`` (P,) are group numbers. NaN where a or b varies only by rounding.
    """
    x, y = _center_groups(a, groups), _center_groups(b, groups)
    constant = (x.norm(dim=-1) <= EPS * a.norm(dim=-1)) | (y.norm(dim=-1) <= EPS * b.norm(dim=-1))
    correlation = (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(-1)
    return correlation.masked_fill(constant, torch.nan)


def _center_groups(values: Tensor, groups: Tensor) -> Tensor:
    """Returns ``values`` (…, P) minus the mean of their group; ``groups`` (P,) are group numbers."""
    sizes = groups.bincount().clamp_min(1)
    sums = values.new_zeros(*values.shape[:-1], len(sizes)).index_add_(-1, groups, values)
    return values - (sums / sizes)[..., groups]
