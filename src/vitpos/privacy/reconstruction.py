"""Runs an attack on every image of a client and compares the reconstructions with the targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.data.dataset import Dataset
from vitpos.evaluations.result import Result
from vitpos.metrics.image_similarity import image_metrics, psnr
from vitpos.models.base import Classifier, PatchClassifier
from vitpos.patches import patchify
from vitpos.privacy.client import Client, SharedGradient, to_precision

Progress = Callable[[float], None]  # called with the fraction that is done, 0 to 1
MAX_PSNR = 320.0  # PSNR of identical images, in decibels
AVERAGES = {  # over the images; the mean for all other metrics
    "condition": statistics.median,
    "condition_positions": statistics.median,
}


class NotApplicable(Exception):
    """Raised by an attack that does not apply to a model; the message becomes the ``reason`` of the attack's `Result`."""


@dataclass(frozen=True)
class Reconstruction:
    """The image that an attack reconstructed from one shared gradient.

    Args:
        image: Normalized image (1, C, height, width), as the model gets it.
        diagnostics: Metric → value, such as the rank of a linear system.
        trajectory: Normalized images (1, C, height, width) during the optimization; empty for closed forms.
    """

    image: Tensor
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    trajectory: tuple[Tensor, ...] = ()


def run_attack(client: Client, attack: Callable[[Classifier, SharedGradient, Progress], Reconstruction]) -> Result:
    """Attacks every image of a client; returns a `Result` with metrics and images.

    The metrics compare the reconstructions with the targets, the images that the attack should reconstruct, and include
    the means (for condition numbers the medians) of the attack's diagnostics. If the attack does not apply to the model,
    the result has only the reason.

    Args:
        client: Computes the shared gradients.
        attack: Called with the model in double precision, a shared gradient, and a callback for the fraction that is done;
            returns the reconstruction.
    """
    model = to_precision(client.ctx.model)
    every: list[SharedGradient] = []
    found: list[Reconstruction] = []

    def progress(fraction: float) -> None:
        client.ctx.progress((len(found) + fraction) / len(client))

    try:
        for shared in client.shared_gradients():
            every.append(shared)
            found.append(attack(model, shared, progress))
    except NotApplicable as error:
        return Result(reason=str(error))
    data = client.ctx.data
    images, targets = (to_pixels(data, x) for x in ((f.image for f in found), (s.target for s in every)))
    each = {name: values.clamp(max=MAX_PSNR).tolist() for name, values in image_metrics(images, targets).items()}
    numbers = {name: statistics.fmean(values) for name, values in each.items()}
    numbers["psnr_min"], numbers["psnr_max"] = min(each["psnr"]), max(each["psnr"])
    mean_image = to_pixels(data, (torch.zeros_like(s.target) for s in every))  # normalized, the mean color is 0
    numbers["psnr_mean_image"] = float(psnr(mean_image, targets).mean())
    own_mean = targets.mean((2, 3), keepdim=True).expand_as(targets)
    numbers["psnr_own_mean"] = float(psnr(own_mean, targets).clamp(max=MAX_PSNR).mean())
    numbers["psnr_gain"] = numbers["psnr"] - numbers["psnr_own_mean"]
    visible = torch.cat([_visible_pixels(shared) for shared in every]).to(images)  # (n, 1, height, width)
    if (fraction_visible := visible.mean((1, 2, 3))).all():
        errors = ((images - targets).square().mean(1, keepdim=True) * visible).mean((1, 2, 3)) / fraction_visible
        numbers["psnr_visible"] = float(-10 * errors.clamp_min(10 ** (-MAX_PSNR / 10)).log10().mean())
    if isinstance(model, PatchClassifier):
        numbers |= patch_metrics(images, targets, model.patch)
    for name in found[0].diagnostics:
        numbers[name] = AVERAGES.get(name, statistics.fmean)([f.diagnostics[name] for f in found])
    trajectories = [to_pixels(data, f.trajectory) for f in found if f.trajectory]
    stored = {"reconstruction": images, "target": targets}
    return Result(numbers, images=stored | ({"trajectory": torch.stack(trajectories)} if trajectories else {}))


def patch_metrics(images: Tensor, targets: Tensor, patch: tuple[int, int]) -> dict[str, float]:
    """Compares images with their targets patch by patch; returns two fractions, 0 to 1, by name.

    Both batches are (n, C, height, width) with pixels 0 to 1; ``patch`` is the height and width of a patch.

    patches_exact: fraction of the patches whose pixels all differ by less than half of 1/255. patches_placed: fraction of
    the patches that are nearer to the target patch at their position than to any different patch of the target.
    """
    found, wanted = patchify(images, patch), patchify(targets, patch)  # (n, N, C·p·q)
    exact = (found - wanted).abs().amax(-1) < 0.5 / 255
    nearest = torch.cdist(found, wanted).argmin(-1)  # (n, N)
    placed = (wanted.take_along_dim(nearest[..., None], 1) == wanted).all(-1)
    return {"patches_exact": exact.double().mean().item(), "patches_placed": placed.double().mean().item()}


def _visible_pixels(shared: SharedGradient) -> Tensor:
    """Returns a mask (1, 1, height, width): 0 for pixels of patches whose position the client hides, otherwise 1."""
    size, pos = shared.target.shape[2:], shared.positions
    if pos is None:
        return torch.ones(1, 1, *size)
    return F.interpolate(pos.known.unflatten(1, pos.grid)[:, None].cpu().float(), size, mode="nearest")


def to_pixels(data: Dataset, images: Iterable[Tensor]) -> Tensor:
    """Concatenates normalized images and converts them to pixel values 0 to 1, clamped.

    Returns (n, C, height, width) in double precision on the CPU.

    Args:
        data: The data set, whose mean and std the images were normalized with.
        images: Batches (B, C, height, width).
    """
    normalized = torch.cat([x.detach().cpu().double() for x in images])
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (data.mean, data.std))
    return (normalized * std + mean).clamp(0, 1)
