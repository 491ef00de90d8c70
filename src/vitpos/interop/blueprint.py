"""`Blueprint`: how to build a vitpos model that computes the outputs of a model of another library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from vitpos.errors import InputError
from vitpos.interop.find_adapter import has_adapter
from vitpos.interop.names import Names, Slot, load_state
from vitpos.models.base import Classifier, EncodingLike, Shape, build_encoding, spec_of
from vitpos.models.vit import ViT


@dataclass(frozen=True)
class Blueprint:
    """How to build a vitpos model that computes the outputs of another library's model.

    Args:
        library: name of the library.
        model: class of the vitpos model.
        image_shape: channels, height and width of the images.
        num_classes: number of logits; 0 for features.
        encoding: spec of the position encoding.
        options: other options of the vitpos model.
        names: returns the table of names for the built model, or None if the library's default table fits.
        slots: returns the dictionary of the library's tensor names to `Slot`s, for the built model.
        state: weights of the library's model that are to be loaded.
        unused: names of weights that do not affect the output.
    """

    library: str
    model: Callable[..., Classifier]
    image_shape: Shape
    num_classes: int
    encoding: str
    options: Mapping[str, Any]
    names: Callable[[Any], Names | None]
    slots: Callable[[Any], dict[str, Slot]]
    state: Mapping[str, Tensor]
    unused: tuple[str, ...] = field(default=())

    def build(self, encoding: EncodingLike | None = None, *, spec: str | None = None) -> Classifier:
        """Returns the vitpos model with the weights of the library's model, in evaluation mode.

        With another ``encoding``, the positions of the library's model are left out. ``spec`` is that of an
        encoding that is given as an object.
        """
        with torch.random.fork_rng(devices=[]):
            model = self.model(self.image_shape, self.num_classes, self.encoding, **self.options)
        model = model.to(dtype=next(iter(self.state.values())).dtype).eval()
        model._weight_names = self.names(model)
        load_state(self.slots(model), self.library, self.state, unused=self.unused)
        if encoding is not None:
            if not isinstance(model, ViT):
                raise InputError(f"the encoding of a {type(model).__name__} cannot be replaced; leave encoding out")
            model.encoding = build_encoding(encoding, model.geometry).to(dtype=model.project.weight.dtype).eval()
            model._weight_names = self.names(model)
            model._built_with = {**(model._built_with or {}), "encoding": spec or spec_of(encoding)}
        return model


class NotRebuilt(InputError):
    """Raised for a model of another library that has no equal model of vitpos; ``reason`` says why, without a remedy."""

    def __init__(self, message: str, reason: str):
        super().__init__(message)
        self.reason = reason


def refuse(module: nn.Module, reason: str) -> NoReturn:
    """Raises an InputError: models of vitpos have no such part."""
    known = "vitpos.attach may support it; see vitpos.Adapter"
    remedy = known if has_adapter(module) else "for vitpos.attach it needs an adapter, see vitpos.Adapter"
    cause = f"this {type(module).__name__} has {reason}"
    raise NotRebuilt(f"{cause}, which vitpos.load does not rebuild; {remedy}", cause)


def norm_eps(module: nn.Module, *norms: nn.Module) -> float:
    """Returns the eps that LayerNorms share; raises if they are of another class or have different ones.

    ``module`` is the model, for the message.
    """
    for norm in norms:
        if not isinstance(norm, nn.LayerNorm) or norm.weight is None or norm.bias is None:
            refuse(module, f"a norm of class {type(norm).__name__}")
    eps = {norm.eps for norm in norms if isinstance(norm, nn.LayerNorm)}
    if len(eps) > 1:
        refuse(module, f"norms with different eps {sorted(eps)}")
    return eps.pop()


def spec(name: str, **options: Any) -> str:
    """Returns a spec such as ``rope(base=100.0)``; options that are None are left out."""
    text = ", ".join(f"{key}={value!r}" for key, value in options.items() if value is not None)
    return f"{name}({text})" if text else name


def mlp_ratio(hidden: int, dim: int) -> float:
    """Returns the smallest float r with int(dim · r) = ``hidden``, near hidden / dim."""
    ratio = hidden / dim
    while int(dim * ratio) < hidden:
        ratio = torch.nextafter(torch.tensor(ratio, dtype=torch.float64), torch.tensor(torch.inf).double()).item()
    return ratio


def learned_spec(rows: int, num_prefix: int) -> str:
    """Returns the spec of a position table with ``rows`` rows for the ``num_prefix`` prefix tokens."""
    return spec("learned", prefix_embed=(True if rows == num_prefix else rows) if rows else None)
