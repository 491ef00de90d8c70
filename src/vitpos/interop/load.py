"""`load`: a model of timm or Hugging Face as our ViT, Swin or ResNet with the same outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from vitpos.errors import InputError
from vitpos.interop.architecture import find_trunk
from vitpos.interop.huggingface import huggingface_blueprint
from vitpos.interop.sanitize import sanitize
from vitpos.interop.tensor_files import CheckpointContents, read_contents
from vitpos.interop.timm_blueprint import timm_blueprint
from vitpos.models.base import Classifier, EncodingLike

FAMILIES = (
    "timm's VisionTransformer, Eva, SwinTransformer and ResNet, Hugging Face's ViT, DeiT, DINOv2, DINOv3, and the image "
    "towers of CLIP and SigLIP"
)


def load_foreign(
    what: str | Path | nn.Module,
    *,
    encoding: EncodingLike | None = None,
    pretrained: bool = True,
    architecture: str | None = None,
) -> Classifier:
    """Returns our model with the outputs of a model of timm or Hugging Face; `vitpos.load` describes the arguments."""
    if isinstance(what, nn.Module):
        return from_module(what, encoding=encoding)
    text = str(what)
    if text.startswith("timm:"):
        return from_module(_timm(text.removeprefix("timm:"), pretrained=pretrained), encoding=encoding)
    if text.startswith("hf:"):
        return from_module(_huggingface(text.removeprefix("hf:"), pretrained=pretrained), encoding=encoding)
    return from_module(_file(Path(text), architecture), encoding=encoding)


def from_module(module: nn.Module, *, encoding: EncodingLike | None = None) -> Classifier:
    """Returns our model with the outputs of a living model of timm or Hugging Face, and copies of its weights."""
    for blueprint in (timm_blueprint, huggingface_blueprint):
        if (found := blueprint(module)) is not None:
            return found.build(encoding)
    raise InputError(f"load does not know this {type(module).__name__} (known: {FAMILIES}); use vitpos.attach instead")


def _timm(name: str, **options: Any) -> nn.Module:
    try:
        import timm
    except ImportError:
        raise InputError("models of timm need the package; install it with pip install 'vitpos[interop]'") from None
    if name.split(".")[0] not in timm.list_models():
        raise InputError(f"timm has no model {sanitize(name)!r}; timm.list_models('*vit*') lists them")
    return _in_one_line(f"timm:{name}", lambda: timm.create_model(name, **options))


def _huggingface(name: str, *, pretrained: bool = True) -> nn.Module:
    try:
        import transformers
    except ImportError:
        raise InputError("models of Hugging Face need the package; pip install 'vitpos[interop]'") from None

    def make() -> nn.Module:
        config = transformers.AutoConfig.from_pretrained(name)
        classifies = any(str(one).endswith("ForImageClassification") for one in config.architectures or ())
        factory = transformers.AutoModelForImageClassification if classifies else transformers.AutoModel
        return factory.from_pretrained(name) if pretrained else factory.from_config(config)

    return _in_one_line(f"hf:{name}", make)


def _in_one_line(what: str, make: Callable[[], nn.Module]) -> nn.Module:
    """Returns ``make()``; any exception of another library becomes an InputError of one line."""
    try:
        return make()
    except Exception as error:  # of a hub, a file or a model: any type
        reason = sanitize(" ".join(str(error).split()), limit=160)
        raise InputError(
            f"{sanitize(what)} was not loaded ({type(error).__name__}: {reason}); "
            "check the name, the network and your access, or give a local folder"
        ) from None


def _file(path: Path, architecture: str | None) -> nn.Module:
    """Returns the living model of a checkpoint: a folder of Hugging Face or timm, or a file and its ``architecture``."""
    contents = read_contents(path)
    given = architecture or contents.config.get("architecture")
    if isinstance(given, str):
        return _with_weights(given.removeprefix("timm:"), contents)
    if path.is_dir() and isinstance(contents.config.get("model_type"), str):
        return _huggingface(str(path))
    raise InputError(
        f"{path} does not state its architecture; add architecture='vit_base_patch16_224' (a name of timm), "
        "or build the model, load the file, and pass the model"
    )


def _with_weights(name: str, contents: CheckpointContents) -> nn.Module:
    """Returns the timm model ``name`` with the weights that were read from a file."""
    trunk = find_trunk(contents.tensors, contents.config)
    state = contents.tensors if trunk is None else trunk.tensors
    classes = next((len(state[key]) for key in ("head.weight", "head.fc.weight", "fc.weight") if key in state), 0)
    module = _timm(name, pretrained=False, num_classes=classes)
    wanted = {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}
    found = {key: tuple(tensor.shape) for key, tensor in state.items()}
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            sizes = f"{sanitize(key)!r} is {found.get(key, 'missing')} and should be {wanted.get(key, 'missing')}"
            raise InputError(f"{contents.path}: {sizes}; give the architecture that it was trained with, not {name!r}")
    module.load_state_dict(dict(state))
    return module
