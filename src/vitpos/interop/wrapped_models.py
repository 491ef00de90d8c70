"""Wraps any classifier, such as a model of timm or Hugging Face, as a vitpos `Classifier`, so that it can be evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitpos.data.dataset import Dataset
from vitpos.encodings.base import PositionEncoding
from vitpos.errors import InputError
from vitpos.interop.attach import at_positions, attach, detach, find_attachment, is_attached
from vitpos.interop.attachment import Attachment
from vitpos.models.activations import OnAttention, OnTokens
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.positions import Positions
from vitpos.printable import sanitize

NEEDS_BLOCKS = (
    "this evaluation needs the blocks of vitpos' own models, which a {} does not have; use vitpos.load(model)"
)


@contextmanager
def as_classifier(model: nn.Module, data: Dataset) -> Iterator[Classifier]:
    """A context with a model as a vitpos `Classifier`; afterwards the model is as it was before.

    A Vision Transformer that `vitpos.attach` knows becomes a `PatchClassifier`, whose positions can be permuted and
    hidden; any other model becomes a `Classifier` without patches. If ``model.pretrained_cfg`` has mean and std, as in
    timm, images are normalized with these, not with those of ``data``; set ``model.pretrained_cfg = {}`` to use those of
    the data.

    Args:
        model: Any module that maps images (B, C, height, width) to logits, as a tensor or as ``output.logits``.
        data: The data set on which it is evaluated.
    """
    if isinstance(model, Classifier):
        yield model
        return
    attached, training = is_attached(model), model.training
    try:
        yield wrap(model, data)
    finally:
        model.train(training)
        if not attached and is_attached(model):
            detach(model)


def wrap(model: nn.Module, data: Dataset, *, has_classes: bool = True) -> Classifier:
    """Returns any other model as a vitpos `Classifier`; a Vision Transformer of a known kind gets an attachment.

    It then has patches, unless its adapter does not know their size.

    Args:
        model: Any module that maps images (B, C, height, width) to logits, as a tensor or as ``output.logits``.
        data: The data set on which it is run.
        has_classes: Whether its outputs must be the classes of the data; an InputError if they are not.
    """
    known = is_attached(model)
    if not known:
        try:
            attach(model, "none")
            known = True
        except InputError:  # no Vision Transformer of a known kind: a model without patches
            pass
    return (
        WrappedViT(model, data, has_classes)
        if known and _has_patch_size(model)
        else WrappedClassifier(model, data, has_classes)
    )


def _has_patch_size(model: nn.Module) -> bool:
    """Returns whether the adapter of an attached model knows the size of its patches; it does not for token models."""
    attachment = find_attachment(model)
    try:
        return bool(attachment.adapter.patch_size(attachment.model))
    except InputError:
        return False


class _Wrapped(Classifier):
    """Runs a foreign model: normalizes images as it expects, and finds the inputs of its last linear layer.

    Args:
        model: The foreign model.
        data: The data set, whose normalization is replaced by that of the model if the model names one.
        has_classes: Whether the outputs must be the classes of the data.
    """

    def _wrap(self, model: nn.Module, data: Dataset, has_classes: bool) -> None:
        self.model = model
        self.head: nn.Module = nn.Identity()
        self.scale, self.offset = _renormalization(model, data)
        self._find_head(data, has_classes)

    def forward(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns the logits (B, classes) of images (B, C, height, width) with other positions of patches, if given."""
        scale, offset = (torch.tensor(v, device=images.device).view(-1, 1, 1) for v in (self.scale, self.offset))
        dtype = next((p.dtype for p in self.model.parameters()), images.dtype)
        context = nullcontext() if positions is None else at_positions(self.model, positions)
        try:
            with context:
                output = self.model((images * scale + offset).to(dtype))
        except AssertionError as error:  # timm's, at another image size
            shape = tuple(images.shape[1:])
            raise InputError(
                f"the {type(self.model).__name__} does not take images of shape {shape} ({sanitize(error)}); "
                "give data of the model's size, as by ' + resize(size=224)'"
            ) from error
        return cast(Tensor, getattr(output, "logits", output))

    def forward_features(self, images: Tensor, positions: Positions | None = None) -> Tensor:
        """Returns what enters the last linear layer (B, D); the logits if the model does not end in one."""
        if isinstance(self.head, nn.Identity):
            return self.forward(images, positions)
        inputs: list[Tensor] = []
        handle = self.head.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
        try:
            self.forward(images, positions)
        finally:
            handle.remove()
        return inputs[-1]

    def _find_head(self, data: Dataset, has_classes: bool) -> None:
        """Finds the linear layer whose output are the logits, by running the model on one test image."""
        outputs: list[tuple[nn.Module, Tensor]] = []
        linear = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        handles = [one.register_forward_hook(lambda m, args, out: outputs.append((m, out))) for one in linear]
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        self.model.eval()
        shape = tuple(data.shape)
        try:
            with torch.inference_mode():
                logits = self.forward(data.normalize(data.test.images[:1].to(device)))
        except InputError:  # of the image size, from `forward`
            raise
        except (RuntimeError, AssertionError, ValueError, TypeError, AttributeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"the {type(self.model).__name__} does not take images of shape {shape} ({reason}); "
                "choose data of the model's channels and size"
            ) from error
        finally:
            for handle in handles:
                handle.remove()
        if not has_classes:
            return
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise InputError(
                f"the {type(self.model).__name__} returns no logits (batch, classes); give a model with its classifier"
            )
        if logits.shape[1] != len(data.classes):
            raise InputError(
                f"a model with {logits.shape[1]} outputs does not fit data {data.spec!r} with {len(data.classes)} classes; "
                "build the model for these classes, or take other data"
            )
        self.head = next((one for one, output in reversed(outputs) if output is logits), self.head)


class WrappedClassifier(_Wrapped):
    """Any classifier, as a model without patches."""

    def __init__(self, model: nn.Module, data: Dataset, has_classes: bool = True):
        super().__init__()
        self._wrap(model, data, has_classes)


class WrappedViT(_Wrapped, PatchClassifier):
    """A model with an attached encoding, as a model with patches; its weights are those of the foreign model.

    Evaluations that run the blocks one by one, such as attacks by closed form, raise an InputError.
    """

    def __init__(self, model: nn.Module, data: Dataset, has_classes: bool = True):
        nn.Module.__init__(self)
        attachment = find_attachment(model)
        trunk, adapter = attachment.model, attachment.adapter
        self.geometry, self.patch = attachment.geometry, adapter.patch_size(trunk)
        self.train_grid = self.geometry.grid
        self.channels = data.shape[0]
        self._wrap(model, data, has_classes)

    @property
    def attachment(self) -> Attachment:
        """What connects the model with its encoding."""
        return find_attachment(self.model)

    @property
    def encoding(self) -> PositionEncoding:  # type: ignore[override]
        """The attached encoding together with the positions that the model has of its own."""
        return self.attachment.combined_encoding

    def forward_with_penalty(self, images: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor | float]:
        """Returns logits (B, classes) and the extra loss that the attached encoding defines for this batch."""
        logits = self.forward(images, positions)
        return logits, 0.0 if self.attachment.pos is None else self.encoding.penalty(self.attachment.pos)

    def capture_activations(
        self, images: Tensor, positions: Positions | None, on_tokens: OnTokens | None, on_attention: OnAttention | None
    ) -> None:
        """Runs one forward pass and passes its patch tokens and attention inputs to the functions."""
        attachment, count = self.attachment, self.geometry.num_prefix
        blocks = attachment.adapter.blocks(attachment.model)

        def before(module: nn.Module, inputs: Any) -> None:
            if on_tokens:
                on_tokens(0, inputs[0][:, count:])

        def after(module: Any, inputs: Any, output: Any) -> None:
            if on_tokens:
                tokens = output if isinstance(output, Tensor) else output[0]
                on_tokens(module._layer + 1, tokens[:, count:])

        handles = [blocks[0].register_forward_pre_hook(before), *(one.register_forward_hook(after) for one in blocks)]
        attachment.on_attention = on_attention
        try:
            self.forward(images, positions)
        finally:
            attachment.on_attention = None
            for handle in handles:
                handle.remove()

    def resized(self, grid: tuple[int, int], *, mode: str = "bicubic") -> Any:
        """Raises an InputError: tables of foreign models are resampled by the model itself."""
        raise InputError(
            f"tables of a {type(self.model).__name__} are not resampled here (mode {mode!r}); "
            "leave out resize_tables, so that the model resamples its own"
        )

    def embed_patches(self, images: Tensor, positions: Positions | None = None) -> Any:
        """Raises an InputError: the blocks of foreign models cannot be run one by one."""
        raise InputError(NEEDS_BLOCKS.format(type(self.model).__name__))

    def patch_tokens(self, images: Tensor) -> Tensor:
        """Raises an InputError: the patch projection of foreign models is not known."""
        raise InputError(NEEDS_BLOCKS.format(type(self.model).__name__))


def _renormalization(model: nn.Module, data: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns factors and offsets per channel that convert images normalized for ``data`` to what the model expects."""
    config = getattr(model, "pretrained_cfg", None) or {}
    mean, std = config.get("mean"), config.get("std")
    if not mean or not std or len(mean) != len(data.mean):
        return (1.0,) * len(data.mean), (0.0,) * len(data.mean)
    scale = tuple(of_data / of_model for of_data, of_model in zip(data.std, std, strict=True))
    offset = tuple((of_data - of_model) / s for of_data, of_model, s in zip(data.mean, mean, std, strict=True))
    return scale, offset
