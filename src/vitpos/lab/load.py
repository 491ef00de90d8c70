"""`vitpos.load`: a trained model of vitpos, or a model of timm or Hugging Face as one of vitpos."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from vitpos.errors import InputError
from vitpos.interop.load import is_hub_name, load_foreign
from vitpos.interop.pretrained import from_pretrained, is_saved
from vitpos.lab.cell_models import is_vitpos_output, load_models, refuse_run
from vitpos.lab.trust import trusting, trusts_everything
from vitpos.models.base import Classifier, EncodingLike


def load(
    model: str | Path | nn.Module,
    *,
    encoding: EncodingLike | None = None,
    pretrained: bool = True,
    architecture: str | None = None,
    trust: bool = False,
) -> Classifier:
    """Returns a `vitpos` ViT, Swin or ResNet that computes the same outputs as ``model``, in evaluation mode.

    Any evaluation, attack and inspection applies to the result, and `vitpos.interop.to_timm` and
    `vitpos.interop.to_huggingface` give its weights back under the names they came from, bit for bit. Outputs are equal
    at the image size of the given model; at other sizes, a learned table is interpolated as in any model of vitpos.
    Dropout and stochastic depth of the given model are not kept.

    Args:
        model: ``"timm:vit_small_patch16_224"``, a model of timm with its weights from timm's cache or hub;
            ``"hf:facebook/dinov2-small"``, a model of Hugging Face or a local folder of it; a model of timm or
            Hugging Face; the path of a checkpoint; the folder or weights file of one training of `vitpos.run`; a file of
            `vitpos.convert`; or a folder of `save_pretrained`.
        encoding: Another position encoding, a spec, class or instance; the positions of the given model are then left
            out. None keeps them.
        pretrained: Whether ``timm:`` and ``hf:`` load trained weights; otherwise they are random.
        architecture: For the path of a file, the name of its timm model, such as ``"vit_base_patch16_224"``; not
            needed if a ``config.json`` beside it has it.
        trust: Whether files of vitpos from somebody else (a training, a weights file, a folder of `save_pretrained`) may
            name any plug-ins, data and sizes.
    """
    if not isinstance(model, nn.Module) and not is_hub_name(model):
        path = Path(model)
        refuse_run(path)
        with trusting(trust):
            if is_vitpos_output(path):
                _refuse_encoding(path, encoding)
                (_, make), *_ = load_models(path, need_data=False)
                return make()
            if is_saved(path):
                _refuse_encoding(path, encoding)
                return from_pretrained(path, trust=trusts_everything())
    return load_foreign(model, encoding=encoding, pretrained=pretrained, architecture=architecture)


def _refuse_encoding(path: Path, encoding: EncodingLike | None) -> None:
    if encoding is not None:
        raise InputError(f"{path} is a model of vitpos, whose encoding was trained; leave out encoding=")
