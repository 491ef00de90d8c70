"""Models in a folder or on the Hugging Face Hub: configuration as JSON, weights as safetensors, and a model card."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitpos import __version__
from vitpos.errors import InputError, RunError
from vitpos.files import write_json, write_tensors, write_text
from vitpos.interop.hub_access import hub_access
from vitpos.interop.model_card import model_card
from vitpos.interop.model_spec import ModelSpec
from vitpos.interop.tensor_files import read_json_object
from vitpos.interop.untrusted_files import errors_in_one_line, read_file
from vitpos.models import MODELS
from vitpos.models.base import Classifier, PatchClassifier, Shape
from vitpos.models.image_limits import check_model_images
from vitpos.models.model_limits import ModelLimit
from vitpos.patches import patch_grid
from vitpos.printable import one_line, sanitize
from vitpos.registry import Term, plugins

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FORMAT = 1
MAX_SIDE = 1 << 15  # of images and grids, and for the number of classes


@dataclass(frozen=True)
class ModelConfig(ModelSpec):
    """A `ModelSpec` as it is stored in ``config.json``: data that names registered models and encodings.

    Args:
        model, encoding, image_shape, num_classes: As in `ModelSpec`.
        grid: Rows and columns that stored tables were resampled for, if they differ from those of ``image_shape``.
    """

    grid: tuple[int, int] | None = None

    @staticmethod
    def of(model: Classifier) -> ModelConfig:
        """Returns the configuration of a model; raises an InputError if it was built from objects without a spec."""
        arguments: dict[str, Any] = dict(model._built_with or {})
        shape, classes = arguments.pop("image_shape", None), arguments.pop("num_classes", None)
        encoding = arguments.pop("encoding", "none")
        if shape is None or classes is None:
            raise InputError(f"a {type(model).__name__} does not record how it was built; save its state_dict()")
        if encoding is None:
            raise InputError("the encoding of this model is an object; build it with a spec, such as 'learned + rope'")
        spec = str(Term(MODELS.spec_of(type(model)), arguments))
        grid = None
        if isinstance(model, PatchClassifier) and model.geometry.grid != patch_grid(shape[1:], model.patch):
            grid = model.geometry.grid
        return ModelConfig(spec, str(encoding), tuple(shape), classes, grid)

    @staticmethod
    def read(path: Path) -> ModelConfig:
        """Returns the configuration in an untrusted ``config.json``, with values of the right types and sizes."""
        values = read_json_object(path)
        if values.get("library") != "vitpos" or values.get("format") != FORMAT:
            raise InputError(
                f"{path} is not the configuration of a model of vitpos; use vitpos.load for other libraries"
            )
        shape, classes, grid = values.get("image_shape"), values.get("num_classes"), values.get("grid")
        texts = [values.get(name) for name in ("model", "encoding")]
        if not all(isinstance(text, str) and len(text) < 10_000 for text in texts):
            raise InputError(f"{path}: model and encoding have to be specs, such as 'vit(dim=64)'; download it again")
        if not _sides(shape, 3) or not _sides(grid or [1, 1], 2) or not _sides([classes, 0], 2, least=0):
            raise InputError(f"{path}: image_shape, num_classes or grid are no sizes of a model; download it again")
        sizes: dict[str, Any] = {"image_shape": tuple(shape or ()), "num_classes": classes}
        return ModelConfig(str(texts[0]), str(texts[1]), grid=None if grid is None else (grid[0], grid[1]), **sizes)

    def build_with(self, state: dict[str, Tensor]) -> Classifier:
        """Returns the model in evaluation mode, with the given tensors as its weights; their dtypes are kept."""
        model = self.build()
        if self.grid is not None and isinstance(model, PatchClassifier):
            model = model.to("meta").resized(self.grid)  # without memory: the tensors come from ``state``
        wanted = model.state_dict()
        for key in [*wanted, *state]:
            shapes = [tuple(one[key].shape) if key in one else "missing" for one in (state, wanted)]
            if shapes[0] != shapes[1]:
                raise InputError(f"{sanitize(key)!r} is {shapes[0]} and should be {shapes[1]}")
            if state[key].is_floating_point() != wanted[key].is_floating_point():
                raise InputError(f"{sanitize(key)!r} is of type {state[key].dtype}")
        model.load_state_dict(state, assign=True)
        return model.eval()


def save_pretrained(model: nn.Module, folder: str | Path) -> Path:
    """Writes a model into a folder: ``config.json``, ``model.safetensors`` and a model card, ``README.md``.

    Before anything is written, the model is built from its configuration and compared with the given one on random
    images: their outputs must be equal, bit for bit. Returns the folder. `from_pretrained` reads it.

    Args:
        model: A model of this library that was built with specs.
        folder: The folder; it is created if needed, and the three files in it are replaced.
    """
    if not isinstance(model, Classifier):
        raise InputError(
            f"save_pretrained needs a model of vitpos, not a {type(model).__name__}; use vitpos.load first"
        )
    folder, config = Path(folder), ModelConfig.of(model)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder")
    state = {key: tensor.detach().cpu() for key, tensor in model.state_dict().items()}
    _check_same(model, config, state)
    values = {"library": "vitpos", "format": FORMAT, "vitpos_version": __version__, **asdict(config)}
    write_tensors(folder / WEIGHTS, state, {"format": "pt"})
    write_text(folder / CARD, model_card(model, config.model, config.encoding, config.image_shape, config.num_classes))
    write_json(folder / CONFIG, values)  # last: without it the folder is not a model
    return folder


def _check_same(model: Classifier, config: ModelConfig, state: dict[str, Tensor]) -> None:
    remedy = "a part of it was changed after it was built; build it with this part, or save its state_dict()"
    try:
        again = config.build_with(state)
    except InputError as error:
        raise InputError(f"the model is not the one that {config.model} describes ({error}): {remedy}") from None
    if _grids(again) != _grids(model):
        raise InputError(f"the model has another grid than the one that {config.model} describes: {remedy}")
    first = next(iter(state.values()), torch.empty(0))
    images = torch.randn(2, *config.image_shape, generator=torch.Generator().manual_seed(0)).to(first.dtype)
    mode = model.training
    try:
        with torch.no_grad():
            given = model.eval()(images.to(model.device)).cpu()
            same = torch.equal(given, again.to(model.device)(images.to(model.device)).cpu())
    finally:
        model.train(mode)
    if not same:
        raise InputError(f"the model has other outputs than the one that {config.model} describes: {remedy}")


def _grids(model: Classifier) -> object:
    return (model.geometry, model.train_grid) if isinstance(model, PatchClassifier) else None


def from_pretrained(
    source: str | Path, *, revision: str | None = None, token: str | None = None, trust: bool = False
) -> Classifier:
    """Returns the model that `save_pretrained` or `push_to_hub` wrote, in evaluation mode, on the CPU.

    The configuration is data: it names models and encodings of vitpos, whose sizes must be those of the stored tensors.
    Code outside the package, as in ``mine.py:Class``, is not imported unless ``trust`` is set.

    Args:
        source: A local folder, or the name of a repository on the Hugging Face Hub, ``user/name``.
        revision: Branch, tag or commit of the repository.
        token: Access token for a private repository; by default that of ``hf auth login``.
        trust: Whether the code that the configuration names is imported, and a model of any size is built.
    """
    folder = Path(source)
    if not folder.is_dir():
        if folder.exists() or str(source).count("/") != 1 or str(source).startswith((".", "/", "~")):
            raise InputError(f"{source} is not a folder of save_pretrained, nor a repository such as user/name")
        folder = _download(str(source), revision, token)
    with errors_in_one_line(folder):
        config = ModelConfig.read(folder / CONFIG)
        state, _ = read_file(folder / WEIGHTS)
        remedy = "if you trust it, use --trust, or trust=True in Python"
        what = f"the model {sanitize(config.model)} with encoding {sanitize(config.encoding)}"
        allowed = nullcontext() if trust else plugins.refusing_imports(f"{folder} may come from elsewhere", remedy)
        with allowed, nullcontext() if trust else ModelLimit(state, what):
            try:
                model = config.build_with(state)
            except InputError as error:
                raise InputError(f"{folder}: {error}") from None
        if not trust:
            check_model_images(model, image_shape_of(model), str(folder))
        return model


def is_saved(path: Path) -> bool:
    """Returns whether a path is a folder that `save_pretrained` wrote, by its ``config.json``."""
    if not path.is_dir() or not (path / CONFIG).is_file():
        return False
    with errors_in_one_line(path):
        return read_json_object(path / CONFIG).get("library") == "vitpos"


def image_shape_of(model: Classifier) -> Shape:
    """Returns channels, height and width of the images for which the tables of a model of vitpos are."""
    if isinstance(model, PatchClassifier):
        (rows, columns), (height, width) = model.geometry.grid, model.patch
        return model.channels, rows * height, columns * width
    return ModelConfig.of(model).image_shape


def push_to_hub(
    model: nn.Module,
    repository: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    message: str = "Upload model",
) -> str:
    """Uploads a model, its configuration and a model card to the Hugging Face Hub; returns the address of the commit.

    Args:
        model: A model of this library that was built with specs.
        repository: ``user/name``; it is created if needed.
        private: Whether a new repository is private; by default as set for the account.
        token: Access token; by default that of ``hf auth login``.
        message: Message of the commit.
    """
    api = _hub().HfApi(token=token, library_name="vitpos", library_version=__version__)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        try:
            name = api.create_repo(repository, private=private, exist_ok=True).repo_id
            return str(api.upload_folder(repo_id=name, folder_path=folder, commit_message=message))
        except Exception as error:  # of the network or the hub: any type
            cause = f"{sanitize(repository)} was not uploaded ({one_line(error)})"
            raise RunError(f"{cause}; check the name, the network, and 'hf auth login'") from None


def _download(name: str, revision: str | None, token: str | None) -> Path:
    """Returns the local folder of a repository with the configuration and the weights of a model."""
    hub = _hub()
    try:
        with hub_access(name):
            for file in (WEIGHTS, CONFIG):
                path = hub.hf_hub_download(name, file, revision=revision, token=token, library_name="vitpos")
        return Path(path).parent
    except InputError:
        raise
    except Exception as error:  # of the network or the hub: any type
        raise InputError(
            f"{sanitize(name)} was not downloaded ({one_line(error)}); check the name, the network and your access"
        ) from None


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError("the Hub needs the package; pip install huggingface_hub") from None
    return huggingface_hub


def _sides(values: Any, count: int, least: int = 1) -> bool:
    """Returns whether ``values`` is a list of ``count`` whole numbers from ``least`` to a limit."""
    return (
        isinstance(values, list)
        and len(values) == count
        and all(type(value) is int and least <= value <= MAX_SIDE for value in values)
    )
