"""Opens a checkpoint of timm, Hugging Face or vitpos, with data that fit it, to evaluate, attack or inspect it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitpos.data import DATASETS
from vitpos.data.dataset import Dataset, load
from vitpos.errors import InputError
from vitpos.interop.blueprint import NotRebuilt
from vitpos.interop.class_names import (
    IMAGENET,
    config_names,
    imagenet_names,
    match_classes,
    read_class_file,
)
from vitpos.interop.load import find_blueprint, is_hub_name, open_module
from vitpos.interop.preprocessing import (
    Preprocessing,
    stated_preprocessing,
    stored_preprocessing,
    with_normalization,
)
from vitpos.interop.pretrained import ModelConfig, from_pretrained, image_shape_of, is_saved
from vitpos.interop.tensor_files import read_contents
from vitpos.interop.wrapped_models import wrap
from vitpos.lab.cell_models import converted_settings, is_vitpos_output, load_models, read_image_shape
from vitpos.lab.cells import Cell
from vitpos.lab.device import chosen_device
from vitpos.lab.foreign_data import describe_classes, describe_images, fit_data, relabeled
from vitpos.lab.trust import trusts_everything
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.printable import sanitize
from vitpos.training.recipe import Recipe

DEFAULT_SIZE = (224, 224)
BUILT_IN = "built-in"  # in tables, the encoding of a model that is not rebuilt
CLASSES_REMEDY = "give a file of classes with the name of each output in order"


@dataclass(frozen=True)
class OpenedModel:
    """A model of vitpos or a checkpoint of another library, with data that fit it, ready to be evaluated.

    Args:
        cell: What tables show of it: data, model, encoding; the settings of the training if vitpos trained it.
        model: The model, in evaluation mode.
        data: The data set, with images as the model expects them, and the outputs of the model as classes.
        notes: Sentences on preprocessing, classes and the kind of model.
    """

    cell: Cell
    model: Classifier
    data: Dataset
    notes: tuple[str, ...]


def open_models(
    source: Path, data: str | None, *, architecture: str | None = None, classes: Path | None = None
) -> Sequence[tuple[Cell, Callable[[], OpenedModel]]]:
    """Returns pairs (cell, function that opens its model) of a run, a weights file or a checkpoint of another library.

    The arguments are those of `open_checkpoint`; ``source`` may also be the folder of a run or of one of its cells.
    """
    if is_checkpoint(source):
        found = open_checkpoint(source, data, architecture=architecture, classes=classes)
        return [(found.cell, lambda: found)]
    if architecture or classes:
        option = "architecture" if architecture else "classes"
        raise InputError(f"{source} is of vitpos, which stores model and classes; leave out {option}")

    def open_own(cell: Cell, make: Callable[[], Classifier]) -> OpenedModel:
        return OpenedModel(cell, make(), load(cell.data), ())

    return [(cell, partial(open_own, cell, make)) for cell, make in load_models(source, data)]


def is_checkpoint(source: Path | str) -> bool:
    """Whether a model is given as ``timm:NAME`` or ``hf:NAME``, or by a file or folder without settings of a training.

    This includes the folders of `save_pretrained`, and files of `vitpos.convert` with models that were trained elsewhere.
    """
    if is_hub_name(source) or not Path(source).exists():
        return is_hub_name(source)
    return not is_vitpos_output(Path(source)) or converted_settings(Path(source)) is not None


def open_checkpoint(
    source: Path | str,
    data: str | None,
    *,
    architecture: str | None = None,
    classes: Path | None = None,
    need_classes: bool = True,
) -> OpenedModel:
    """Returns a checkpoint of timm, Hugging Face or vitpos with a data set whose images and classes fit it.

    Args:
        source: ``timm:NAME``, ``hf:NAME``, a folder of Hugging Face or timm, or a file.
        data: Spec of the data set; only the weights file of a run has data of its own.
        architecture: Name of a timm model, for a file that does not state it.
        classes: File with the names of the outputs.
        need_classes: Whether the outputs must be classes of the data; otherwise the labels of the data are kept.
    """
    if not is_hub_name(source) and Path(source).exists() and not is_checkpoint(source):
        ((_, make),) = open_models(Path(source), data, architecture=architecture, classes=classes)
        return make()
    if data is None:
        if not is_hub_name(source):
            read_contents(Path(source))  # a file that cannot be read is the first mistake to name
        raise InputError(f"{source} has no data of its own; give data, such as \"image_folder(path='…')\"")
    DATASETS.parse(data)  # a mistake in it is reported before anything is loaded
    name = str(source)
    if not is_hub_name(name) and is_vitpos_output(Path(name)):
        opened = _open_converted(Path(name))
    else:
        opened = _open_saved(Path(name)) if is_saved(Path(name)) else _open_other(name, architecture)
    module, config, preprocessing = opened.module, opened.config, opened.preprocessing
    model, shape, encoding, reason = opened.model, opened.image_shape, opened.encoding, opened.reason
    spec = fit_data(data, shape, preprocessing)
    loaded = load(spec)
    notes = [describe_images(preprocessing, loaded)]
    loaded = with_normalization(loaded, preprocessing)
    if need_classes:
        if _has_no_classifier(module):
            raise InputError(
                f"{name} has no classifier, so that it cannot be evaluated on classes; give a fine-tuned checkpoint, or "
                "use 'vitpos inspect'"
            )
        outputs = _count_outputs(module, loaded) if opened.outputs is None else opened.outputs
        names = read_class_file(classes) if classes is not None else config_names(config)
        names = imagenet_names(names) if outputs == IMAGENET and classes is None else names
        number = match_classes(loaded.classes, outputs, names, remedy=CLASSES_REMEDY)
        notes.append(describe_classes(loaded, outputs, names))
        loaded = relabeled(loaded, number, names)
    if reason:
        model = wrap(model, loaded, has_classes=need_classes)
        can = "can" if isinstance(model, PatchClassifier) else "cannot"
        notes.append(f"The model is run unchanged ({reason}); its patches {can} be permuted and hidden.")
    assert isinstance(model, Classifier)
    shown = architecture or config.get("architecture") or config.get("model_type")
    title = name if is_hub_name(name) or not isinstance(shown, str) else f"{Path(name).name} ({sanitize(shown)})"
    cell = Cell(spec, title, encoding, 0, Recipe(epochs=0), ())
    return OpenedModel(cell, model.to(chosen_device()).eval(), loaded, tuple(notes))


@dataclass(frozen=True)
class _ReadModel:
    """A checkpoint as it was read, and the model that is run.

    Args:
        module: The model as it was read.
        config: What its configuration states.
        preprocessing: How its images are preprocessed.
        model: The model that is run: one of vitpos that computes the same outputs, or ``module``.
        image_shape: Channels, height and width of its images.
        encoding: Spec of its position encoding.
        outputs: Number of its outputs; None if it is not known yet.
        reason: Why it was not rebuilt as a model of vitpos; empty if it was.
    """

    module: nn.Module
    config: Mapping[str, Any]
    preprocessing: Preprocessing
    model: nn.Module
    image_shape: Shape
    encoding: str
    outputs: int | None
    reason: str = ""


def _open_saved(folder: Path) -> _ReadModel:
    model = from_pretrained(folder, trust=trusts_everything())
    stated = ModelConfig.of(model)
    shape, config = image_shape_of(model), {"architecture": stated.model}
    return _ReadModel(model, config, Preprocessing(), model, shape, stated.encoding, stated.num_classes)


def _open_converted(path: Path) -> _ReadModel:
    """Opens a weights file of `vitpos.convert` whose model was trained elsewhere."""
    ((cell, make),) = load_models(path)
    stored = converted_settings(path) or {}
    model, classes = make(), list(map(str, stored["classes"]))
    named = classes != [str(number) for number in range(len(classes))]
    config = {"architecture": cell.model.partition("(")[0], **({"label_names": classes} if named else {})}
    preprocessing = stored_preprocessing(stored.get("preprocessing"), "the weights file")
    return _ReadModel(model, config, preprocessing, model, read_image_shape(path), cell.encoding, len(classes))


def _open_other(name: str, architecture: str | None) -> _ReadModel:
    module, config = open_module(name, architecture=architecture)
    preprocessing = stated_preprocessing(name, config)
    _replace_normalization(module, preprocessing)
    try:
        found = find_blueprint(module)
        model = found.build()
        return _ReadModel(module, config, preprocessing, model, found.image_shape, found.encoding, found.num_classes)
    except NotRebuilt as error:
        reason = error.reason
        shape = _image_shape(module, preprocessing)
        return _ReadModel(module, config, preprocessing, module.eval(), shape, BUILT_IN, None, reason)


def _replace_normalization(module: nn.Module, preprocessing: Preprocessing) -> None:
    """Sets `pretrained_cfg` mean and std to those the checkpoint states.

    Without them, evaluation uses those of the data set, not the defaults of the architecture in timm.
    """
    if hasattr(module, "pretrained_cfg"):
        module.pretrained_cfg = {"mean": preprocessing.mean, "std": preprocessing.std}  # type: ignore[assignment]


def _image_shape(module: nn.Module, preprocessing: Preprocessing) -> tuple[int, int, int]:
    """Returns the shape of the images of a model that is not rebuilt: what it states, else what it was pretrained with."""
    channels = next((one.in_channels for one in module.modules() if isinstance(one, nn.Conv2d)), 3)
    embed = getattr(module, "patch_embed", None)
    stated = getattr(embed, "img_size", None) or getattr(getattr(module, "config", None), "image_size", None)
    size = (stated, stated) if isinstance(stated, int) else tuple(stated or preprocessing.size or DEFAULT_SIZE)
    return channels, size[0], size[1]


def _has_no_classifier(module: nn.Module) -> bool:
    if isinstance(module, Classifier):
        return ModelConfig.of(module).num_classes == 0
    if type(module).__module__.startswith("transformers."):
        return not type(module).__name__.endswith(("ForImageClassification", "ForImageClassificationWithTeacher"))
    return getattr(module, "num_classes", None) == 0


def _count_outputs(module: nn.Module, data: Dataset) -> int:
    """Returns the number of logits of a model, by running it on one test image."""
    classifier = wrap(module, data, has_classes=False)
    with torch.inference_mode():
        output = classifier(data.normalize(data.test.images[:1]))
    if not isinstance(output, Tensor) or output.ndim != 2:
        raise InputError(
            f"the {type(module).__name__} returns no logits (batch, classes); give a model with its classifier"
        )
    return output.shape[1]
