"""Calls the hooks of a position encoding, or of each encoding of a sum, and checks the shape and dtype of what they return.

Hooks are the methods through which an encoding acts on a model, such as ``vectors``, ``bias`` and ``rotate``. A wrong
shape would often broadcast to a wrong result, and fused attention misreads a bias of another dtype. Both are refused
here, in one line that names the encoding, the hook and its file. Only shapes and dtypes are compared, which costs no
time and works in ``torch.export`` and ``torch.compile``. Autocast converts dtypes, so that any is allowed there.
"""

from __future__ import annotations

import inspect
from typing import Any, cast

import torch
from torch import Tensor

from vitpos.encodings.base import ATTENTION_HOOKS, PositionEncoding, pad_prefix, total
from vitpos.encodings.protocols import ActsOnValues, FusedLogits, MixesWeights, RotatesPrefix, TokenBias
from vitpos.errors import InputError
from vitpos.positions import Positions

Sizes = tuple[int | None, ...]  # the shape that a hook must return; None where any size is allowed


_PROTOCOLS = (FusedLogits, RotatesPrefix, TokenBias, MixesWeights, ActsOnValues)


def check_encoding_class(encoding: PositionEncoding) -> None:
    """Raises InputError for mistakes in the class of an encoding, or of one in a sum, that would fail later or be ignored.

    These are a missing ``super().__init__()``, a hook with other arguments than the model passes, and a hook that is
    never called without another one. Models call this once, when they are built.
    """
    for part in encoding.parts:
        name = f"encoding {type(part).__name__!r}"
        if "_modules" not in vars(part):
            remedy = f"call super().__init__() first in its __init__{_where(part, '__init__')}"
            raise InputError(f"{name} is not initialized as a torch module; {remedy}")
        for hook in sorted(part.hooks):
            owner = next(one for one in (PositionEncoding, *_PROTOCOLS) if hasattr(one, hook))
            expected = [*inspect.signature(getattr(owner, hook)).parameters][1:]
            try:
                inspect.signature(getattr(part, hook)).bind(*expected)
            except TypeError as error:
                wanted = f"define {hook}(self, {', '.join(expected)})".replace("(self, )", "(self)")
                raise InputError(f"{name}: {hook} does not fit ({error}); {wanted}{_where(part, hook)}") from None
        for hook, needed in (("fused_logits", ATTENTION_HOOKS), ("rotate_prefix", ("rotate",))):
            if hook in part.hooks and part.hooks.isdisjoint(needed):
                missing = "bias or rotate" if hook == "fused_logits" else "rotate"
                raise InputError(f"{name}: {hook} has no effect without {missing}; define it too{_where(part, hook)}")


def augment(encoding: PositionEncoding, x: Tensor, pos: Positions) -> tuple[Tensor, Positions]:
    """Returns tokens x (B, N, D) and positions after the encoding's ``augment``, in which `mjp` shuffles tokens."""
    for part in encoding.parts:
        if "augment" in part.hooks:
            tokens, pos = _two(part, "augment", part.augment(x, pos))
            if not isinstance(pos, Positions):
                raise _wrong(part, "augment", f"tokens and {_shown(pos)}", "tokens and Positions")
            x = require_tensor(part, "augment", tokens, x.dtype, (len(x), pos.index.shape[1], x.shape[2]))
    return x, pos


def prefix_vectors(encoding: PositionEncoding, tokens: Tensor) -> Tensor | None:
    """Returns the vectors (P, D) that an encoding adds to the prefix ``tokens`` (P, D), CLS and registers, or None."""
    returned = [(part, part.prefix_vectors()) for part in encoding.parts]
    return total(
        None if one is None else require_tensor(part, "prefix_vectors", one, tokens.dtype, tuple(tokens.shape))
        for part, one in returned
    )


def unknown_vector(encoding: PositionEncoding, x: Tensor) -> Tensor | None:
    """Returns the vector (D,), or None, that an encoding adds to the tokens of x (B, N, D) whose position is hidden."""
    returned = [(part, part.unknown_vector()) for part in encoding.parts]
    return total(
        None if one is None else require_tensor(part, "unknown_vector", one, x.dtype, (x.shape[2],))
        for part, one in returned
    )


def vectors(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int) -> Tensor | None:
    """Returns vectors (B|1, N, D), or None, that an encoding adds to patch tokens x (B, N, D) before block ``layer``."""
    returned = [(part, part.vectors(pos, layer, x.dtype)) for part in encoding.parts]
    return total(
        None if one is None else require_tensor(part, "vectors", one, x.dtype, tuple(x.shape), broadcast=1)
        for part, one in returned
    )


def update(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int) -> Tensor:
    """Returns patch tokens x (B, N, D) after the encoding's ``update``, such as a convolution; ``x`` if it has none."""
    for part in encoding.parts:
        if "update" in part.hooks:
            x = require_tensor(part, "update", part.update(x, pos, layer), x.dtype, tuple(x.shape))
    return x


def bias(
    encoding: PositionEncoding, q: Tensor, k: Tensor, pos: Positions, layer: int, x: Tensor | None
) -> Tensor | None:
    """Returns the bias for the attention logits of all tokens (B|1, H|1, T, T), or None; q and k are (B, H, T, d).

    ``x`` (B, T, D) are the tokens that enter attention, for encodings that define ``token_bias``.
    """
    batch, heads, tokens, _ = q.shape
    count = pos.index.shape[1]
    patches, every = (batch, heads, count, count), (batch, heads, tokens, tokens)
    shapes = (patches, every) if tokens > count else (patches,)
    returned = [(part, "bias", shapes, part.bias(q, k, pos, layer)) for part in encoding.parts if "bias" in part.hooks]
    for part in encoding.parts:
        if "token_bias" in part.hooks:
            assert x is not None, "this encoding needs the tokens that enter attention"
            one = cast(TokenBias, part).token_bias(x[:, -count:], pos, layer)
            returned.append((part, "token_bias", (patches,), one))
    return total(
        None if one is None else pad_prefix(require_tensor(part, hook, one, q.dtype, *allowed, broadcast=2), tokens)
        for part, hook, allowed, one in returned
    )


def rotate(encoding: PositionEncoding, q: Tensor, k: Tensor, pos: Positions, layer: int) -> tuple[Tensor, Tensor]:
    """Returns q and k (B, H, N, e) of the patch tokens after the encoding's ``rotate``; unchanged if it has none.

    The width e may differ from that of the given q and k (B, H, N, d).
    """
    for part in encoding.parts:
        if "rotate" in part.hooks:
            q, k = _checked_pair(part, "rotate", part.rotate(q, k, pos, layer), q)
    return q, k


def rotate_prefix(encoding: PositionEncoding, q: Tensor, k: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Returns q and k (B, H, P, d) of the P prefix tokens after ``rotate_prefix``; the given q and k if there is none."""
    for part in encoding.parts:
        if "rotate_prefix" in part.hooks:
            q, k = _checked_pair(part, "rotate_prefix", cast(RotatesPrefix, part).rotate_prefix(q, k, layer), q)
    return q, k


def require_tensor(
    part: PositionEncoding, hook: str, returned: Any, dtype: torch.dtype, *shapes: Sizes, broadcast: int = 0
) -> Tensor:
    """Returns the tensor that a hook returned; raises InputError unless it has the dtype and one of the ``shapes``.

    The message contains the class of the encoding ``part`` and the name ``hook`` of its method. None in a shape allows
    any size. The first ``broadcast`` axes may also have size 1.
    """
    for shape in shapes:
        if _fits(returned, shape, broadcast):
            if returned.dtype != dtype and not _autocasts(returned.device.type):
                raise _wrong(part, hook, str(returned.dtype), f"{dtype}, the dtype of its inputs")
            return cast(Tensor, returned)
    first = [_allowed(size, axis < broadcast) for axis, size in enumerate(shapes[0])]
    others = [f"(…, {', '.join(map(str, shape[broadcast:]))})" for shape in shapes[1:]]
    expected = " or ".join([f"({', '.join(first)}{',' * (len(first) == 1)})", *others])
    raise _wrong(part, hook, _shown(returned), expected)


def _allowed(size: int | None, or_one: bool) -> str:
    return "any" if size is None else f"{size} or 1" if or_one and size != 1 else str(size)


def _fits(returned: Any, shape: Sizes, broadcast: int) -> bool:
    if not isinstance(returned, Tensor) or returned.ndim != len(shape):
        return False
    for axis, (found, size) in enumerate(zip(returned.shape, shape, strict=True)):
        if size is not None and found != size and (axis >= broadcast or found != 1):
            return False
    return True


def _autocasts(device: str) -> bool:
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _checked_pair(part: PositionEncoding, hook: str, returned: Any, q: Tensor) -> tuple[Tensor, Tensor]:
    new_q, new_k = _two(part, hook, returned)
    new_q = require_tensor(part, hook, new_q, q.dtype, (*q.shape[:3], None))
    return new_q, require_tensor(part, hook, new_k, q.dtype, tuple(new_q.shape))


def _two(part: PositionEncoding, hook: str, returned: Any) -> tuple[Any, Any]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise _wrong(part, hook, _shown(returned), "two values")
    return returned[0], returned[1]


def _shown(returned: Any) -> str:
    if isinstance(returned, Tensor):
        return str(tuple(returned.shape))
    return "None" if returned is None else f"a {type(returned).__name__}"


def _wrong(part: PositionEncoding, hook: str, got: str, expected: str) -> InputError:
    where = _where(part, hook)
    return InputError(f"encoding {type(part).__name__!r}: {hook} returned {got}, expected {expected}{where}")


def _where(part: PositionEncoding, method: str) -> str:
    code = getattr(inspect.unwrap(getattr(type(part), method)), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
