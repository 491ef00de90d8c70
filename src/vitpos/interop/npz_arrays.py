"""Reads one array of an npz file, whose header is checked before anything is allocated."""

from __future__ import annotations

import math
from typing import IO

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from vitpos.errors import InputError


def read_array(stream: IO[bytes], size: int, name: str) -> Tensor | None:
    """Reads one numeric array of an npz as a tensor; returns None for text.

    Raises if the size in the array's header differs from the number of bytes that are present.

    Args:
        stream: the opened ``.npy`` member of the npz.
        size: number of bytes of the member, with its header.
        name: name of the array in error messages.
    """
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise InputError(f"{name} contains Python objects, which are not loaded; save plain arrays with numpy.savez")
    claimed, available = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if claimed != available:
        raise InputError(f"{name} claims {claimed:,} bytes and has {available:,}; download it again")
    if dtype == np.dtype("V2"):  # numpy's form of bfloat16
        bits = np.frombuffer(bytearray(stream.read(claimed)), np.int16)
        return torch.from_numpy(bits.reshape(shape, order="F" if fortran else "C")).view(torch.bfloat16)
    if dtype.kind not in "fiubc":
        return None
    array = np.frombuffer(bytearray(stream.read(claimed)), dtype).astype(dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(array.reshape(shape, order="F" if fortran else "C"))
