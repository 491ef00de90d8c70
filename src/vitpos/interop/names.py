"""Names of tensors in other libraries: which tensor of a library is which part of a vitpos model, in both directions.

A family of models is one table `Names`. `tensor_slots` applies it to a vitpos model; each `Slot` is a view into the
tensors of that model, so that the same table reads and writes weights.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitpos.encodings.learned import Learned
from vitpos.encodings.rope_mixed import RoPEMixed
from vitpos.errors import InputError
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.models.vit import ViT

Split = tuple[tuple[str, int], ...]  # part of the library's name, and its number of rows relative to the others

SEPARATE_QKV: dict[str, Split] = {  # of libraries that project q, k and v by three layers
    r"\.qkv\.": ((".q_proj.", 1), (".k_proj.", 1), (".v_proj.", 1)),
    r"\.qv_bias$": ((".q_proj.bias", 1), (".v_proj.bias", 1)),
}


@dataclass(frozen=True)
class Names:
    """How a library names the tensors of a family of models.

    Args:
        library: name of the library, for messages.
        rename: regular expression for the name in vitpos → replacement, applied in order.
        split: regular expression for a name, after ``rename`` → replacements, with the relative number of rows of each:
            what vitpos stores as one tensor is several in the library, such as the projections of q, k and v.
        axes: regular expression for the library's name → number of axes of its tensor, where leading axes of size 1 differ.
        unused: tensors of the library's model that do not affect its output, such as the token of masked patches; they
            are kept to be exported again.
    """

    library: str
    rename: Mapping[str, str]
    split: Mapping[str, Split] = field(default_factory=dict)
    axes: Mapping[str, int] = field(default_factory=dict)
    unused: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Slot:
    """One tensor of the library: the concatenation of views into tensors of a vitpos model along their first axis.

    Args:
        parts: the views, which have the same shape except for the first axis.
        axes: number of axes of the library's tensor, if it has other leading axes of size 1; 0 if it has not.
    """

    parts: tuple[Tensor, ...]
    axes: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape of the library's tensor."""
        shape = tuple(self.parts[0].shape)
        if len(self.parts) > 1:
            shape = (sum(map(len, self.parts)), *shape[1:])
        return ((1,) * self.axes + shape)[-self.axes :] if self.axes else shape

    def read(self) -> Tensor:
        """Returns a copy in the shape of the library's tensor."""
        return (torch.cat(self.parts) if len(self.parts) > 1 else self.parts[0].clone()).reshape(self.shape)

    def write(self, tensor: Tensor) -> None:
        """Copies a tensor of the library into the vitpos model."""
        if len(self.parts) == 1:
            self.parts[0].copy_(tensor.reshape(self.parts[0].shape))
            return
        rows = tensor.reshape(-1, *self.parts[0].shape[1:]).split([len(part) for part in self.parts])
        for part, values in zip(self.parts, rows, strict=True):
            part.copy_(values)


def tensor_slots(model: Classifier, names: Names) -> dict[str, Slot]:
    """Returns a dictionary from the library's tensor names to `Slot`s, views into the tensors of ``model``."""
    slots: dict[str, Slot] = {}
    for name, parts in _named_parts(model).items():
        for pattern, replacement in names.rename.items():
            name = re.sub(pattern, replacement, name)
        split = next(((pattern, split) for pattern, split in names.split.items() if re.search(pattern, name)), None)
        if split is None or len(parts) > 1:
            slots[name] = Slot(parts, _axes(name, names))
            continue
        unit, first = len(parts[0]) // sum(rows for _, rows in split[1]), 0
        for replacement, rows in split[1]:
            library_name = re.sub(split[0], replacement, name)
            slots[library_name] = Slot((parts[0][first * unit : (first + rows) * unit],), _axes(library_name, names))
            first += rows
    return slots


def _axes(name: str, names: Names) -> int:
    return next((axes for pattern, axes in names.axes.items() if re.search(pattern, name)), 0)


def _named_parts(model: Classifier) -> dict[str, tuple[Tensor, ...]]:
    """Returns name in vitpos → tensors, with patch projections in the shape of convolutions and tables of positions joined.

    The table of a ViT is named ``table``, with rows for prefix tokens first; learned rotary frequencies ``frequencies``.
    """
    found: dict[str, tuple[Tensor, ...]] = {name: (tensor,) for name, tensor in model.state_dict().items()}
    if isinstance(model, PatchClassifier):
        found["project.weight"] = (found["project.weight"][0].unflatten(1, (model.channels, *model.patch)),)
    if isinstance(model, ViT):
        parts = model.encoding.parts
        for index, part in enumerate(parts):
            root = "encoding." if len(parts) == 1 else f"encoding.encodings.{index}."
            # The classes decide: other libraries have counterparts of these two only.
            if isinstance(part, Learned) and not part.per_layer:
                rows, table = found.pop(f"{root}prefix_table", ()), found.pop(f"{root}table")[0]
                found["table"] = (*rows, table.flatten(0, 2))
            elif isinstance(part, RoPEMixed):
                row, column = found.pop(f"{root}mixed_frequencies")[0].unbind(2)  # (depth, H, d/2) each
                found["frequencies"] = (column[None], row[None])
    return found


def require_counterparts(model: ViT, library: str) -> None:
    """Raises an InputError if the encoding of a ViT has parts that add nothing to a state dict and would be lost in it.

    Args:
        library: Name of the library whose names the state dict gets, for the message.
    """
    for part in model.encoding.parts:
        known = isinstance(part, Learned) or "rotate" in part.hooks
        if not known and part.hooks and not part.state_dict():
            raise InputError(
                f"weights with names of {library} do not contain the encoding {type(part).__name__}, which has no "
                "weights; choose an encoding that the library has, or save the model with save_pretrained"
            )


def load_state(
    slots: Mapping[str, Slot],
    library: str,
    state: Mapping[str, Tensor],
    *,
    unused: Collection[str] = (),
) -> None:
    """Copies a state dict of the library into a vitpos model, in place.

    Raises, and copies nothing, if a tensor is missing, unexpected or of another shape.

    Args:
        slots: what `tensor_slots` returned for that model.
        library: name of the library, for messages.
        unused: names in ``state`` that have no slot.
    """
    for name in [*slots, *state]:
        if name not in state:
            raise InputError(
                f"{library}'s weights have no {name!r}, which the model needs; build "
                "the same architecture (a ViT with the encoding 'learned(prefix_embed=True)'), or use vitpos.load"
            )
        if name not in slots and name not in unused:
            raise InputError(f"{library}'s weights have {name!r}, which the model does not have; use vitpos.load")
    for name, slot in slots.items():
        if tuple(state[name].shape) != slot.shape:
            raise InputError(
                f"{library}'s {name!r} is {tuple(state[name].shape)} and the model's {slot.shape}; "
                "build both with the same sizes"
            )
    with torch.no_grad():
        for name, slot in slots.items():
            slot.write(state[name])
