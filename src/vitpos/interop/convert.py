"""Changes the grid, the patch size or the position encoding of a model; nothing is trained and no file is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from vitpos.encodings import ENCODINGS
from vitpos.encodings._table_interpolation import parse_mode
from vitpos.encodings.base import PositionEncoding, total
from vitpos.encodings.protocols import HasFrequencies, NTKScalable, Resizable, resized
from vitpos.errors import InputError
from vitpos.interop.model_spec import ModelSpec, encoding_terms
from vitpos.interop.patch_size import parse_patch_mode, resample_projection
from vitpos.interop.source_model import Origin, SourceModel
from vitpos.models.base import Classifier, PatchClassifier, build_encoding
from vitpos.models.vit import ViT
from vitpos.positions import Positions
from vitpos.registry.specs import Term

Coords = Literal["interpolate", "rebuild", "ntk"]
Grid = tuple[int, int]
MODE, PATCH_MODE = "bicubic-antialias", "bilinear-antialias"
MAX_SCALE = 16  # maximum ratio of the sides of the two grids, in either direction
FREE_OF_COORDINATES = {"permutation_invariant", "index_only"}


def resize(
    source: SourceModel,
    *,
    grid: Grid | None = None,
    patch: Grid | None = None,
    window: Grid | None = None,
    mode: str = MODE,
    coords: Coords | None = None,
    patch_mode: str = PATCH_MODE,
) -> SourceModel:
    """Returns the model for another grid, patch size or window; all other weights are copied bit for bit.

    Args:
        source: The model to convert.
        grid: Rows and columns of patches; by default those that fit images of the same size.
        patch: Height and width of a patch in pixels.
        window: Rows and columns of the windows of a Swin Transformer.
        mode: Interpolation of stored position tables, see `vitpos.convert`.
        coords: What happens to coordinates, see `vitpos.convert`.
        patch_mode: Interpolation by which patches are resized.
    """
    model = require_patches(source.model)
    parse_mode(mode)
    parse_patch_mode(patch_mode)
    patch = model.patch if patch is None else patch
    grid = _grid_of_image(model, patch) if grid is None else grid
    _check_sides("grid", grid, model.geometry.grid)
    _check_sides("patch size", patch, model.patch)
    channels = source.spec.image_shape[0]
    shape = (channels, grid[0] * patch[0], grid[1] * patch[1])
    spec = replace(source.spec, image_shape=shape)
    if patch != model.patch:
        spec = spec.with_options(patch=patch)
    if window is not None:
        _require_option(spec, "window", "a window is for models with windows, such as swin")
        spec = spec.with_options(window=window)
    spec = _with_coords(spec, model, grid, coords)
    new = require_patches(spec.build())
    state = _resampled_state(model, new, mode)
    weight = model.project.weight.detach().unflatten(1, (channels, *model.patch))
    state["project.weight"] = resample_projection(weight, patch, patch_mode).flatten(1)
    _load(new, state, spec)
    return source.with_model(new, spec)


def swap_encoding(source: SourceModel, encoding: str) -> SourceModel:
    """Returns the model with another position encoding; all other weights are copied.

    Encodings that the old and the new sum have in common keep their weights. Of those that are left out, the vectors of
    prefix tokens are added to these tokens, and the mean of the vectors of patches to the bias of the patch projection,
    if it has one (see `loses_mean`): they do not depend on the position. The weights of new encodings are random,
    with a fixed seed.
    """
    model, terms = require_patches(source.model), encoding_terms(encoding)
    kept, removed = _kept_and_removed(source, terms)
    spec = replace(source.spec, encoding=" + ".join(map(str, terms)))
    if "train_grid" in spec.term.options and not _needs_train_grid(terms, kept, model):
        spec = spec.with_options(train_grid=None)
    new = require_patches(spec.build()).to(model.project.weight.dtype)
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("encoding.")}
    for term, part in zip(terms, new.encoding.parts, strict=False):
        if str(term) in kept:
            part.load_state_dict(kept[str(term)].state_dict())
    state |= {f"encoding.{name}": tensor for name, tensor in new.encoding.state_dict().items()}
    _fold_constants(model, removed, state)
    _load(new, state, spec)
    if spec.encoding != source.spec.encoding:  # the library's model of this name has the old one
        source = replace(source, origin=Origin())
    return source.with_model(new, spec)


def _kept_and_removed(
    source: SourceModel, terms: list[Term]
) -> tuple[dict[str, PositionEncoding], list[PositionEncoding]]:
    """Returns the encodings of a model that ``terms`` name too, by spec, and the encodings that they do not name."""
    parts = require_patches(source.model).encoding.parts
    before = dict(zip(map(str, ENCODINGS.parse(source.spec.encoding)), parts, strict=False))
    kept = {str(term): before[str(term)] for term in terms if str(term) in before}
    return kept, [part for part in parts if not any(part is one for one in kept.values())]


def differing_terms(before: str, after: str) -> list[tuple[str, str]]:
    """Returns pairs (new, old) of the encodings that occur in both specs with different options and have weights."""
    old = {term.name: term for term in ENCODINGS.parse(before)}
    return [
        (str(term), str(old[term.name]))
        for term in ENCODINGS.parse(after)
        if term.name in old and str(term) != str(old[term.name]) and "learnable" in _traits(term)
    ]


def _traits(term: Term) -> tuple[str, ...]:
    return tuple(getattr(ENCODINGS.load(term.name), "traits", ()))


def require_patches(model: nn.Module) -> PatchClassifier:
    """Returns the model if it divides images into patches; raises an InputError otherwise."""
    if not isinstance(model, PatchClassifier):
        raise InputError(
            f"a {type(model).__name__} has no patches and no position encoding; only its format can be converted"
        )
    return model


def depends_on_coordinates(encoding: PositionEncoding) -> bool:
    """Returns whether an encoding, or one of a sum, depends on coordinates instead of a table with an entry per cell."""
    return any(
        not isinstance(part, Resizable) and FREE_OF_COORDINATES.isdisjoint(part.traits) for part in encoding.parts
    )


def _needs_train_grid(terms: list[Term], kept: dict[str, PositionEncoding], model: PatchClassifier) -> bool:
    """Returns whether a sum of encodings depends on the training grid, because of parts that are kept or of new ones."""
    new = [term for term in terms if str(term) not in kept]
    built = [build_encoding(str(term), model.geometry) for term in new]
    stored = any(not isinstance(part, Resizable) for part in kept.values())
    return not new or stored or any(map(depends_on_coordinates, built))


def _with_coords(spec: ModelSpec, model: PatchClassifier, grid: Grid, coords: Coords | None) -> ModelSpec:
    """Returns the spec of the model for another grid, with the options that decide about its coordinates."""
    accepts = "train_grid" in spec.options
    if coords is None:  # also without coordinates: some tables have the size of the training grid, as those of counts
        coords = "interpolate" if accepts else "rebuild"
    if coords == "interpolate":
        _require_option(spec, "train_grid", "coords 'interpolate' is for models of type vit; use coords 'rebuild'")
        return spec.with_options(train_grid=model.train_grid if model.train_grid != grid else None)
    old = model.train_grid
    spec = spec.with_options(train_grid=None) if accepts else spec
    return replace(spec, encoding=_ntk_scaled(spec.encoding, model, old, grid)) if coords == "ntk" else spec


def _ntk_scaled(encoding: str, model: PatchClassifier, old: Grid, new: Grid) -> str:
    """Returns the spec of the encoding of a model with NTK scaling from grid ``old`` to ``new``, beside its own."""
    terms, scaled = [], False
    for term, part in zip(ENCODINGS.parse(encoding), model.encoding.parts, strict=True):
        options = ENCODINGS.with_defaults(term)
        if isinstance(part, NTKScalable) and "ntk_factor" in options:
            _check_ntk(term, model, old, new)
            factor = max(options["ntk_factor"] * new[0] / old[0], 1.0)
            others = {name: value for name, value in term.options.items() if name != "ntk_factor"}
            term, scaled = Term(term.name, others | ({"ntk_factor": factor} if factor > 1 else {})), True
        terms.append(str(term))
    if not scaled:
        raise InputError(f"coords 'ntk' is for encodings with NTK scaling, such as rope, not for {encoding!r}")
    return " + ".join(terms)


def _check_ntk(term: Term, model: PatchClassifier, old: Grid, new: Grid) -> None:
    """Raises an InputError if NTK scaling, with one factor for both axes, does not suit a change of the grid."""
    if new[0] * old[1] != new[1] * old[0]:
        raise InputError(
            f"coords 'ntk' has one factor for rows and columns, which change from {old[0]}x{old[1]} to "
            f"{new[0]}x{new[1]}; use coords 'interpolate' or a grid with the same aspect ratio"
        )
    before, after = (build_encoding(str(term), replace(model.geometry, grid=grid)) for grid in (old, new))
    if isinstance(before, HasFrequencies) and isinstance(after, HasFrequencies):
        first, second = before.frequencies(), after.frequencies()
        if first is not None and second is not None and not torch.equal(first, second):
            raise InputError(
                f"coords 'ntk': {str(term)!r} scales coordinates of every grid to one range; use coords 'rebuild'"
            )


def _resampled_state(old: PatchClassifier, new: PatchClassifier, mode: str) -> dict[str, Tensor]:
    """Returns the weights of ``old``, with stored position tables resampled to the grids and windows of ``new``."""
    state = {name: tensor.clone() for name, tensor in old.state_dict().items()}
    for name, owner in new.named_modules():
        encoding, geometry = getattr(owner, "encoding", None), getattr(owner, "geometry", None)
        if not isinstance(encoding, PositionEncoding) or geometry is None:
            continue
        root = f"{name}.encoding." if name else "encoding."
        before = (old.get_submodule(name) if name else old).get_submodule("encoding")
        assert isinstance(before, PositionEncoding)
        state = {key: tensor for key, tensor in state.items() if not key.startswith(root)}
        after = resized(before, geometry.grid, mode=mode).state_dict()
        state |= {f"{root}{key}": tensor for key, tensor in after.items()}
    return state


def _load(model: Classifier, state: dict[str, Tensor], spec: ModelSpec) -> None:
    """Loads weights into a new model; raises an InputError that names the first tensor that does not fit."""
    model.to(next(iter(state.values())).dtype)
    for name, wanted in model.state_dict().items():
        found = tuple(state[name].shape) if name in state else "missing"
        if found != tuple(wanted.shape):
            raise InputError(
                f"the encoding {spec.encoding!r} cannot be converted: its {name!r} is {found} and should be "
                f"{tuple(wanted.shape)} for this grid; give the encoding a method 'resized'"
            )
    model.load_state_dict(state)


def _constants(model: PatchClassifier, parts: list[PositionEncoding]) -> tuple[Tensor | None, Tensor | None]:
    """Returns what encodings add to the tokens at all positions: the mean (D,) of patches, and of prefix tokens (P, D)."""
    with torch.no_grad():
        pos = Positions.from_grid(model.geometry.grid, train_grid=model.train_grid)
        dtype = model.project.weight.dtype
        vectors = total(part.vectors(pos, 0, dtype) for part in parts if "vectors" in part.hooks)
        return None if vectors is None else vectors.mean((0, 1)), total(part.prefix_vectors() for part in parts)


def _fold_constants(model: PatchClassifier, removed: list[PositionEncoding], state: dict[str, Tensor]) -> None:
    """Adds to the weights in ``state`` what removed encodings add to every token at all positions."""
    mean, prefix = _constants(model, removed)
    with torch.no_grad():
        if mean is not None and "project.bias" in state:
            state["project.bias"] = state["project.bias"] + mean
        if prefix is not None and isinstance(model, ViT):
            state["prefix_tokens"] = state["prefix_tokens"] + prefix


def loses_mean(before: SourceModel, after: SourceModel) -> bool:
    """Returns whether a swap has lost the mean of the vectors of removed encodings: the projection has no bias for it."""
    model = require_patches(before.model)
    _, removed = _kept_and_removed(before, ENCODINGS.parse(after.spec.encoding))
    return model.project.bias is None and _constants(model, removed)[0] is not None


def _grid_of_image(model: PatchClassifier, patch: Grid) -> Grid:
    height, width = (side * size for side, size in zip(model.geometry.grid, model.patch, strict=True))
    if height % patch[0] or width % patch[1]:
        near = max(1, round(height / patch[0])), max(1, round(width / patch[1]))
        raise InputError(
            f"images of {height}x{width} pixels do not consist of patches of {patch[0]}x{patch[1]}; "
            f"give a grid too, such as {near[0]}x{near[1]}"
        )
    return height // patch[0], width // patch[1]


def _check_sides(what: str, new: Grid, old: Grid) -> None:
    if min(new) < 1 or any(not 1 / MAX_SCALE <= a / b <= MAX_SCALE for a, b in zip(new, old, strict=True)):
        raise InputError(
            f"the {what} {new[0]}x{new[1]} is too far from {old[0]}x{old[1]}; choose sides of 1 or more, at most "
            f"{MAX_SCALE} times as large or small"
        )


def _require_option(spec: ModelSpec, option: str, message: str) -> None:
    if option not in spec.options:
        raise InputError(f"{message}; this model is {spec.term.name}")
