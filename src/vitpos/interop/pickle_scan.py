"""Reads the opcodes of a pickle without running them, and refuses those whose objects would take far more than its bytes.

``torch.load(weights_only=True)`` runs no code of a file, but builds what the file describes. A tuple that contains a tuple
twice, which contains a third twice and so on, has 2³⁰ parts after 30 short lines; ``bytearray(10**12)`` is one line.
"""

from __future__ import annotations

import pickletools
from contextlib import suppress
from typing import IO, Any

from vitpos.errors import InputError

MAX_OPCODES = 5_000_000  # about 50 per tensor in checkpoints of torch
MAX_PARTS = 1_000_000  # of a tuple and everything in it, each occurrence counted
ALLOCATING = ("builtins bytearray", "__builtin__ bytearray", "bytearray")
TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
PUTS, GETS = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")


def scan_pickle(stream: IO[bytes], size: int, name: str) -> int:
    """Returns the largest integer in one pickle; raises an InputError if its objects would be far larger than the file.

    The scan ends at the end of the pickle, or where it is damaged: torch reports that.

    Args:
        stream: the file, at the start of the pickle.
        size: bytes of the whole file.
        name: the file, for messages.
    """
    largest, allocates = 0, False
    stack: list[int | None] = []
    memo: dict[Any, int] = {}
    problem = ""
    with suppress(ValueError, IndexError):
        for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            largest = max(largest, argument) if isinstance(argument, int) else largest
            allocates |= argument in ALLOCATING
            _apply(opcode, argument, stack, memo)
            if number > MAX_OPCODES:
                problem = f"has more than {MAX_OPCODES:,} pickle instructions"
            elif allocates and largest > max(size, 1 << 20):
                problem = f"would allocate {largest:,} bytes"
            elif stack and (stack[-1] or 0) > MAX_PARTS:
                problem = f"has a tuple of more than {MAX_PARTS:,} parts"
            if problem:
                break
    if problem:
        raise InputError(f"{name} {problem}, unlike any checkpoint; save its state_dict() as .safetensors")
    return largest


def _apply(opcode: Any, argument: Any, stack: list[int | None], memo: dict[Any, int]) -> None:
    """Updates a stack of sizes by one opcode: the number of parts of a tuple, 1 for anything else, None for a mark."""
    name = opcode.name
    if name in PUTS or name == "MEMOIZE":
        memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1] or 1
        return
    if name in GETS:
        stack.append(memo.get(argument, 1))
        return
    before, popped = [one.name for one in opcode.stack_before], 0
    if "mark" in before:  # everything above the last mark, and what is expected below it
        while (top := stack.pop()) is not None:
            popped += top
        before = before[: before.index("mark")]
    for _ in before:
        popped += stack.pop() or 1
    for pushed in opcode.stack_after:
        stack.append(None if pushed.name == "mark" else 1 + popped if name in TUPLES else 1)
