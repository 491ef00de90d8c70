"""Similarity of reconstructed and true images: MSE, PSNR, SSIM and distances of Fourier transforms.

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
    The metric "FFT2D" of MJP is another one, see :func:`fft2d`.
    """
    x, y = (torch.fft.fft2(batch).abs().flatten(1) for batch in check_image_pair(images, targets))
    return _cosine_distance(x, y)


def fft2d(images: Tensor, targets: Tensor) -> Tensor:
    """Returns 1 − cosine similarity of the complex 2-D Fourier transforms, (B,): 0 for equal images, 1 for orthogonal ones.

    This is the metric "FFT2D" of MJP (Ren et al., CVPR 2023, Table 5) by its definition there, "cosine similarity in the
    Fourier space"; the values and arrows of the table belong to the distance. By Parseval's theorem it equals the cosine
    distance of the pixels. The paper's code computes another number, see :func:`fft2d_code`. Both batches are
    (B, C, height, width) with pixels in 0…1; all channels form one vector.
    """
    x, y = (torch.view_as_real(torch.fft.fft2(batch)).flatten(1) for batch in check_image_pair(images, targets))
    return _cosine_distance(x, y)


def fft2d_code(images: Tensor, targets: Tensor) -> Tensor:
    """Returns the metric "FFT2D" as the published code of MJP computes it, (B,): 0 for equal images, at most 2.

    The code takes the cosine distance of SciPy, which at that time did not conjugate, of the complex Fourier transforms X
    and Y: the absolute value of 1 − Σ XY / √(Σ X² · Σ Y²). Current versions of SciPy reject complex input. By Parseval's
    theorem, Σ XY is the number of pixels times the product of one image with the other rotated by 180° about its first
    pixel, cyclically, as it is computed here. The result therefore depends on point symmetry, and can be 0 for different
    images. Where Σ X² or Σ Y² is 0, as for black images, it is 1, or 0 if the images are equal.
    Both batches are (B, C, height, width) with pixels in 0…1; all channels form one vector.
    """
    x, y = check_image_pair(images, targets)
    x_rotated, y_rotated = (batch.flip(2, 3).roll((1, 1), (2, 3)) for batch in (x, y))
    scale = ((x * x_rotated).sum((1, 2, 3)) * (y * y_rotated).sum((1, 2, 3))).sqrt()
    distance = (1 - (x * y_rotated).sum((1, 2, 3)) / scale).abs().clamp(max=2)  # SciPy's maximum
    equal = (x == y).flatten(1).all(1)
    return distance.masked_fill(scale == 0, 1).masked_fill(equal, 0)


def _cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    """Returns 1 − cosine similarity of real vectors x and y (B, n), (B,); exactly 0 for equal ones, 1 if only one is 0."""
    x, y = F.normalize(x), F.normalize(y)
    distance = (x - y).square().sum(1) / 2  # equals 1 − cosine, without loss of digits by cancellation
    return torch.where(x.any(1) == y.any(1), distance, 1.0)


def image_metrics(images: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Returns metric → values (B,) for all metrics of this module and lpips, comparing each image with its target.

    Both batches are (B, C, height, width) with pixels in 0…1. Metrics that cannot be computed are left out: SSIM and
    LPIPS need a minimum image size, LPIPS also installed weights; :func:`unavailable_metrics` returns the reasons.
    """
    metrics = {metric.__name__: metric for metric in (mse, psnr, ssim, fourier, fft2d, fft2d_code, lpips)}
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
