"""`vitpos.load`: one of our trained models, or a model of timm or Hugging Face, ready for evaluation."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vitpos.errors import InputError
from vitpos.interop.load import load_foreign
from vitpos.interop.pretrained import from_pretrained, is_saved
from vitpos.interop.untrusted_files import read_metadata
from vitpos.lab.cell_models import load_models
from vitpos.models.base import Classifier, EncodingLike


def load(
    what: str | Path | nn.Module,
    *,
    encoding: EncodingLike | None = None,
    pretrained: bool = True,
    architecture: str | None = None,
) -> Classifier:
    """Returns our ViT, Swin or ResNet with the same outputs as a given model, in evaluation mode.

    The result is a model of this library: any evaluation, attack and inspection applies to it, and
    `vitpos.interop.to_timm` and `vitpos.interop.to_huggingface` give its weights back under the names
    they came from, bit for bit. Outputs are equal at the image size of the given model; at other sizes, a learned
    table is interpolated as ours are. Dropout and stochastic depth of the given model are not kept.

    Args:
        what: ``"timm:vit_small_patch16_224"``, a model of timm with its weights from timm's cache or hub;
            ``"hf:facebook/dinov2-small"``, a model of Hugging Face or a local folder of it; a model of timm or
            Hugging Face; the path of a checkpoint; the folder or weights file of one training of `vitpos.run`; a file of
            `vitpos.convert`; or a folder of `save_pretrained`.
        encoding: Another position encoding, a spec, class or instance; the positions of the given model are then left
            out. None keeps them.
        pretrained: Whether ``timm:`` and ``hf:`` load trained weights; otherwise they are random.
        architecture: For the path of a file, the name of its timm model, such as ``"vit_base_patch16_224"``; not
            needed if a ``config.json`` beside it has it.
    """
    if isinstance(what, str | Path) and not str(what).startswith(("timm:", "hf:")) and is_ours(Path(what)):
        _refuse_encoding(what, encoding)
        (_, make), *_ = load_models(Path(what), need_data=False)
        return make()
    if isinstance(what, str | Path) and is_saved(Path(what)):
        _refuse_encoding(what, encoding)
        return from_pretrained(what)
    return load_foreign(what, encoding=encoding, pretrained=pretrained, architecture=architecture)


def _refuse_encoding(what: str | Path, encoding: EncodingLike | None) -> None:
    if encoding is not None:
        raise InputError(f"{what} is a model of vitpos, whose encoding was trained; leave out encoding=")


def is_ours(path: Path) -> bool:
    """Returns whether a path is the folder of one training, or a weights file, written by vitpos."""
    return (path / "cell.json").exists() or "cell" in read_metadata(path)
