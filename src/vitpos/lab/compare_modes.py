"""Compares all modes of resampling position tables, and ways to choose coordinates, on one model; recommends one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vitpos.encodings.protocols import NTKScalable
from vitpos.errors import InputError
from vitpos.interop.convert import Coords, depends_on_coordinates, require_patches, resize
from vitpos.interop.source_model import SourceModel
from vitpos.interop.step_reports import StepReport, norm_ratio, position_tables, round_trip_error
from vitpos.lab.conversion import Conversion
from vitpos.models.base import PatchClassifier

MODES = (
    "bicubic-antialias",
    "bicubic",
    "bicubic-offset",
    "bicubic-align_corners",
    "bicubic-norm",
    "bicubic-antialias-norm",
    "bilinear",
    "bilinear-antialias",
    "bilinear-align_corners",
    "area",
)


def compare_modes(
    state: Conversion, make: Callable[[str, Coords | None], SourceModel], coords: Coords | None
) -> tuple[str, Coords | None]:
    """Adds a report per mode; returns the mode and coordinates with the lowest KL divergence from the original (``kl``).

    For a model without classifier these are the ones with the highest ``cosine``; without images, the default.

    Args:
        state: The conversion.
        make: Returns the model that is resized with a mode and coordinates.
        coords: The coordinates that were asked for; None to compare these too.
    """
    original = require_patches(state.original.model)
    tables = has_tables(original)
    found: list[tuple[float, str, Coords | None]] = []
    for one in _choices(state.original, coords):
        for mode in MODES if tables else MODES[:1]:
            try:
                converted = make(mode, one)
            except InputError as error:  # such as NTK scaling with a single frequency
                if one in (None, coords):
                    raise
                state.reports.append(StepReport("mode", _name(mode, one, tables=tables), {}, str(error)))
                continue
            back = resize(
                converted,
                grid=original.geometry.grid,
                patch=original.patch,
                window=state.original.spec.options.get("window"),
                mode=mode,
            )
            numbers = {
                "norm_ratio": norm_ratio(original, converted.model),
                "round_trip": round_trip_error(original, back.model),
                **state.drift(converted),
            }
            found.append((numbers.get("kl", -numbers.get("cosine", 0.0)), mode, one))
            state.reports.append(StepReport("mode", _name(mode, one, tables=tables), numbers))
    least = min(found, key=lambda entry: entry[0])
    used = _name(*least[1:], tables=tables)
    if state.data is None:
        state.reports.append(StepReport("mode", f"used: {used}", {}, "give data to choose the mode by its predictions"))
    else:
        by_features = state.original.spec.num_classes == 0
        numbers = {"cosine": -least[0]} if by_features else {"kl": least[0]}
        best = "the most similar features (cosine)" if by_features else "the least divergence of probabilities (kl)"
        note = f"it has {best} from the original on {len(state.data.test)} images"
        state.reports.append(StepReport("mode", f"recommended and used: {used}", numbers, note))
    return least[1], least[2]


def _choices(source: SourceModel, coords: Coords | None) -> Sequence[Coords | None]:
    """Returns the coordinates that are compared."""
    encoding = require_patches(source.model).encoding
    if coords is not None or not depends_on_coordinates(encoding) or "train_grid" not in source.spec.options:
        return [coords]
    scaled = any(isinstance(part, NTKScalable) for part in encoding.parts)
    return ["interpolate", "rebuild", "ntk"] if scaled else ["interpolate", "rebuild"]


def has_tables(model: PatchClassifier) -> bool:
    """Returns whether a model has an encoding with a stored table, for the whole image or for windows."""
    return bool(position_tables(model))


def _name(mode: str, coords: Coords | None, *, tables: bool) -> str:
    """Returns what a report calls a choice; a model without ``tables`` has no mode."""
    named = [mode] if tables else []
    named += [f"coordinates: {coords}"] if coords else []
    return ", ".join(named) or "no tables to resample and no choice of coordinates"
