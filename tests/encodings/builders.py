"""Small encodings with large random weights on a grid that is not square, and the tensors they act on."""

from collections.abc import Callable

import torch

from vitpos.encodings import ENCODINGS
from vitpos.encodings.base import Geometry, PositionEncoding
from vitpos.models.activations import AttentionCall
from vitpos.models.attention import SelfAttention
from vitpos.positions import Positions

GRID, N, DIM, HEADS, WIDTH, PREFIX = (3, 5), 15, 32, 2, 16, 1
CELLS = [(row, column) for row in range(GRID[0]) for column in range(GRID[1])]
GEOMETRY = Geometry(dim=DIM, heads=HEADS, depth=2, grid=GRID, num_prefix=PREFIX)
HIDDEN = torch.arange(N)[None] % 4 == 1


def build(spec: str, geometry: Geometry = GEOMETRY, dtype: torch.dtype = torch.float64) -> PositionEncoding:
    """Returns an encoding whose parameters have a standard deviation of 0.5."""
    torch.manual_seed(0)
    encoding = ENCODINGS.build(spec, geometry).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return encoding


def random(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def attention_error(encoding: PositionEncoding, pos: Positions, by_loops: Callable[..., torch.Tensor]) -> float:
    """Returns the largest difference of the attention in layer 1 from ``by_loops(attention, encoding, image, pos)``."""
    torch.manual_seed(2)
    attention = SelfAttention(DIM, HEADS).double()
    x = random(2, PREFIX + pos.index.shape[1], DIM)
    expected = torch.stack([by_loops(attention, encoding, image, pos) for image in x])
    return (attention(x, encoding, pos, 1) - expected).abs().max().item()


def positions(kind: str) -> Positions:
    """Returns all cells; with some hidden; or the cells of a coarser grid of other sides over the same area."""
    if kind == "finer":
        return Positions.from_grid((4, 3), train_grid=GRID)
    return Positions.from_grid(GRID).hide(HIDDEN) if kind == "hidden" else Positions.from_grid(GRID)


def attention_call(attention, x, encoding, pos, layer):
    """The call of an attention module with tokens x (B, T, D), whose logits and weights can be read."""
    return AttentionCall(layer, x, encoding, pos, lambda: attention.qkv_heads(x)[:2])
