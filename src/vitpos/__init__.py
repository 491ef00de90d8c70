"""vitpos: a laboratory for position in Vision Transformers.

The names below are the public API. Each name is imported when it is first used, so that ``import vitpos`` imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vitpos.data import DATASETS as DATASETS, register_dataset as register_dataset
    from vitpos.data.dataset import Dataset as Dataset, Split as Split, View as View
    from vitpos.encodings import ENCODINGS as ENCODINGS, register_encoding as register_encoding
    from vitpos.encodings.alibi import ALiBi as ALiBi
    from vitpos.encodings.base import TRAITS as TRAITS, Geometry as Geometry, PositionEncoding as PositionEncoding
    from vitpos.encodings.cape import CAPE as CAPE
    from vitpos.encodings.comrope import ComRoPE as ComRoPE
    from vitpos.encodings.coordconv import CoordConv as CoordConv
    from vitpos.encodings.coordinate_mlp import CoordinateMLP as CoordinateMLP
    from vitpos.encodings.cope import CoPE as CoPE
    from vitpos.encodings.cpb import CPB as CPB
    from vitpos.encodings.cpe import CPE as CPE
    from vitpos.encodings.decomposed import DecomposedBias as DecomposedBias
    from vitpos.encodings.factorized import Factorized as Factorized
    from vitpos.encodings.fire import FIRE as FIRE
    from vitpos.encodings.fourier import Fourier as Fourier
    from vitpos.encodings.goat import GOAT as GOAT
    from vitpos.encodings.gpsa import GPSA as GPSA
    from vitpos.encodings.irpe import IRPE as IRPE
    from vitpos.encodings.learned import Learned as Learned
    from vitpos.encodings.liere import LieRE as LieRE
    from vitpos.encodings.lookhere import LookHere as LookHere
    from vitpos.encodings.mjp import MJP as MJP
    from vitpos.encodings.none import NoPosition as NoPosition
    from vitpos.encodings.pape import PaPE as PaPE
    from vitpos.encodings.pope import PoPE as PoPE
    from vitpos.encodings.relative import RelativeBias as RelativeBias
    from vitpos.encodings.rope import RoPE as RoPE
    from vitpos.encodings.rope_dino import RoPEDINO as RoPEDINO
    from vitpos.encodings.rope_golden import RoPEGolden as RoPEGolden
    from vitpos.encodings.rope_mixed import RoPEMixed as RoPEMixed
    from vitpos.encodings.rope_spherical import RoPESpherical as RoPESpherical
    from vitpos.encodings.rope_spiral import RoPESpiral as RoPESpiral
    from vitpos.encodings.sape2 import SaPE2 as SaPE2
    from vitpos.encodings.shaw import Shaw as Shaw
    from vitpos.encodings.sinusoidal import Sinusoidal as Sinusoidal
    from vitpos.encodings.sinusoidal1d import Sinusoidal1d as Sinusoidal1d
    from vitpos.encodings.string import STRING as STRING
    from vitpos.encodings.xcit_fourier import XCiTFourier as XCiTFourier
    from vitpos.errors import InputError as InputError, RunError as RunError
    from vitpos.evaluations import EVALUATIONS as EVALUATIONS, register_evaluation as register_evaluation
    from vitpos.evaluations.context import EvalContext as EvalContext
    from vitpos.evaluations.result import Result as Result
    from vitpos.interop.adapters import Adapter as Adapter
    from vitpos.interop.attach import (
        attach as attach,
        detach as detach,
        penalty as penalty,
        at_positions as at_positions,
    )
    from vitpos.interop.step_reports import StepReport as StepReport
    from vitpos.lab.convert import convert as convert
    from vitpos.interop.export import export_program as export_program
    from vitpos.interop.onnx import export_onnx as export_onnx
    from vitpos.interop.pretrained import (
        from_pretrained as from_pretrained,
        push_to_hub as push_to_hub,
        save_pretrained as save_pretrained,
    )
    from vitpos.lab.evaluate import evaluate as evaluate
    from vitpos.lab.events import Observer as Observer
    from vitpos.lab.experiment import Experiment as Experiment
    from vitpos.lab.heal import Healing as Healing
    from vitpos.lab.load import load as load
    from vitpos.lab.results import Results as Results
    from vitpos.lab.runner import run as run
    from vitpos.lab.cell_folder import CellFolder as CellFolder
    from vitpos.lab.experiment_folder import ExperimentFolder as ExperimentFolder
    from vitpos.models import MODELS as MODELS, register_model as register_model
    from vitpos.models.base import (
        Classifier as Classifier,
        PatchClassifier as PatchClassifier,
        build_encoding as build_encoding,
    )
    from vitpos.models.cnn import CNN as CNN
    from vitpos.models.minimal import MinimalAttention as MinimalAttention
    from vitpos.models.resnet import ResNet as ResNet
    from vitpos.models.swin import Swin as Swin
    from vitpos.models.vit import ViT as ViT
    from vitpos.positions import Positions as Positions
    from vitpos.registry import Registry as Registry
    from vitpos.testing import EncodingError as EncodingError, check_encoding as check_encoding
    from vitpos.training import (
        AUGMENTATIONS as AUGMENTATIONS,
        DEFENSES as DEFENSES,
        register_augmentation as register_augmentation,
        register_defense as register_defense,
    )
    from vitpos.training.loop import fit as fit
    from vitpos.training.recipe import Recipe as Recipe

_HOMES = {
    "vitpos.data": ("DATASETS", "register_dataset"),
    "vitpos.data.dataset": ("Dataset", "Split", "View"),
    "vitpos.encodings": ("ENCODINGS", "register_encoding"),
    "vitpos.encodings.alibi": ("ALiBi",),
    "vitpos.encodings.base": ("TRAITS", "Geometry", "PositionEncoding"),
    "vitpos.encodings.cape": ("CAPE",),
    "vitpos.encodings.comrope": ("ComRoPE",),
    "vitpos.encodings.coordconv": ("CoordConv",),
    "vitpos.encodings.coordinate_mlp": ("CoordinateMLP",),
    "vitpos.encodings.cope": ("CoPE",),
    "vitpos.encodings.cpb": ("CPB",),
    "vitpos.encodings.cpe": ("CPE",),
    "vitpos.encodings.decomposed": ("DecomposedBias",),
    "vitpos.encodings.factorized": ("Factorized",),
    "vitpos.encodings.fire": ("FIRE",),
    "vitpos.encodings.fourier": ("Fourier",),
    "vitpos.encodings.goat": ("GOAT",),
    "vitpos.encodings.gpsa": ("GPSA",),
    "vitpos.encodings.irpe": ("IRPE",),
    "vitpos.encodings.learned": ("Learned",),
    "vitpos.encodings.liere": ("LieRE",),
    "vitpos.encodings.lookhere": ("LookHere",),
    "vitpos.encodings.mjp": ("MJP",),
    "vitpos.encodings.none": ("NoPosition",),
    "vitpos.encodings.pape": ("PaPE",),
    "vitpos.encodings.pope": ("PoPE",),
    "vitpos.encodings.relative": ("RelativeBias",),
    "vitpos.encodings.rope": ("RoPE",),
    "vitpos.encodings.rope_dino": ("RoPEDINO",),
    "vitpos.encodings.rope_golden": ("RoPEGolden",),
    "vitpos.encodings.rope_mixed": ("RoPEMixed",),
    "vitpos.encodings.rope_spherical": ("RoPESpherical",),
    "vitpos.encodings.rope_spiral": ("RoPESpiral",),
    "vitpos.encodings.sape2": ("SaPE2",),
    "vitpos.encodings.shaw": ("Shaw",),
    "vitpos.encodings.sinusoidal": ("Sinusoidal",),
    "vitpos.encodings.sinusoidal1d": ("Sinusoidal1d",),
    "vitpos.encodings.string": ("STRING",),
    "vitpos.encodings.xcit_fourier": ("XCiTFourier",),
    "vitpos.errors": ("InputError", "RunError"),
    "vitpos.evaluations": ("EVALUATIONS", "register_evaluation"),
    "vitpos.evaluations.context": ("EvalContext",),
    "vitpos.evaluations.result": ("Result",),
    "vitpos.interop.adapters": ("Adapter",),
    "vitpos.interop.attach": ("at_positions", "attach", "detach", "penalty"),
    "vitpos.interop.step_reports": ("StepReport",),
    "vitpos.lab.convert": ("convert",),
    "vitpos.interop.export": ("export_program",),
    "vitpos.interop.onnx": ("export_onnx",),
    "vitpos.interop.pretrained": ("from_pretrained", "push_to_hub", "save_pretrained"),
    "vitpos.lab.evaluate": ("evaluate",),
    "vitpos.lab.events": ("Observer",),
    "vitpos.lab.experiment": ("Experiment",),
    "vitpos.lab.heal": ("Healing",),
    "vitpos.lab.load": ("load",),
    "vitpos.lab.results": ("Results",),
    "vitpos.lab.runner": ("run",),
    "vitpos.lab.cell_folder": ("CellFolder",),
    "vitpos.lab.experiment_folder": ("ExperimentFolder",),
    "vitpos.models": ("MODELS", "register_model"),
    "vitpos.models.base": ("Classifier", "PatchClassifier", "build_encoding"),
    "vitpos.models.cnn": ("CNN",),
    "vitpos.models.minimal": ("MinimalAttention",),
    "vitpos.models.resnet": ("ResNet",),
    "vitpos.models.swin": ("Swin",),
    "vitpos.models.vit": ("ViT",),
    "vitpos.positions": ("Positions",),
    "vitpos.registry": ("Registry",),
    "vitpos.testing": ("EncodingError", "check_encoding"),
    "vitpos.training": ("AUGMENTATIONS", "DEFENSES", "register_augmentation", "register_defense"),
    "vitpos.training.loop": ("fit",),
    "vitpos.training.recipe": ("Recipe",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vitpos' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
