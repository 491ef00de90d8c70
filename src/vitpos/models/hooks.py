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

    These are a missing ``super().__init__()``, and hooks (methods that the model calls, such as ``bias`` and
    ``rotate``) that take other arguments than the model passes, or that have no effect because another hook is missing.
    Models call this once, when they are built.
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
    """Returns the patch tokens x (B, N, D) and their positions after the method ``augment`` of each encoding in a sum.

    For example, `mjp` shuffles some tokens in training and hides their positions. Most encodings change nothing.
    """
    for part in encoding.parts:
        if "augment" in part.hooks:
            tokens, pos = _two(part, "augment", part.augment(x, pos))
            if not isinstance(pos, Positions):
                raise _wrong(part, "augment", f"tokens and {_shown(pos)}", "tokens and Positions")
            x = require_tensor(part, "augment", tokens, x.dtype, (x.shape[0], pos.index.shape[1], x.shape[2]))
    return x, pos


def prefix_vectors(encoding: PositionEncoding, tokens: Tensor) -> Tensor | None:
    """Returns the vectors (P, D) that an encoding adds to the P prefix tokens (CLS and registers); None if it adds none.

    ``tokens`` (P, D) are these tokens; they only give the expected shape and dtype.
    """
    returned = [(part, part.prefix_vectors()) for part in encoding.parts]
    return total(
        None if one is None else require_tensor(part, "prefix_vectors", one, tokens.dtype, tuple(tokens.shape))
        for part, one in returned
    )


def unknown_vector(encoding: PositionEncoding, x: Tensor) -> Tensor | None:
    """Returns the vector (D,) that an encoding adds to tokens whose position is hidden (masked); None if it adds none.

    ``x`` (B, N, D) are the patch tokens; they only give the expected width and dtype.
    """
    returned = [(part, part.unknown_vector()) for part in encoding.parts]
    return total(
        None if one is None else require_tensor(part, "unknown_vector", one, x.dtype, (x.shape[2],))
        for part, one in returned
    )


def vectors(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int) -> Tensor | None:
    """Returns vectors (B|1, N, D) that an encoding adds to the patch tokens before block ``layer``; None if it adds none.

    ``x`` (B, N, D) are the patch tokens, ``pos`` their positions; blocks are numbered from 0.
    """
    returned = [(part, part.vectors(pos, layer, x.dtype)) for part in encoding.parts]
    return total(
        None if one is None else require_tensor(part, "vectors", one, x.dtype, tuple(x.shape), broadcast=1)
        for part, one in returned
    )


def update(encoding: PositionEncoding, x: Tensor, pos: Positions, layer: int) -> Tensor:
    """Returns the patch tokens x (B, N, D) after the encoding's method ``update``, called before block ``layer`` (from 0).

    It changes tokens depending on their content, such as by a convolution (`cpe`). Returns ``x`` if the encoding has no
    such method. ``pos`` are the positions of the tokens.
    """
    for part in encoding.parts:
        if "update" in part.hooks:
            x = require_tensor(part, "update", part.update(x, pos, layer), x.dtype, tuple(x.shape))
    return x


def bias(
    encoding: PositionEncoding, q: Tensor, k: Tensor, pos: Positions, layer: int, x: Tensor | None
) -> Tensor | None:
    """Returns the bias (B|1, H|1, T, T) that an encoding adds to the logits of all tokens; None if it adds none.

    Args:
        q, k: (B, H, T, d), queries and keys before rotation.
        pos: positions of the N patch tokens, the last of the T tokens.
        layer: number of the block, from 0.
        x: (B, T, D), the tokens that enter attention; only encodings that define ``token_bias`` need them.
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
    """Returns q and k (B, H, P, d) of the P prefix tokens (CLS and registers), rotated by the encoding in block ``layer``.

    They are unchanged if the encoding defines no method ``rotate_prefix``.
    """
    for part in encoding.parts:
        if "rotate_prefix" in part.hooks:
            q, k = _checked_pair(part, "rotate_prefix", cast(RotatesPrefix, part).rotate_prefix(q, k, layer), q)
    return q, k


def require_tensor(
    part: PositionEncoding, hook: str, returned: Any, dtype: torch.dtype, *shapes: Sizes, broadcast: int = 0
) -> Tensor:
    """Returns ``returned``, the result of an encoding's method, if it is a tensor of this dtype and one of the ``shapes``.

    Otherwise raises InputError with the class of the encoding ``part`` and the name ``hook`` of the method. None in a
    shape allows any size. The first ``broadcast`` axes may also have size 1.
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
