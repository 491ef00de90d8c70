"""Operators that ONNX does not have, written with operators that it has: the matrix exponential and linear systems."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TERMS = 12  # of the Taylor series: for a norm of at most 1/2 the rest is below 1e-13
SQUARINGS = 20  # enough for a norm of 2^19
ITERATIONS = 40  # enough for a condition number of 1e5


def matrix_exp(matrix: Tensor) -> Tensor:
    """Returns the exponentials of matrices (…, n, n) by scaling and squaring: exp(A) = exp(A/2^s)^(2^s).

    s is the number of halvings after which the norm of A is at most 1/2; the Taylor series then converges quickly. A
    graph cannot repeat an operation s times, so that all squarings are computed and those above s are discarded.
    """
    norm = matrix.abs().sum(-1).amax(-1)[..., None, None]  # (…, 1, 1)
    halvings = (norm * 2).clamp_min(1).log2().ceil()
    scaled = matrix * torch.exp2(-halvings)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    result = identity + scaled / TERMS
    for term in range(TERMS - 1, 0, -1):  # Horner's scheme
        result = identity + scaled @ result / term
    for done in range(SQUARINGS):
        result = torch.where(halvings > done, result @ result, result)
    return result


def inverse(matrix: Tensor) -> Tensor:
    """Returns the inverses of matrices (…, n, n): the limit of X → X(2I − AX), the iteration of Newton and Schulz.

    From X = Aᵀ/(‖A‖₁·‖A‖_∞) it converges for every invertible A; once it is close, each step doubles the number of
    correct digits.
    """
    row, column = (matrix.abs().sum(axis).amax(-1)[..., None, None] for axis in (-1, -2))
    result = matrix.mT / (row * column)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(ITERATIONS):
        result = result @ (2 * identity - matrix @ result)
    return result


def solve(matrix: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    """Returns A⁻¹B for A (…, n, n) and B (…, n, k) or (…, n); BA⁻¹ if ``left`` is False."""
    if right.ndim < matrix.ndim:
        return (inverse(matrix) @ right[..., None])[..., 0]
    return inverse(matrix) @ right if left else right @ inverse(matrix)


OPERATORS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.linalg_matrix_exp.default: matrix_exp,
    torch.ops.aten.matrix_exp.default: matrix_exp,
    torch.ops.aten.linalg_inv.default: inverse,
    torch.ops.aten.linalg_solve.default: solve,
}


def with_onnx_operators(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns a program of ``torch.export`` in which operators that ONNX does not have are replaced by these functions."""
    graphs = [one.graph for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    used = {node.target for graph in graphs for node in graph.nodes}
    if used.isdisjoint(OPERATORS):
        return program
    with warnings.catch_warnings(action="ignore"):  # of PyTorch's own code
        return program.run_decompositions(OPERATORS)
