"""Similarity of reconstructed and true images: MSE, PSNR, SSIM and Fourier magnitude distance.

Each metric takes two batches (B, C, height, width) with values in 0…1 and returns one value per image, (B,).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitpos.errors import InputError
from vitpos.metrics._image_pair import check_image_pair
from vitpos.metrics.lpips import lpips, lpips_unavailable

WINDOW, SIGMA = 11, 1.5  # Gaussian window of SSIM, in pixels
C1, C2 = 0.01**2, 0.03**2  # SSIM's stabilizing constants for luminance and contrast


def mse(images: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean squared error (B,) over channels and pixels between two batches of images (B, C, height, width)."""
    images, targets = check_image_pair(images, targets)
    return (images - targets).square().mean((1, 2, 3))


def psnr(images: Tensor, targets: Tensor) -> Tensor:
    """Returns the peak signal-to-noise ratio (B,) in decibels, −10 · log₁₀(MSE); infinite for equal images.

    Both batches are (B, C, height, width) with pixels in 0…1.
    """
    return -10 * mse(images, targets).log10()


def ssim(images: Tensor, targets: Tensor) -> Tensor:
    """Returns the structural similarity (Wang et al., 2004), (B,): mean over channels and windows, 1 for equal images.

    Both batches are (B, C, height, width) with pixels in 0…1. Windows are 11×11 Gaussians with σ = 1.5,
    and only windows inside the image count, as in the authors' code and in scikit-image. torchmetrics also counts windows
    across the border after reflection padding, and MJP's code after zero padding; at 32 pixels reflection can change the
    second digit.
    """
    images, targets = check_image_pair(images, targets)
    if reason := _ssim_unavailable(images.shape[1:]):
        raise InputError(reason)
    x, y = images.double(), targets.double()  # variances are small differences of large numbers
    moments = _gaussian_filter(torch.stack([x, y, x * x, y * y, x * y]))  # each (B, C, height−10, width−10)
    mean_x, mean_y, xx, yy, xy = moments
    variances = xx - mean_x**2 + yy - mean_y**2
    covariance = xy - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    structure = (2 * covariance + C2) / (variances + C2)
    return (luminance * structure).mean((1, 2, 3)).to(images.dtype)


def fourier(images: Tensor, targets: Tensor) -> Tensor:
    """Returns 1 − cosine similarity of the 2-D Fourier magnitudes, (B,): 0 for equal and 1 for orthogonal spectra.

    Both batches are (B, C, height, width) with pixels in 0…1. Magnitudes are invariant to cyclic shifts, and the
    cosine to a factor of brightness. The zero frequency dominates, so distances between natural images are small.

    The metric "FFT2D" of MJP (Ren et al., CVPR 2023) differs from this one. It is the cosine distance of the complex
    transforms (the paper calls it a similarity), which by Parseval's theorem equals the cosine distance of the pixels.
    Without complex conjugation, as in SciPy at that time, it compares the image with the target rotated by 180°.
    """
    transforms = (torch.fft.fft2(batch) for batch in check_image_pair(images, targets))
    x, y = (F.normalize(transform.abs().flatten(1)) for transform in transforms)  # (B, C · height · width)
    distance = (x - y).square().sum(1) / 2  # equals 1 − cosine, and is exactly 0 for equal images
    return torch.where(x.any(1) == y.any(1), distance, 1.0)  # 1 where only one of the two is black


def image_metrics(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Returns metric → values (B,) for mse, psnr, ssim, fourier and lpips, comparing each image with its target.

    Both batches are (B, C, height, width) with pixels in 0…1. Metrics that cannot be computed are left out: SSIM and
    LPIPS need a minimum image size, LPIPS also installed weights; :func:`unavailable_metrics` returns the reasons.
    """
    metrics = {"mse": mse, "psnr": psnr, "ssim": ssim, "fourier": fourier, "lpips": lpips}
    images, targets = check_image_pair(images, targets)
    skipped = unavailable_metrics(images.shape[1:])
    with torch.no_grad():
        return {name: metric(images, targets) for name, metric in metrics.items() if name not in skipped}


def unavailable_metrics(size: Sequence[int]) -> dict[str, str]:
    """Returns metric → reason, for metrics that cannot be computed for images of ``size`` (channels, height, width)."""
    reasons = {"ssim": _ssim_unavailable(size), "lpips": lpips_unavailable(size)}
    return {name: reason for name, reason in reasons.items() if reason}


def _ssim_unavailable(size: Sequence[int]) -> str:
    _, height, width = size
    if min(height, width) >= WINDOW:
        return ""
    return f"SSIM needs images of at least {WINDOW}×{WINDOW} pixels, and these have {height}×{width}; enlarge them"


def _gaussian_filter(images: Tensor) -> Tensor:
    """Returns the Gaussian-weighted mean of each 11×11 window of images (…, height, width): (…, height−10, width−10)."""
    offsets = torch.arange(WINDOW, dtype=images.dtype, device=images.device) - WINDOW // 2
    kernel = (-(offsets**2) / (2 * SIGMA**2)).exp()
    kernel = kernel / kernel.sum()
    flat = images.flatten(0, -3)[:, None]  # one channel each
    means = F.conv2d(F.conv2d(flat, kernel[None, None, :, None]), kernel[None, None, None])
    return means.unflatten(0, images.shape[:-2])[..., 0, :, :]
