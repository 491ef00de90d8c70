"""How near found pictures are to the true ones: from two batches (B, C, height, width) in 0…1 to one number each, (B,)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import UserError
from vitpos.metrics._image_pair import check_image_pair
from vitpos.metrics.lpips import lpips, obstacle

WINDOW, SIGMA = 11, 1.5  # of SSIM, in pixels
LUMINANCE, CONTRAST = 0.01**2, 0.03**2  # what keeps SSIM's quotients finite


def mse(found: Tensor, true: Tensor) -> Tensor:
    """The mean squared difference of pixels; 0 for the same picture."""
    found, true = check_image_pair(found, true)
    return (found - true).square().mean((1, 2, 3))


def psnr(found: Tensor, true: Tensor) -> Tensor:
    """−10 · log₁₀ of the mean squared difference, in decibels with peak 1; infinite for the same picture."""
    return -10 * mse(found, true).log10()


def ssim(found: Tensor, true: Tensor) -> Tensor:
    """Structural similarity (Wang et al., 2004), 1 for the same picture: of each channel by itself, then their mean.

    Windows are 11×11 Gaussians with σ = 1.5, and only those that lie wholly inside the picture count, as in its
    authors' code and in scikit-image. Others also count windows across the border and fill what is outside, torchmetrics
    by reflection and MJP's code with zeros: for a picture of 32 pixels reflection can change the second digit.
    """
    found, true = check_image_pair(found, true)
    if reason := _too_small(found.shape[1:]):
        raise UserError(reason)
    x, y = found.double(), true.double()  # variances are small differences of large numbers
    mean_x, mean_y, xx, yy, xy = _windows(torch.stack([x, y, x * x, y * y, x * y]))  # each (B, C, height−10, width−10)
    variances = xx - mean_x**2 + yy - mean_y**2
    covariance = xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + LUMINANCE) / (mean_x**2 + mean_y**2 + LUMINANCE)
    structure = (2 * covariance + CONTRAST) / (variances + CONTRAST)
    return (luminance * structure).mean((1, 2, 3)).to(found.dtype)


def fourier(found: Tensor, true: Tensor) -> Tensor:
    """1 − the cosine between the magnitudes of the Fourier transforms, all channels together: 0 the same, 1 orthogonal.

    Magnitudes say which waves a picture is made of and not where they lie: a picture shifted around its border, or made
    darker as a whole, is at distance 0. The mean is the largest magnitude by far, so that distances are small.

    MJP's "FFT2D" is something else than its name says: a cosine *distance* (the paper says similarity) of the complex
    transforms, which by Parseval's theorem is the cosine distance of the pixels, and nothing of Fourier's; where the
    second transform is not conjugated, as in SciPy at that time, it compares with the true picture turned by 180°.
    """
    transforms = (torch.fft.fft2(pictures) for pictures in check_image_pair(found, true))
    x, y = (F.normalize(transform.abs().flatten(1)) for transform in transforms)  # (B, C · height · width)
    distance = (x - y).square().sum(1) / 2  # 1 − cosine, but 0 for the same picture also after rounding
    return torch.where(x.any(1) == y.any(1), distance, 1.0)  # nothing is alike where only one is black


def measure(found: Tensor, true: Tensor) -> dict[str, Tensor]:
    """Every number by its name, without those that :func:`missing` gives the reason for."""
    metrics = {"mse": mse, "psnr": psnr, "ssim": ssim, "fourier": fourier, "lpips": lpips}
    found, true = check_image_pair(found, true)
    without = missing(found.shape[1:])
    with torch.no_grad():
        return {name: metric(found, true) for name, metric in metrics.items() if name not in without}


def missing(size: Sequence[int]) -> dict[str, str]:
    """The metrics that pictures of a size (channels, height, width) cannot have here, each with the reason."""
    reasons = {"ssim": _too_small(size), "lpips": obstacle(size)}
    return {name: reason for name, reason in reasons.items() if reason}


def _too_small(size: Sequence[int]) -> str:
    _, height, width = size
    if min(height, width) >= WINDOW:
        return ""
    return f"SSIM looks through windows of {WINDOW}×{WINDOW} pixels, and these pictures have {height}×{width}; enlarge them"


def _windows(pictures: Tensor) -> Tensor:
    """(…, height, width) → (…, height−10, width−10): the Gaussian mean of each window inside."""
    steps = torch.arange(WINDOW, dtype=pictures.dtype, device=pictures.device) - WINDOW // 2
    bell = (-(steps**2) / (2 * SIGMA**2)).exp()
    bell = bell / bell.sum()
    flat = pictures.flatten(0, -3)[:, None]  # one channel each
    means = F.conv2d(F.conv2d(flat, bell[None, None, :, None]), bell[None, None, None])
    return means.unflatten(0, pictures.shape[:-2])[..., 0, :, :]
